"""Ops of many callers that met in one transaction, performed as few larger ones.

They came at the same time, so their order among each other is free: all puts of a tube become one put, all
takes one take, all acks one ack, and the answers are dealt out again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from penstock.model import ops

Perform = Callable[[ops.Op[Any]], Any]
Crowd = Callable[[Sequence[Any]], list[Any] | None]
"""Performs takes or acks of several sessions together; None: they have to be performed by session."""


def perform(requests: Sequence[ops.Op[Any]], one: Perform, crowd: Crowd) -> list[Any]:
    """The answers of all ops, in their order."""
    answers: list[Any] = [None] * len(requests)
    groups: dict[Hashable, list[int]] = {}
    for index, op in enumerate(requests):
        kind = type(op)
        key: Hashable = index
        if kind is ops.Put or kind is ops.Ack:
            key = (kind, op.tube)  # type: ignore[attr-defined]
        elif type(op) is ops.Take and op.lane is None and not op.drain:
            key = (kind, op.tube, op.ttr)
        if key in groups:
            groups[key].append(index)
        else:
            groups[key] = [index]
    for indexes in groups.values():
        if len(indexes) == 1:
            answers[indexes[0]] = one(requests[indexes[0]])
            continue
        for index, answer in zip(indexes, _together([requests[i] for i in indexes], one, crowd), strict=True):
            answers[index] = answer
    return answers


def _together(batch: list[Any], one: Perform, crowd: Crowd) -> list[Any]:
    """Answers of ops that differ in who asks."""
    if type(batch[0]) is ops.Put:
        return _merged(batch, one)
    sessions = {op.session.uuid for op in batch}
    if len(sessions) == 1:
        return _merged(batch, one)
    return crowd(batch) or _by_session(batch, one)


def _by_session(batch: list[Any], one: Perform) -> list[Any]:
    sessions: dict[str, list[int]] = {}
    for index, op in enumerate(batch):
        sessions.setdefault(op.session.uuid, []).append(index)
    answers: list[Any] = [None] * len(batch)
    for indexes in sessions.values():
        own = [batch[index] for index in indexes]
        for index, answer in zip(indexes, [one(own[0])] if len(own) == 1 else _merged(own, one), strict=True):
            answers[index] = answer
    return answers


def _merged(batch: list[Any], one: Perform) -> list[Any]:
    first = batch[0]
    if type(first) is ops.Put:
        sizes = [len(op.drafts) for op in batch]
        answer = one(ops.Put(first.tube, tuple(draft for op in batch for draft in op.drafts)))
    elif type(first) is ops.Ack:
        sizes = [len(op.items) for op in batch]
        answer = one(ops.Ack(first.tube, tuple(item for op in batch for item in op.items), first.session))
    else:
        sizes = [op.n for op in batch]
        answer = one(ops.Take(first.tube, sum(sizes), first.session, first.ttr))
    if isinstance(answer, Exception):
        return [answer] * len(batch)
    if type(first) is not ops.Take and sizes.count(1) == len(sizes):
        return [[item] for item in answer]
    results, start = [], 0
    for size in sizes:
        results.append(answer[start : start + size])
        start += size
    return results
