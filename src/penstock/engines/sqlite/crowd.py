"""Takes and acks of several sessions at once, in as few statements as those of one.

The connections of a server are sessions of their own and ask at the same time. Answers None, like the functions of
fast.py, when the case is not an ordinary one; then each session is seen to by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.engines import verbs
from penstock.engines.sqlite import fast
from penstock.engines.sqlite.transaction import SqliteTransaction
from penstock.model import ops
from penstock.model.errors import PenstockError

Answers = list[Any]


def perform(tx: SqliteTransaction, batch: Sequence[Any], now: int) -> Answers | None:
    """The answers to takes, or to acks, of one tube."""
    if tx.first_end <= now:
        tx.settle_sessions(now)
    try:
        return take(tx, batch, now) if type(batch[0]) is ops.Take else ack(tx, batch, now)
    except PenstockError:
        return None  # for one of them; who it is comes out when each is asked by itself


def take(tx: SqliteTransaction, batch: Sequence[ops.Take], now: int) -> Answers | None:
    """Tasks in the order of the line for takers in the order they came; all of them ask for the same time."""
    tube = fast.ordinary(tx, batch[0].tube)
    if tube is None or tube.config.features.lanes:
        return None
    verbs.check_take(tube.config, batch[0])  # the others differ in who they are and how much they take
    wanted = fast.room(tube, sum([op.n for op in batch]), now)
    if wanted <= 0:
        return [[] for _ in batch]
    rows = tube.database.execute(tube.sql["candidates"], (wanted,)).fetchall()
    numbers: list[int] = []
    for op in batch:
        if len(numbers) >= len(rows):
            break
        number = (tx.holder(op.session.uuid) or tx.join(op.session, now)).number
        numbers += [number] * min(op.n, len(rows) - len(numbers))
    records = fast.grant(tube, rows, numbers, now, batch[0].ttr)
    answers: Answers = []
    start = 0
    for op in batch:
        answers.append(records[start : start + op.n])
        start += op.n
    return answers


def ack(tx: SqliteTransaction, batch: Sequence[ops.Ack], now: int) -> Answers | None:
    """Every task that its session holds is done; the others are refused one by one."""
    tube = fast.ordinary(tx, batch[0].tube)
    if tube is None or tube.config.keep:
        return None
    ids = fast.plain_ids([item for op in batch for item in op.items])
    if ids is None:
        return None
    leases = fast.found(tube, ids)
    acked: list[tuple[Any, ...]] = []
    answers: Answers = [fast.finish(tx, tube, op, leases, now, acked) for op in batch]
    fast.account(tx, tube, acked)
    return answers
