"""Every verb, over any store. Same order as model/ops.py; a test checks that VERBS covers ops.ALL.

A verb raises before it writes: whoever groups several verbs in one transaction can let the others stand.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from penstock.engines.transaction import Transaction, TubeStore
from penstock.model import ops, rules
from penstock.model.duration import FOREVER, Delay, resolve
from penstock.model.errors import (
    DuplicateKey,
    LeaseLost,
    NotOwner,
    NotTaken,
    PayloadTooLarge,
    PenstockError,
    SessionExpired,
    TaskNotFound,
    TubeBusy,
    TubeExists,
    TubeFull,
    UsageError,
    WrongState,
)
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.session import Session
from penstock.model.state import LIVE, State
from penstock.model.stats import Statistics
from penstock.model.task import Change, Draft, HistoryRow, Placed, Record, TaskId
from penstock.model.tube import TubeConfig

R = TypeVar("R")


def execute(tx: Transaction, op: ops.Op[R], now: int) -> R:
    """Perform one op; sessions that are over end first."""
    tx.settle_sessions(now)
    result: R = VERBS[type(op)](tx, op, now)
    return result


# -- tubes ---------------------------------------------------------------------------------------------


def create_tube(tx: Transaction, op: ops.CreateTube, now: int) -> TubeConfig:
    name = op.config.name
    if tx.has_tube(name):
        config = tx.tube(name).config
        if not op.if_not_exists:
            raise TubeExists(f"tube {name!r} exists already; pass if_not_exists=True to use it")
        if differences := config.differences(op.config.kind, op.config.temporary, op.given or {}):
            raise UsageError(f"tube {name!r} exists with other settings: {'; '.join(differences)}")
        return config
    tx.create_tube(op.config)
    return op.config


def get_tube(tx: Transaction, op: ops.GetTube, now: int) -> TubeConfig:
    return tx.tube(op.tube).config


def list_tubes(tx: Transaction, op: ops.ListTubes, now: int) -> list[TubeConfig]:
    return [tx.tube(name).config for name in sorted(tx.tube_names())]


def alter_tube(tx: Transaction, op: ops.AlterTube, now: int) -> TubeConfig:
    tube = tx.tube(op.tube)
    config = tube.config.altered(op.options)
    tube.settle(now)
    tx.configure_tube(config, now)
    tx.touched.add(op.tube)
    return config


def pause_tube(tx: Transaction, op: ops.PauseTube, now: int) -> TubeConfig:
    tube = tx.tube(op.tube)
    config = replace(tube.config, paused=op.paused)
    tx.configure_tube(config, now)
    tx.touched.add(op.tube)
    return config


def truncate_tube(tx: Transaction, op: ops.TruncateTube, now: int) -> int:
    number = tx.tube(op.tube).truncate()
    tx.touched.add(op.tube)
    return number


def drop_tube(tx: Transaction, op: ops.DropTube, now: int) -> None:
    tube = tx.tube(op.tube)
    tube.settle(now)
    held, waiting = tube.counters.rows(State.TAKEN), tx.waiting(op.tube)
    if (held or waiting) and not op.force:
        raise TubeBusy(
            f"tube {op.tube!r} cannot be dropped: {held} tasks are taken and {waiting} takers wait; "
            "finish them or pass force=True"
        )
    tx.drop_tube(op.tube)
    tx.touched.add(op.tube)


def adopt_table(tx: Transaction, op: ops.AdoptTable, now: int) -> TubeConfig:
    if tx.has_tube(op.config.name):
        raise TubeExists(f"tube {op.config.name!r} exists already; adopt the table under another name")
    tx.adopt(op.config, now)
    return op.config


# -- tasks ---------------------------------------------------------------------------------------------


def put(tx: Transaction, op: ops.Put, now: int) -> list[Placed | PenstockError]:
    tube = tx.tube(op.tube)
    tube.settle(now)
    results: list[Placed | PenstockError] = []
    for draft in op.drafts:
        try:
            results.append(put_one(tube, draft, now))
        except PenstockError as error:
            results.append(error)
    return results


def put_one(tube: TubeStore, draft: Draft, now: int) -> Placed:
    check_draft(tube.config, draft)
    if draft.put_id is not None and (same := tube.settled(tube.find_put_id(draft.put_id), now)):
        return Placed(same, "existing")
    if draft.key is not None and (other := tube.settled(tube.find_key(draft.key), now)):
        return _conflict(tube, draft, other, now)
    capacity = tube.config.capacity
    if capacity is not None and tube.counters.live() >= capacity:
        raise TubeFull(f"tube {tube.config.name!r} holds its capacity of {capacity} tasks; finish some or wait")
    task_id, seq = _new_id(tube, draft, now)
    return Placed(tube.save([rules.put(tube.config, draft, now, seq, task_id)]), "new")


def check_draft(config: TubeConfig, draft: Draft) -> None:
    """Options the tube has no feature for, and data that is too long."""
    features = config.features
    if draft.pri is not None and not features.pri:
        raise _missing(config, "pri", "pri")
    if draft.ttl is not None and not features.ttl:
        raise _missing(config, "ttl", "ttl")
    if draft.ttr is not None and not features.ttr:
        raise _missing(config, "ttr", "ttr")
    if not features.delay:
        if draft.delay is not None:
            raise _missing(config, "delay", "delay")
        if draft.repeat is not None:
            raise _missing(config, "repeat", "delay")
    if draft.lane is not None and not features.lanes:
        raise _missing(config, "lane", "lanes")
    size = len(draft.data)
    if size * 4 > config.max_payload:
        size = len(draft.data.encode()) if isinstance(draft.data, str) else size
        if size > config.max_payload:
            raise PayloadTooLarge(
                f"the data has {size} bytes, tube {config.name!r} takes at most {config.max_payload}; "
                "put it elsewhere and its address in the task, or alter max_payload"
            )
    if isinstance(draft.data, bytes) != (config.payload == "bytes"):
        raise UsageError(f"tube {config.name!r} takes {config.payload} payloads")


def _missing(config: TubeConfig, option: str, feature: str) -> UsageError:
    return UsageError(
        f"option {option!r} needs the feature {feature!r}, which tube {config.name!r} of kind {config.kind!r} lacks"
    )


def _conflict(tube: TubeStore, draft: Draft, other: Record, now: int) -> Placed:
    if draft.on_conflict == "ignore":
        return Placed(other, "existing")
    if draft.on_conflict == "restart":
        if other.state in (State.READY, State.TAKEN):
            return Placed(other, "existing")
        return Placed(tube.save([rules.restart(other, now)]), "restarted")
    if draft.on_conflict == "replace" and other.state != State.TAKEN:
        return Placed(tube.save([rules.replaced(tube.config, other, draft, now)]), "replaced")
    raise DuplicateKey(
        f"a {other.state} task of tube {tube.config.name!r} has the key {draft.key!r}; "
        "on_conflict= ignore, replace or restart says what to do then"
    )


def _new_id(tube: TubeStore, draft: Draft, now: int) -> tuple[TaskId, int]:
    mode = tube.config.id
    if mode in ("required", "function"):
        if draft.id is None:
            raise UsageError(f"tube {tube.config.name!r} has id={mode!r}: every put needs an id=")
        if tube.find(draft.id) is not None:
            raise DuplicateKey(f"tube {tube.config.name!r} has a task with the id {draft.id!r}")
        return draft.id, tube.next_seq()
    if draft.id is not None:
        raise UsageError(f"tube {tube.config.name!r} makes its ids itself (id={mode!r}), so put takes none")
    if mode == "uuid":
        return str(uuid.uuid4()), tube.next_seq()
    seq = tube.next_seq(at_least=now * 1000 if mode == "time64" else 0)
    return seq, seq


def take(tx: Transaction, op: ops.Take, now: int) -> list[Record] | None:
    tube = tx.tube(op.tube)
    check_take(tube.config, op)
    tube.settle(now)
    granted: list[Record] = []
    session = 0
    while len(granted) < op.n and (record := tube.candidate(op.lane, now)) is not None:
        session = session or tx.join(op.session, now).number
        granted.append(tube.save([rules.take(record, now, session, tube.next_token(), op.ttr)]))
    if not granted and op.drain and is_drained(tube):
        return None
    return granted


def check_take(config: TubeConfig, op: ops.Take) -> None:
    if op.ttr is not None and not config.features.ttr:
        raise _missing(config, "ttr", "ttr")
    if op.lane is not None and not config.features.lanes:
        raise _missing(config, "lane", "lanes")


def is_drained(tube: TubeStore) -> bool:
    """True when no task is READY, DELAYED or TAKEN, so a take could wait for ever."""
    return not any(tube.counters.rows(state) for state in (State.READY, State.DELAYED, State.TAKEN))


def ack(tx: Transaction, op: ops.Ack, now: int) -> list[Record | PenstockError]:
    tube = tx.tube(op.tube)
    results: list[Record | PenstockError] = []
    for item in op.items:
        try:
            record = leased(tx, tube, item.lease, op.session, now)
            record = _updated(tube, record, item.update)
            results.append(tube.save(rules.ack(tube.config, record, now, item.result, item.keep)))
        except PenstockError as error:
            results.append(error)
    return results


def leased(tx: Transaction, tube: TubeStore, lease: ops.Lease, session: Session, now: int) -> Record:
    """The task of a lease, or the error that says why it is not the caller's. [rule 6]"""
    record = tube.settled(tube.find(lease.id), now)
    holder = tx.holder(session.uuid)
    owned = record is not None and record.state == State.TAKEN and holder and record.session == holder.number
    if lease.token is not None:
        if record is None or not owned or record.token != lease.token:
            raise _lost(record, lease.id)
        return record
    if record is None:
        raise _not_found(tube, lease.id)
    if record.state != State.TAKEN:
        raise NotTaken(f"task {record.id!r} is {record.state}, nobody holds it; take it first")
    if not owned:
        owner = tx.holder_name(record.session) or "a session that is gone"
        raise NotOwner(f"task {record.id!r} is held by {owner}", owner)
    return record


