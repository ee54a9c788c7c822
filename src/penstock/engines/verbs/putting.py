"""Putting tasks."""

from __future__ import annotations

import uuid

from penstock.engines.transaction import Transaction, TubeStore
from penstock.engines.verbs.checks import missing
from penstock.model import ops, rules
from penstock.model.errors import DuplicateKey, PayloadTooLarge, PenstockError, TubeFull, UsageError
from penstock.model.state import State
from penstock.model.task import Draft, Placed, Record, TaskId
from penstock.model.tube import TubeConfig


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


def load(tx: Transaction, op: ops.Load, now: int) -> list[PenstockError]:
    placed = put(tx, ops.Put(op.tube, tuple(op.drafts())), now)
    return [answer for answer in placed if isinstance(answer, PenstockError)]


def put_one(tube: TubeStore, draft: Draft, now: int) -> Placed:
    check_draft(tube.config, draft)
    check_id(tube.config, draft)
    if draft.put_id is not None and (same := tube.settled(tube.find_put_id(draft.put_id), now)):
        return Placed(same, "existing")
    if draft.key is not None and (other := tube.settled(tube.find_key(draft.key), now)):
        return _conflict(tube, draft, other, now)
    if draft.id is not None and tube.find(draft.id) is not None:
        raise DuplicateKey(f"tube {tube.config.name!r} has a task with the id {draft.id!r}")
    capacity = tube.config.capacity
    if capacity is not None and tube.counters.live() >= capacity:
        raise full(tube.config)
    task_id, seq = _new_id(tube, draft, now)
    return Placed(tube.save([rules.put(tube.config, draft, now, seq, task_id)]), "new")


def check_draft(config: TubeConfig, draft: Draft) -> None:
    """Options the tube has no feature for, and data that is too long."""
    features = config.features
    if draft.pri is not None and not features.pri:
        raise missing(config, "pri", "pri")
    if draft.ttl is not None and not features.ttl:
        raise missing(config, "ttl", "ttl")
    if draft.ttr is not None and not features.ttr:
        raise missing(config, "ttr", "ttr")
    if not features.delay:
        if draft.delay is not None:
            raise missing(config, "delay", "delay")
        if draft.repeat is not None:
            raise missing(config, "repeat", "delay")
    if draft.lane is not None and not features.lanes:
        raise missing(config, "lane", "lanes")
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


def _conflict(tube: TubeStore, draft: Draft, other: Record, now: int) -> Placed:
    if draft.on_conflict == "ignore":
        return Placed(other, "existing")
    if draft.on_conflict == "restart":
        if other.state in (State.READY, State.TAKEN):
            return Placed(other, "existing")
        return Placed(tube.save([rules.restart(other, now)]), "restarted")
    if draft.on_conflict == "replace" and other.state != State.TAKEN:
        return Placed(tube.save([rules.replaced(tube.config, other, draft, now)]), "replaced")
    raise duplicate(tube.config, other.state, draft.key)


def duplicate(config: TubeConfig, state: str, key: str | None) -> DuplicateKey:
    """The refusal of a key that a live task has."""
    return DuplicateKey(
        f"a {state} task of tube {config.name!r} has the key {key!r}; "
        "on_conflict= ignore, replace or restart says what to do then"
    )


def full(config: TubeConfig) -> TubeFull:
    """The refusal of a task for which there is no room."""
    return TubeFull(f"tube {config.name!r} holds its capacity of {config.capacity} tasks; finish some or wait")


def check_id(config: TubeConfig, draft: Draft) -> None:
    needed = config.id in ("required", "function")
    if needed and draft.id is None:
        raise UsageError(f"tube {config.name!r} has id={config.id!r}: every put needs an id=")
    if draft.id is not None and not needed:
        raise UsageError(f"tube {config.name!r} makes its ids itself (id={config.id!r}), so put takes none")


def _new_id(tube: TubeStore, draft: Draft, now: int) -> tuple[TaskId, int]:
    mode = tube.config.id
    if draft.id is not None:
        return draft.id, tube.next_seq()
    if mode == "uuid":
        return str(uuid.uuid4()), tube.next_seq()
    seq = tube.next_seq(at_least=now * 1000 if mode == "time64" else 0)
    return seq, seq
