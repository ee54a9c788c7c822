"""The small row that every verb of a tube reads and writes."""

from __future__ import annotations

from penstock.engines.sqlite.database import Database
from penstock.engines.sqlite.statements import named
from penstock.model.stats import Counters

_SQL = named("store.sql")


class Head:
    """What a transaction knows of a tube without looking at its tasks; written back once per transaction."""

    __slots__ = ("counters", "lane_rows", "mixed_pri", "next_due", "seq", "token", "token_end", "tube", "turn")

    def __init__(self, database: Database, tube: int) -> None:
        row = database.row(_SQL["load_head"], (tube,))
        assert row is not None
        self.tube = tube
        self.seq: int = row[0]
        self.turn: int = row[1]
        self.token: int = row[2]
        self.token_end: int = row[3]
        self.next_due: int | None = row[4]
        self.lane_rows: int = row[5]
        self.mixed_pri: int = row[6]
        self.counters = Counters.unpack(row[7])

    def save(self, database: Database) -> None:
        database.execute(
            _SQL["save_head"],
            (
                self.seq,
                self.turn,
                self.token,
                self.token_end,
                self.next_due,
                self.lane_rows,
                self.mixed_pri,
                self.counters.pack(),
                self.tube,
            ),
        )
