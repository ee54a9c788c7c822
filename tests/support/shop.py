"""A user's own database beside the queue: plain SQL on a connection of his."""

from __future__ import annotations

from typing import Any

import apsw
from tests.support.engines import Bench

ALL_FIELDS = {"status": "status", "run_at": "due", "priority": "prio", "lane": "branch", "attempts": "tries"}
TIMED = {"delayed": True, "ttl": True, "ttr": True}
ORDERS = """
CREATE TABLE orders (
    id     INTEGER PRIMARY KEY,
    status TEXT,
    due    REAL,
    prio   INTEGER,
    branch TEXT,
    tries  INTEGER,
    item   TEXT,
    amount INTEGER DEFAULT 1
)
"""


class Shop:
    """A queue, and the user's connection to the same file."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.q: Any = bench.connect()
        self.connection = apsw.Connection(bench.url)
        self.connection.set_busy_timeout(10_000)

    def sql(self, text: str, values: Any = ()) -> list[Any]:
        return self.connection.execute(text, values).fetchall()

    def orders(
        self, features: dict[str, Any] | None = None, fields: dict[str, str] | None = None, **options: Any
    ) -> Any:
        """The table of orders, made if it is not there, as the tube "orders"."""
        if not self.sql("SELECT 1 FROM sqlite_schema WHERE name = 'orders'"):
            self.sql(ORDERS)
        chosen = {"id": "auto_increment", **TIMED} if features is None else features
        return self.q.adopt("orders", table="orders", fields=fields or ALL_FIELDS, features=chosen, **options)

    def row(self, row_id: Any, columns: str = "status", table: str = "orders") -> Any:
        """Columns of one row of the user's table; a single one without its tuple, None if there is no row."""
        rows = self.sql(f"SELECT {columns} FROM {table} WHERE id = ?", (row_id,))  # noqa: S608
        if not rows:
            return None
        return rows[0] if len(rows[0]) > 1 else rows[0][0]

    def letters(self, table: str = "orders", column: str = "status") -> dict[str, int]:
        """How many rows have each letter."""
        return dict(self.sql(f'SELECT "{column}", count(*) FROM "{table}" GROUP BY 1'))  # noqa: S608

    def counted(self, tube: Any) -> dict[str, int]:
        """The tube's counters as letters, Z and D together; states without tasks are left out."""
        tasks = tube.statistics().tasks
        names = {"R": "ready", "T": "taken", "W": "delayed", "B": "buried", "ZD": "kept"}
        return {letter: tasks[name] for letter, name in names.items() if tasks[name]}

    def shown(self, table: str = "orders", column: str = "status") -> dict[str, int]:
        """The rows of the user's table as `counted` gives them; other letters are none of ours."""
        rows: dict[str, int] = {}
        for letter, number in self.letters(table, column).items():
            name = "ZD" if letter in ("Z", "D") else letter
            if name in ("R", "T", "W", "B", "ZD"):
                rows[name] = rows.get(name, 0) + number
        return rows

    def close(self) -> None:
        self.connection.close()
