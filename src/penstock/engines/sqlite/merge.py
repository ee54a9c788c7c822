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
        key = _group(op, index)
        if key in groups:
            groups[key].append(index)
        else:
            groups[key] = [index]
    for indexes in groups.values():
        batch = [requests[index] for index in indexes]
        results = [one(batch[0])] if len(batch) == 1 else _together(batch, one, crowd)
        for index, result in zip(indexes, results, strict=True):
            answers[index] = result
    return answers


def _group(op: ops.Op[Any], index: int) -> Hashable:
    if type(op) is ops.Put:
        return (ops.Put, op.tube)
    if type(op) is ops.Take and op.lane is None and not op.drain:
        return (ops.Take, op.tube, op.ttr)
    if type(op) is ops.Ack:
        return (ops.Ack, op.tube)
    return index


def _together(batch: list[Any], one: Perform, crowd: Crowd) -> list[Any]:
    """Answers of ops that differ in who asks."""
    if type(batch[0]) is ops.Put:
        return _merged(batch, one)
    sessions: dict[str, list[int]] = {}
    for index, op in enumerate(batch):
        sessions.setdefault(op.session.uuid, []).append(index)
    if len(sessions) == 1:
        return _merged(batch, one)
    answers = crowd(batch)
    if answers is not None:
        return answers
    answers = [None] * len(batch)
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
    results, start = [], 0
    for size in sizes:
        results.append(answer[start : start + size])
        start += size
    return results
