"""Row 0 of a tube's table: what every verb needs to know and changes.

It holds the last seq, place and token, a bound of what is due next, and the counters. It is a row of the
tube's own table because it then lies on the page that take and ack change anyway: a commit writes whole
pages, and each costs more than the statement that changed it.
"""

from __future__ import annotations

import struct

from penstock.engines.sqlite.database import Database
from penstock.model.stats import Counters

_WORDS = 7
_FORMAT = struct.Struct(f"<{_WORDS + len(Counters.zero())}q")
_NEVER = -1


class Head:
    """What a transaction knows of a tube without looking at its tasks; written back once per transaction."""

    __slots__ = ("counters", "lane_rows", "mixed_pri", "next_due", "seq", "token", "token_end", "turn")

    def __init__(self, blob: bytes) -> None:
        numbers = _FORMAT.unpack(blob)
        self.seq: int = numbers[0]
        """The last seq given."""
        self.turn: int = numbers[1]
        """The last place given in the line."""
        self.token: int = numbers[2]
        """The last token granted, of the block up to token_end."""
        self.token_end: int = numbers[3]
        self.next_due: int | None = None if numbers[4] == _NEVER else numbers[4]
        """A lower bound of the next moment at which something is due."""
        self.lane_rows: int = numbers[5]
        """How many rows the tube has in lanes."""
        self.mixed_pri: int = numbers[6]
        """1 once tasks of different pri were in the tube."""
        self.counters = Counters(numbers[_WORDS:])

    @classmethod
    def fresh(cls) -> bytes:
        """The head of a tube that never held a task."""
        return _FORMAT.pack(0, 0, 0, 0, _NEVER, 0, 0, *Counters.zero())

    def pack(self) -> bytes:
        return _FORMAT.pack(
            self.seq,
            self.turn,
            self.token,
            self.token_end,
            _NEVER if self.next_due is None else self.next_due,
            self.lane_rows,
            self.mixed_pri,
            *self.counters,
        )


def load(database: Database, sql: dict[str, str]) -> Head:
    """The head of a tube as it is stored."""
    return Head(database.value(sql["load_head"]))
