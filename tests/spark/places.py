"""Stores that Spark writes to, and what must be true of them after every write."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support import postgres
from tests.support.engines import ENGINES
from tests.worker.bench import until

from penstock.model import ops
from penstock.spark import jobs

PATIENCE = 300.0


class StorePlace(NamedTuple):
    name: str
    url: Callable[[Path], str]


PLACES = (
    StorePlace("sqlite", lambda path: str(path / "tasks.db")),
    StorePlace("postgres", lambda path: postgres.place()),
)


def every_engine() -> list[Any]:
    """Parameters: the engines. Over gRPC the calls are those of the remote engine, so that one is exhaustive."""
    marks = {"grpc": pytest.mark.exhaustive}
    return [pytest.param(engine, id=engine.name, marks=marks.get(engine.name, ())) for engine in ENGINES]


def found(queue: Any, tube: str = "jobs") -> list[Any]:
    """The data of every task."""
    data, after = list[Any](), None
    while page := queue._engine.execute(ops.ListTasks(tube, limit=1000, after=after)):
        data += [json.loads(record.data) for record in page]
        after = page[-1].id
    return data


def check_put(queue: Any, expected: int, tube: str = "jobs") -> None:
    """As many tasks as rows, and nothing left staged after cleaning."""
    engine = queue._engine
    assert len(found(queue, tube)) == expected
    assert queue.tube(tube).statistics().tasks["total"] == expected

    def is_clean() -> bool:
        # Who is killed as another has won may stage his last rows when that one has committed.
        jobs.clean(engine, older_than=0)
        return not engine.execute(ops.ListStaged())

    until(is_clean, PATIENCE)


def check_once(queue: Any, expected: int | Iterable[Any], tube: str = "jobs") -> None:
    """These values, each in one task, and no others; a number is for all that are lower."""
    wanted = list(range(expected)) if isinstance(expected, int) else list(expected)
    assert Counter(map(json.dumps, found(queue, tube))) == Counter(map(json.dumps, wanted))
    check_put(queue, len(wanted), tube)
