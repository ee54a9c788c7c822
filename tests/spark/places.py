"""Stores that Spark writes to, and what must be true of them after every write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import postgres

from penstock.model import ops
from penstock.spark import jobs


class StorePlace(NamedTuple):
    name: str
    url: Callable[[Path], str]


PLACES = (
    StorePlace("sqlite", lambda path: str(path / "tasks.db")),
    StorePlace("postgres", lambda path: postgres.place()),
)


def check_put(queue: Any, expected: int, key: Callable[[Any], Any] = repr, tube: str = "jobs") -> None:
    """As many tasks as rows, none of them twice unless the rows are, and nothing left staged after cleaning."""
    engine = queue._engine
    found: Counter[Any] = Counter()
    after = None
    while page := engine.execute(ops.ListTasks(tube, limit=1000, after=after)):
        found.update(key(record.data) for record in page)
        after = page[-1].id
    assert found.total() == expected
    assert queue.tube(tube).statistics().tasks["total"] == expected
    jobs.clean(engine, older_than=0)
    assert engine.execute(ops.ListStaged()) == []


def check_once(queue: Any, expected: int, tube: str = "jobs") -> None:
    """The same for rows that are all different."""
    seen: set[str] = set()

    def key(data: str) -> str:
        assert data not in seen, f"{data} was put twice"
        seen.add(data)
        return data

    check_put(queue, expected, key, tube)
    assert len(seen) == expected