def _lost(record: Record | None, task_id: TaskId) -> LeaseLost:
    if record is None:
        return LeaseLost(f"the lease of task {task_id!r} is over and the task is gone", "gone")
    now = {State.TAKEN: "taken", State.DONE: "finished"}.get(State(record.state), "waiting")
    what = {"taken": "another run holds it", "finished": "it is finished", "waiting": f"it is {record.state}"}[now]
    return LeaseLost(f"the lease of task {task_id!r} is over: {what}; stop working on it", now)


def _not_found(tube: TubeStore, task_id: TaskId) -> TaskNotFound:
    return TaskNotFound(f"tube {tube.config.name!r} has no task with the id {task_id!r}")


def _updated(tube: TubeStore, record: Record, update: Any) -> Record:
    """Other columns of an adopted table, changed in the same transaction."""
    if update is None:
        return record
    return tube.change_columns(record, update)


def release(tx: Transaction, op: ops.Release, now: int) -> Record:
    tube = tx.tube(op.tube)
    config = tube.config
    check_delay(config, op.delay)
    if op.pri is not None and not config.features.pri:
        raise _missing(config, "pri", "pri")
    if op.ttl is not None and not config.features.ttl:
        raise _missing(config, "ttl", "ttl")
    if op.data is not None:
        check_draft(config, Draft(op.data))
    record = _updated(tube, leased(tx, tube, op.lease, op.session, now), op.update)
    changes = rules.release(
        config,
        record,
        now,
        delay=resolve(op.delay, now),
        pri=op.pri,
        ttl=op.ttl,
        data=op.data,
        refund=op.refund,
    )
    return tube.save(changes)


