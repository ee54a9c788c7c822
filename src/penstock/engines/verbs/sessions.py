"""Sessions and time."""

from __future__ import annotations

from penstock.engines.transaction import Transaction
from penstock.model import ops, rules
from penstock.model.duration import FOREVER
from penstock.model.errors import SessionExpired
from penstock.model.session import Session
from penstock.model.state import State


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
    if op.session.ttl >= holder.session.ttl:
        until = max(until, holder.expires_at)
    tx.save_holder(op.session, until, holder.attached)
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
    # close() gives tasks back as release does: attempts that ran out do not bury them. [rule 7]
    given_back = 0
    for name in tx.tube_names():
        tube = tx.tube(name)
        for record in sorted(tube.taken(holder.number), key=lambda record: record.seq):
            if (held := tube.settled(record, now)) and held.state == State.TAKEN:
                tube.give_back(rules.release(tube.config, held, now))
                given_back += 1
    tx.forget_holder(holder)
    return given_back


def list_leases(tx: Transaction, op: ops.ListLeases, now: int) -> list[ops.Held]:
    holder = tx.holder(op.session.uuid)
    if holder is None or (op.here is not None and holder.attached > op.here):
        return []
    return [
        ops.Held(name, held.id, held.token)
        for name in sorted(tx.tube_names())
        for record in sorted(tx.tube(name).taken(holder.number), key=lambda record: record.seq)
        if (held := tx.tube(name).settled(record, now)) and held.state == State.TAKEN and held.token is not None
    ]


def tick(tx: Transaction, op: ops.Tick, now: int) -> int | None:
    moments: list[int | None] = [h.expires_at for h in tx.holders() if h.session.ttl < FOREVER]
    for name in tx.tube_names():
        tube = tx.tube(name)
        tube.settle(now)
        moments.append(tube.next_due)
    return min((moment for moment in moments if moment is not None), default=None)


def get_state(tx: Transaction, op: ops.GetState, now: int) -> str:
    return "RUNNING"


def get_moment(tx: Transaction, op: ops.GetMoment, now: int) -> int:
    return now
