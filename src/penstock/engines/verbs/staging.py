"""Staging rows, and making tasks of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.engines.transaction import Transaction, TubeStore
from penstock.engines.verbs.putting import duplicate, full, put_one
from penstock.model import ops, rules
from penstock.model.staging import Promoted, StagedJob, check_tube, lost
from penstock.model.state import State
from penstock.model.task import Draft, OnConflict

if TYPE_CHECKING:
    import pyarrow as pa


def stage(tx: Transaction, op: ops.Stage, now: int) -> int:
    from penstock.engines import staged

    rows = len(staged.read(op.rows))
    check_tube(op.job, op.tube, tx.spool.tube(op.job))
    if rows:
        tx.spool.add(op.tube, op.job, op.part, op.rows, now)
    return rows


def promote(tx: Transaction, op: ops.Promote, now: int) -> Promoted:
    from penstock.engines import staged

    tube = tx.tube(op.tube)
    found = tables(tx, op)
    for table in found:
        staged.check_fit(tube.config, staged.extent(table))
    tube.settle(now)
    _check(tube, _drafts(found, op), op.on_conflict, now)
    outcomes = Counter(put_one(tube, draft, now).outcome for draft in _drafts(found, op))
    return Promoted(outcomes["new"], outcomes["existing"], outcomes["replaced"], outcomes["restarted"])


def _drafts(found: list[pa.Table], op: ops.Promote) -> Iterator[Draft]:
    """Made one after the other, and again when they are needed again: there may be millions."""
    from penstock.engines import staged

    return (draft for table in found for draft in staged.drafts(table, op.on_conflict))


def tables(tx: Transaction, op: ops.Promote) -> list[pa.Table]:
    """What the parts of a job have staged, if that is all there."""
    from penstock.engines import staged

    check_tube(op.job, op.tube, tx.spool.tube(op.job))
    found: list[pa.Table] = []
    for part, expected in op.parts:
        portions = [staged.read(rows) for rows in tx.spool.portions(op.job, part)]
        rows = sum(map(len, portions))
        if rows != expected:
            raise lost(op.job, part, expected, rows)
        found += portions
    return found


def _check(tube: TubeStore, drafts: Iterable[Draft], on_conflict: OnConflict, now: int) -> None:
    """Refuse all if one of them would be refused: a verb raises before it writes."""
    config = tube.config
    new = 0
    seen: set[str] = set()
    for draft in drafts:
        if (draft.ttl or config.ttl) == "derived":
            rules.put(config, draft, now, 0, 0)
        new += 1
        key = draft.key
        if key is None:
            continue
        other = None if key in seen else tube.settled(tube.find_key(key), now)
        if key in seen or other is not None:
            new -= 1
            state = State.READY if other is None else State(other.state)
            if on_conflict == "error" or (on_conflict == "replace" and state == State.TAKEN):
                raise duplicate(config, state, key)
        seen.add(key)
    if config.capacity is not None and tube.counters.live() + new > config.capacity:
        raise full(config)


def discard(tx: Transaction, op: ops.Discard, now: int) -> int:
    return tx.spool.discard(op.job)


def list_staged(tx: Transaction, op: ops.ListStaged, now: int) -> list[StagedJob]:
    return tx.spool.jobs()
