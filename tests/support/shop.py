"""A user's own tables beside the queue: plain SQL on a connection of his, on SQLite and on PostgreSQL."""

from __future__ import annotations

import re
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
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


class Shop(ABC):
    """A queue, and the user's connection to where it is."""

    bench: Bench
    q: Any
    begin = "BEGIN"
    """How a transaction that will write begins."""

    @abstractmethod
    def sql(self, text: str, values: Any = ()) -> list[Any]:
        """A statement of the user's and its rows."""

    @abstractmethod
    def marked(self, text: str) -> str:
        """A statement with ? for values, as the driver has it."""

    @abstractmethod
    def elsewhere(self, text: str) -> None:
        """A statement from another process."""

    @abstractmethod
    def has_table(self, name: str) -> bool: ...

    @abstractmethod
    def ours(self) -> list[str]:
        """What there is of ours for tubes: tables, and triggers on the user's."""

    @abstractmethod
    def side(self) -> list[Any]:
        """The rows of the first tube's own table, and the history."""

    @abstractmethod
    def spelled(self, change: str) -> str:
        """A change of the schema that names a trigger of ours on the orders."""

    @abstractmethod
    def unseen(self) -> list[Any]:
        """Edits that are yet to be taken into account."""

    @abstractmethod
    def trigger(self, name: str, event: str, condition: str, action: str) -> None:
        """A trigger of the user's on his orders, for each row."""

    @abstractmethod
    def close(self) -> None: ...

    def fill(self, text: str, rows: Iterable[Any]) -> None:
        """A statement for each of these values."""
        for row in rows:
            self.sql(text, row)

    def orders(
        self, features: dict[str, Any] | None = None, fields: dict[str, str] | None = None, **options: Any
    ) -> Any:
        """The table of orders, made if it is not there, as the tube "orders"."""
        if not self.has_table("orders"):
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


OTHER_PROCESS = """
import contextlib, sqlite3, sys
with contextlib.closing(sqlite3.connect(sys.argv[1], timeout=60)) as connection, connection:
    connection.execute(sys.argv[2])
"""


class FileShop(Shop):
    """On SQLite: the same file."""

    begin = "BEGIN IMMEDIATE"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.q = bench.connect()
        self.connection = apsw.Connection(bench.url)
        self.connection.set_busy_timeout(10_000)

    def sql(self, text: str, values: Any = ()) -> list[Any]:
        return self.connection.execute(text, values).fetchall()

    def marked(self, text: str) -> str:
        return text

    def fill(self, text: str, rows: Iterable[Any]) -> None:
        self.connection.executemany(text, rows)

    def elsewhere(self, text: str) -> None:
        subprocess.run([sys.executable, "-c", OTHER_PROCESS, self.bench.url, text], check=True)

    def has_table(self, name: str) -> bool:
        return bool(self.sql("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)))

    def ours(self) -> list[str]:
        names = [name for (name,) in self.sql("SELECT name FROM sqlite_schema")]
        return [name for name in names if re.match(r"penstock_(tasks_)?\d", name)]

    def side(self) -> list[Any]:
        tasks = self.sql("SELECT * FROM penstock_tasks_1 WHERE seq > 0")
        return [tasks, self.sql("SELECT * FROM penstock_events")]

    def spelled(self, change: str) -> str:
        return change.format(number=1, of_table="")

    def unseen(self) -> list[Any]:
        return self.sql("SELECT * FROM penstock_edits")

    def trigger(self, name: str, event: str, condition: str, action: str) -> None:
        self.sql(f"CREATE TRIGGER {name} {event} ON orders WHEN {condition} BEGIN {action}; END")

    def close(self) -> None:
        self.connection.close()


def shop_on(bench: Bench) -> Shop:
    """The shop of a bench's engine."""
    if bench.engine.name == "sqlite":
        return FileShop(bench)
    from tests.support.store_shop import StoreShop

    return StoreShop(bench)
