"""What a lake says, and what it must say, worked out from the history in plain Python."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pyarrow.parquet as pq
from tests.spark.lives import attempts_of, lives_of

from penstock.history import HistoryEvent
from penstock.pipeline import bronze, silver
from penstock.pipeline.lake import Lake


def rows(frame: Any, *order: str) -> list[dict[str, Any]]:
    """The rows of a DataFrame, with moments in UTC."""
    found = [row.asDict(recursive=True) for row in frame.collect()]
    for row in found:
        for name, value in row.items():
            if hasattr(value, "tzinfo"):
                row[name] = value.astimezone(UTC)
    return sorted(found, key=lambda row: tuple(str(row[name]) for name in order))


def stored(lake: Lake, table: str) -> list[dict[str, Any]]:
    """The rows of a table, read without Spark."""
    paths = (lake.root / path for path in lake.snapshot().paths(table))
    files = [file for path in paths for file in (path.rglob("*.parquet") if path.is_dir() else [path])]
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def check(spark: Any, lake: Lake, events: list[HistoryEvent]) -> None:
    """The lake says what the history does."""
    snapshot = lake.snapshot()
    wanted = sorted(lives_of(events), key=lambda life: str(life["first"]))
    found = rows(silver.lives(spark, lake, snapshot), "first")
    for life in (*wanted, *found):
        life.update({name: None if life[name] is None else round(life[name], 6) for name in ("waited", "ran")})
    assert found == wanted
    named = ("seq", "tube", "task_id", "ready_at", "taken_at", "ended_at", "how", "state")
    attempts = [tuple(row[name] for name in named) for row in rows(silver.attempts(spark, lake, snapshot))]
    assert sorted(attempts) == attempts_of(events)
    assert sorted(row["seq"] for row in stored(lake, bronze.TABLE)) == [event.seq for event in events]
