"""From a grant to the end of a lease."""

from __future__ import annotations

from penstock.engines.transaction import Transaction, TubeStore
from penstock.engines.verbs.checks import check_delay, existing, leased, missing, with_update
from penstock.engines.verbs.putting import check_draft
from penstock.model import ops, rules
from penstock.model.duration import resolve
from penstock.model.errors import PenstockError, WrongState
from penstock.model.state import State
from penstock.model.task import Draft, Record
from penstock.model.tube import TubeConfig


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
        raise missing(config, "ttr", "ttr")
    if op.lane is not None and not config.features.lanes:
        raise missing(config, "lane", "lanes")


def is_drained(tube: TubeStore) -> bool:
    """True when no task is READY, DELAYED or TAKEN, so a take could wait for ever."""
    return not any(tube.counters.rows(state) for state in (State.READY, State.DELAYED, State.TAKEN))


def ack(tx: Transaction, op: ops.Ack, now: int) -> list[Record | PenstockError]:
    tube = tx.tube(op.tube)
    results: list[Record | PenstockError] = []
    for item in op.items:
        try:
            record = leased(tx, tube, item.lease, op.session, now)
            record = with_update(tube, record, item.update)
            results.append(tube.save(rules.ack(tube.config, record, now, item.result, item.keep)))
        except PenstockError as error:
            results.append(error)
    return results


def release(tx: Transaction, op: ops.Release, now: int) -> Record:
    tube = tx.tube(op.tube)
    config = tube.config
    check_delay(config, op.delay)
    if op.pri is not None and not config.features.pri:
        raise missing(config, "pri", "pri")
    if op.ttl is not None and not config.features.ttl:
        raise missing(config, "ttl", "ttl")
    if op.data is not None:
        check_draft(config, Draft(op.data))
    record = with_update(tube, leased(tx, tube, op.lease, op.session, now), op.update)
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


def bury(tx: Transaction, op: ops.Bury, now: int) -> Record:
    tube = tx.tube(op.tube)
    if op.lease.token is None:
        record = existing(tube, op.lease.id, now)
        if record.state == State.BURIED:
            return record
        if record.state == State.DONE:
            raise WrongState(f"task {record.id!r} is done; restart it before it can be buried")
        if record.state != State.TAKEN:
            return tube.save(rules.bury(tube.config, with_update(tube, record, op.update), now, op.error))
    record = with_update(tube, leased(tx, tube, op.lease, op.session, now), op.update)
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
        raise missing(tube.config, "touch", "ttr")
    if op.lease.token is not None:
        record = leased(tx, tube, op.lease, op.session, now)
    else:
        record = existing(tube, op.lease.id, now)
        if record.state == State.TAKEN:
            record = leased(tx, tube, op.lease, op.session, now)
    changes = rules.touch(record, now, op.by)
    return tube.save(changes) if changes else record
