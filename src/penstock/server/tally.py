"""What a server counts while it works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from penstock.model import ops


class Tally:
    """Plain numbers: each is written by one thread alone and read by any."""

    def __init__(self) -> None:
        self.performed: Counter[type[ops.Op[Any]]] = Counter()
        """Ops, by type; those of callers that wait are in `waits`."""
        self.groups = 0
        """Transactions that ops of one turn of the loop have shared."""
        self.grouped = 0
        """Ops in them."""
        self.waits: Counter[type[ops.Op[Any]]] = Counter()
        self.accepted = 0
        """Connections."""
        self.received = 0
        """Bytes."""
        self.sent = 0

    def group(self, performed: Sequence[ops.Op[Any]]) -> None:
        """A group of ops was performed."""
        self.groups += 1
        self.grouped += len(performed)
        self.performed.update(map(type, performed))
