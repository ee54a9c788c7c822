"""Takes whose callers have gone: what they were granted goes back as though it had not been offered. [rule 15]

What goes back is said here, once. Who sends it does so in its own way: an engine at once, a loop when it can, a server
with what its clients ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.model import ops
from penstock.model.session import Session


class Grant(NamedTuple):
    """Tasks of one tube that a take was granted."""

    tube: str
    session: Session
    leases: tuple[ops.Lease, ...]


def grants(requests: Sequence[ops.Op[Any]], answers: Sequence[Any]) -> list[Grant]:
    """What some ops were granted; an answer has records, or leases."""
    return [
        Grant(op.tube, op.session, tuple([ops.Lease(held.id, held.token) for held in answer]))
        for op, answer in zip(requests, answers, strict=True)
        if type(op) is ops.Take and type(answer) is list and answer
    ]


def refunds(granted: Iterable[Grant]) -> list[ops.Release]:
    """Ops that give it back. Done twice they do no harm: a lease that has ended is refused."""
    return [ops.Release(tube, lease, session, refund=True) for tube, session, leases in granted for lease in leases]
