"""Ledgers: lists of notes in the store in which every number is written once, ever.

Whoever writes a number first has decided what it stands for; everybody else is refused and reads what was decided.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.errors import DuplicateKey

MOST = (1 << 63) - 1
FORGOTTEN = "history"
"""The ledger whose last number says up to which seq events were removed."""


class Note(NamedTuple):
    """A line of a ledger."""

    number: int
    text: str


def taken(ledger: str, number: int) -> DuplicateKey:
    """The refusal of a number that somebody has written."""
    return DuplicateKey(
        f"number {number} of the ledger {ledger!r} is written already; read the ledger to see what was decided"
    )