def check_delay(config: TubeConfig, delay: Delay | None) -> None:
    if delay is not None and not config.features.delay:
        raise _missing(config, "delay", "delay")


def bury(tx: Transaction, op: ops.Bury, now: int) -> Record:
    tube = tx.tube(op.tube)
    if op.lease.token is None:
        record = _existing(tube, op.lease.id, now)
        if record.state == State.BURIED:
            return record
        if record.state == State.DONE:
            raise WrongState(f"task {record.id!r} is done; restart it before it can be buried")
        if record.state != State.TAKEN:
            return tube.save(rules.bury(tube.config, _updated(tube, record, op.update), now, op.error))
    record = _updated(tube, leased(tx, tube, op.lease, op.session, now), op.update)
    return tube.save(rules.bury(tube.config, record, now, op.error))


def fail(tx: Transaction, op: ops.Fail, now: int) -> Record:
    tube = tx.tube(op.tube)
    check_delay(tube.config, op.delay)
    record = leased(tx, tube, op.lease, op.session, now)
    delay = None if op.delay is None else resolve(op.delay, now)
    return tube.save(rules.fail(tube.config, record, now, op.error, delay=delay, abort=op.abort))


def touch(tx: Transaction, op: ops.Touch, now: int) -> Record:
    tube = tx.tube(op.tube)
    if not tube.config.features.ttr:
        raise _missing(tube.config, "touch", "ttr")
    if op.lease.token is not None:
        record = leased(tx, tube, op.lease, op.session, now)
    else:
        record = _existing(tube, op.lease.id, now)
        if record.state == State.TAKEN:
            record = leased(tx, tube, op.lease, op.session, now)
    changes = rules.touch(record, now, op.by)
    return tube.save(changes) if changes else record


