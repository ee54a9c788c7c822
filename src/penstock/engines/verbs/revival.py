"""Looking at tasks, and moving them by hand: what a person does rather than a worker."""

from __future__ import annotations

from penstock.engines.transaction import Transaction, TubeStore
from penstock.engines.verbs.checks import check_delay, check_ttl, existing, with_update
from penstock.model import ops, rules
from penstock.model.duration import resolve
from penstock.model.errors import DuplicateKey, NotTaken, TaskNotFound, UsageError, WrongState
from penstock.model.state import LIVE, State
from penstock.model.task import Record


def peek(tx: Transaction, op: ops.Peek, now: int) -> Record:
    return existing(tx.tube(op.tube), op.id, now)


def watch(tx: Transaction, op: ops.Watch, now: int) -> Record:
    tube = tx.tube(op.tube)
    record = existing(tube, op.id, now)
    if record.state in LIVE and (record.watched_until is None or record.watched_until < op.until):
        watched = record._replace(watched_until=op.until)
        tube.update(record, watched, now)
        return watched
    return record


def kick(tx: Transaction, op: ops.Kick, now: int) -> int:
    tube = tx.tube(op.tube)
    check_delay(tube.config, op.delay)
    check_ttl(tube.config, op.ttl)
    tube.settle(now)
    records = tube.buried(op.n)
    with tube.whole():
        for record in records:
            record = with_update(tube, record, op.update)
            tube.save([rules.revive(record, now, resolve(op.delay, now), op.ttl)])
    return len(records)


def dig(tx: Transaction, op: ops.Dig, now: int) -> Record:
    tube = tx.tube(op.tube)
    check_delay(tube.config, op.delay)
    check_ttl(tube.config, op.ttl)
    record = existing(tube, op.id, now)
    if record.state != State.BURIED:
        raise WrongState(f"task {record.id!r} is {record.state}; only a buried task can be dug out")
    record = with_update(tube, record, op.update)
    return tube.save([rules.revive(record, now, resolve(op.delay, now), op.ttl)])


def delete(tx: Transaction, op: ops.Delete, now: int) -> Record:
    tube = tx.tube(op.tube)
    return tube.save([rules.delete(existing(tube, op.id, now), now)])


def release_all(tx: Transaction, op: ops.ReleaseAll, now: int) -> int:
    tube = tx.tube(op.tube)
    tube.settle(now)
    records = sorted(tube.taken(), key=lambda record: record.seq)
    with tube.whole():
        for record in records:
            tube.save(rules.release(tube.config, record, now))
    return len(records)


def snatch(tx: Transaction, op: ops.Snatch, now: int) -> Record:
    tube = tx.tube(op.tube)
    check_delay(tube.config, op.delay)
    record = existing(tube, op.id, now)
    if record.state != State.TAKEN:
        raise NotTaken(f"task {record.id!r} is {record.state}, nobody holds it")
    return tube.save(rules.release(tube.config, record, now, delay=resolve(op.delay, now)))


def switch(tx: Transaction, op: ops.Switch, now: int) -> Record:
    tube = tx.tube(op.tube)
    check_delay(tube.config, op.delay)
    if op.state == State.TAKEN:
        raise UsageError("a task cannot be switched to taken; take it instead")
    if op.state == State.DELAYED and op.delay is None:
        raise UsageError("switching a task to delayed needs delay=")
    record = existing(tube, op.id, now)
    if record.state == State.TAKEN:
        raise WrongState(f"task {record.id!r} is taken; snatch it first")
    if op.state != State.DONE:
        _check_key(tube, record)
    changes = rules.switch(tube.config, record, now, op.state, resolve(op.delay, now))
    return tube.save(changes) if changes else record


def restart(tx: Transaction, op: ops.Restart, now: int) -> Record:
    tube = tx.tube(op.tube)
    check_delay(tube.config, op.delay)
    record = existing(tube, op.id, now)
    if record.state in (State.READY, State.TAKEN):
        raise WrongState(f"task {record.id!r} is {record.state}; only a waiting or ended task can be restarted")
    _check_key(tube, record)
    return tube.save([rules.restart(record, now, resolve(op.delay, now))])


def _check_key(tube: TubeStore, record: Record) -> None:
    """A kept task can come back to life only while no live task has its key."""
    if record.state == State.DONE and record.key is not None and tube.find_key(record.key) is not None:
        raise DuplicateKey(f"a live task has the key {record.key!r}; finish it before this one comes back")


def cancel(tx: Transaction, op: ops.Cancel, now: int) -> Record | None:
    tube = tx.tube(op.tube)
    if op.key is not None:
        record = tube.settled(tube.find_key(op.key), now)
        if record is None or record.state == State.DONE:
            return None
    else:
        assert op.id is not None
        record = existing(tube, op.id, now)
    if record.state == State.DONE:
        raise WrongState(f"task {record.id!r} is done already")
    if record.state == State.TAKEN:
        asked = record._replace(cancel_asked=1)
        tube.update(record, asked, now)
        return asked
    return tube.save([rules.cancel(tube.config, record, now)])


def add_retries(tx: Transaction, op: ops.AddRetries, now: int) -> int:
    tube = tx.tube(op.tube)
    tube.settle(now)
    number = 0
    with tube.whole():
        for record in tube.exhausted():
            if record.state == State.DONE and record.key is not None and tube.find_key(record.key) is not None:
                continue
            tube.save([rules.add_retries(record, now, op.n)])
            number += 1
    return number


def list_tasks(tx: Transaction, op: ops.ListTasks, now: int) -> list[Record]:
    tube = tx.tube(op.tube)
    tube.settle(now)
    config = tube.config
    counted = config.id in ("auto", "time64") and config.adopted is None and isinstance(op.after, int)
    if op.after is not None and not counted and tube.find(op.after) is None:
        raise TaskNotFound(f"there is no task {op.after!r} to list from")
    return tube.page(op.state, op.limit, op.after)


def get_extent(tx: Transaction, op: ops.GetExtent, now: int) -> tuple[int, int] | None:
    tube = tx.tube(op.tube)
    tube.settle(now)
    return tube.extent()