def peek(tx: Transaction, op: ops.Peek, now: int) -> Record:
    return _existing(tx.tube(op.tube), op.id, now)


def _existing(tube: TubeStore, task_id: TaskId, now: int) -> Record:
    record = tube.settled(tube.find(task_id), now)
    if record is None:
        raise _not_found(tube, task_id)
    return record


def watch(tx: Transaction, op: ops.Watch, now: int) -> Record:
    tube = tx.tube(op.tube)
    record = _existing(tube, op.id, now)
    if record.state in LIVE and (record.watched_until is None or record.watched_until < op.until):
        watched = record._replace(watched_until=op.until)
        tube.update(record, watched, now)
        return watched
    return record


def kick(tx: Transaction, op: ops.Kick, now: int) -> int:
    tube = tx.tube(op.tube)
    check_delay(tube.config, op.delay)
    _check_ttl(tube.config, op.ttl)
    tube.settle(now)
    records = tube.buried(op.n)
    for record in records:
        updated = _updated(tube, record, op.update)
        tube.save([rules.revive(updated, now, resolve(op.delay, now), op.ttl)])
    return len(records)


def _check_ttl(config: TubeConfig, ttl: int | None) -> None:
    if ttl is not None and not config.features.ttl:
        raise _missing(config, "ttl", "ttl")


def dig(tx: Transaction, op: ops.Dig, now: int) -> Record:
    tube = tx.tube(op.tube)
    check_delay(tube.config, op.delay)
    _check_ttl(tube.config, op.ttl)
    record = _existing(tube, op.id, now)
    if record.state != State.BURIED:
        raise WrongState(f"task {record.id!r} is {record.state}; only a buried task can be dug out")
    record = _updated(tube, record, op.update)
    return tube.save([rules.revive(record, now, resolve(op.delay, now), op.ttl)])


def delete(tx: Transaction, op: ops.Delete, now: int) -> Record:
    tube = tx.tube(op.tube)
    return tube.save([rules.delete(_existing(tube, op.id, now), now)])


def release_all(tx: Transaction, op: ops.ReleaseAll, now: int) -> int:
    tube = tx.tube(op.tube)
    tube.settle(now)
    records = sorted(tube.taken(), key=lambda record: record.seq)
    for record in records:
        tube.save(rules.release(tube.config, record, now))
    return len(records)


def snatch(tx: Transaction, op: ops.Snatch, now: int) -> Record:
    tube = tx.tube(op.tube)
    check_delay(tube.config, op.delay)
    record = _existing(tube, op.id, now)
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
    record = _existing(tube, op.id, now)
    if record.state == State.TAKEN:
        raise WrongState(f"task {record.id!r} is taken; snatch it first")
    changes = rules.switch(tube.config, record, now, op.state, resolve(op.delay, now))
    return tube.save(changes) if changes else record


def restart(tx: Transaction, op: ops.Restart, now: int) -> Record:
    tube = tx.tube(op.tube)
    check_delay(tube.config, op.delay)
    record = _existing(tube, op.id, now)
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
        record = _existing(tube, op.id, now)
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
    for record in tube.exhausted():
        if record.state == State.DONE and record.key is not None and tube.find_key(record.key) is not None:
            continue
        tube.save([rules.add_retries(record, now, op.n)])
        number += 1
    return number


def list_tasks(tx: Transaction, op: ops.ListTasks, now: int) -> list[Record]:
    tube = tx.tube(op.tube)
    tube.settle(now)
    return tube.page(op.state, op.limit, op.after)


# -- lanes and counters --------------------------------------------------------------------------------


def configure_lane(tx: Transaction, op: ops.ConfigureLane, now: int) -> LaneLimits:
    tube = tx.tube(op.tube)
    if not tube.config.features.lanes:
        raise _missing(tube.config, "lane", "lanes")
    tube.settle(now)
    limits = tube.configure_lane(op.lane, op.options, now)
    tx.touched.add(op.tube)
    return limits


def list_lanes(tx: Transaction, op: ops.ListLanes, now: int) -> list[LaneInfo]:
    tube = tx.tube(op.tube)
    if not tube.config.features.lanes:
        raise _missing(tube.config, "lanes", "lanes")
    tube.settle(now)
    return tube.lanes(op.limit, op.after, now)


def get_statistics(tx: Transaction, op: ops.GetStatistics, now: int) -> dict[str, Statistics]:
    names = sorted(tx.tube_names()) if op.tube is None else [op.tube]
    result = {}
    for name in names:
        tube = tx.tube(name)
        tube.settle(now)
        result[name] = tube.counters.statistics()
    return result


def read_history(tx: Transaction, op: ops.ReadHistory, now: int) -> list[HistoryRow]:
    return tx.history(op.tube, op.after, op.limit)


# -- sessions and time ---------------------------------------------------------------------------------


def open_session(tx: Transaction, op: ops.OpenSession, now: int) -> None:
    tx.save_holder(op.session, now + op.session.ttl, 1)


def identify(tx: Transaction, op: ops.Identify, now: int) -> Session:
    holder = tx.holder(op.uuid)
    if holder is None:
        raise SessionExpired("no session with this uuid lives: it is unknown or has ended")
    if op.uuid == op.leave.uuid:
        return holder.session
    tx.save_holder(holder.session, max(holder.expires_at, now + holder.session.ttl), holder.attached + 1)
    left = tx.holder(op.leave.uuid)
    if left is not None:
        tx.save_holder(left.session, now + left.session.ttl, max(0, left.attached - 1))
    return holder.session


def keep_alive(tx: Transaction, op: ops.KeepAlive, now: int) -> list[int]:
    holder = tx.join(op.session, now)
    until = now + op.session.ttl if op.until is None else op.until
    tx.save_holder(op.session, max(until, holder.expires_at), holder.attached)
    return [
        record.token
        for name in tx.tube_names()
        if tx.tube(name).counters.rows(State.TAKEN)
        for record in tx.tube(name).taken(holder.number)
        if record.cancel_asked and record.token is not None
    ]


def end_session(tx: Transaction, op: ops.EndSession, now: int) -> int:
    holder = tx.holder(op.session.uuid)
    if holder is None:
        return 0
    if holder.attached > 1:
        tx.save_holder(holder.session, holder.expires_at, holder.attached - 1)
        return 0
    return close_session(tx, holder.number, now, lambda: tx.forget_holder(holder))


def close_session(tx: Transaction, number: int, now: int, forget: Callable[[], None]) -> int:
    """close() gives tasks back as release does: attempts that ran out do not bury them. [rule 7]"""
    given_back = 0
    for name in tx.tube_names():
        tube = tx.tube(name)
        for record in sorted(tube.taken(number), key=lambda record: record.seq):
            if (held := tube.settled(record, now)) and held.state == State.TAKEN:
                tube.save(rules.release(tube.config, held, now))
                given_back += 1
    forget()
    return given_back


def tick(tx: Transaction, op: ops.Tick, now: int) -> int | None:
    moments = [tx.next_session_end()]
    for name in tx.tube_names():
        tube = tx.tube(name)
        tube.settle(now)
        moments.append(tube.next_due)
    known = [moment for moment in moments if moment is not None and moment < FOREVER * 100]
    return min(known, default=None)


def get_state(tx: Transaction, op: ops.GetState, now: int) -> str:
    return "RUNNING"


Verb = Callable[[Any, Any, int], Any]
VERBS: dict[type[ops.Op[Any]], Verb] = {
    ops.CreateTube: create_tube,
    ops.GetTube: get_tube,
    ops.ListTubes: list_tubes,
    ops.AlterTube: alter_tube,
    ops.PauseTube: pause_tube,
    ops.TruncateTube: truncate_tube,
    ops.DropTube: drop_tube,
    ops.AdoptTable: adopt_table,
    ops.Put: put,
    ops.Take: take,
    ops.Ack: ack,
    ops.Release: release,
    ops.Bury: bury,
    ops.Fail: fail,
    ops.Touch: touch,
    ops.Peek: peek,
    ops.Watch: watch,
    ops.Kick: kick,
    ops.Dig: dig,
    ops.Delete: delete,
    ops.ReleaseAll: release_all,
    ops.Snatch: snatch,
    ops.Switch: switch,
    ops.Restart: restart,
    ops.Cancel: cancel,
    ops.AddRetries: add_retries,
    ops.ListTasks: list_tasks,
    ops.ConfigureLane: configure_lane,
    ops.ListLanes: list_lanes,
    ops.GetStatistics: get_statistics,
    ops.ReadHistory: read_history,
    ops.OpenSession: open_session,
    ops.Identify: identify,
    ops.KeepAlive: keep_alive,
    ops.EndSession: end_session,
    ops.Tick: tick,
    ops.GetState: get_state,
}


__all__ = ["VERBS", "Change", "execute"]
