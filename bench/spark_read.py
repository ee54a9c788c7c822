"""Reading a whole tube into Spark, beside Spark's own reader of tables."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import penstock
from bench import pg_server
from bench.cell import Bound, Cell, Figures, Subject
from bench.scale import Scale
from bench.spark_session import CORES, NO_JAR, jdbc_jar, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECTION = f"Spark on {CORES} cores, reading all columns of a tube"
PARTITIONS = 2 * CORES
JDBC = "spark.read.jdbc"
FIGURES = ("rows/s",)
PART = 50_000
FETCH = 10_000
"""Rows that JDBC asks for at a time; all of a partition if it is not told."""
NOTES = {JDBC: f"the same table and columns in as many partitions, fetchsize {FETCH:,}"}


def fill(url: str, count: int) -> None:
    """A tube with short tasks."""
    with penstock.connect(url, durability="relaxed") as queue:
        tube = queue.create_tube("bench")
        for start in range(0, count, PART):
            tube.put_many(
                [{"n": n, "url": f"https://example.com/{n}"} for n in range(start, min(count, start + PART))],
            )


def rate(frame: DataFrame, count: int) -> Figures:
    """Rows a second from the store to where Spark uses them."""
    start = perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return {"rows/s": count / (perf_counter() - start)}


def ours(url: str, count: int) -> Figures:
    options = {"url": url, "tube": "bench", "numPartitions": PARTITIONS}
    return rate(session().read.format("penstock").options(**options).load(), count)


def theirs(place: pg_server.Place, count: int) -> Figures:
    server = place.server.url.removeprefix("postgresql://postgres@")
    columns = (
        "seq, id, state, reason, data, body, pri, lane, key, attempt, max_attempts, ttl, ttr, created_at, ready_at"
    )
    more = "expires_at, taken_at, deadline, done_at, result, error, errors"
    options: dict[str, Any] = {
        "url": f"jdbc:postgresql://{server}",
        "user": "postgres",
        "driver": "org.postgresql.Driver",
        "dbtable": f"(select {columns}, {more} from {place.name}.tasks_1) t",  # noqa: S608
        "fetchsize": FETCH,
        "partitionColumn": "seq",
        "lowerBound": 1,
        "upperBound": count,
        "numPartitions": PARTITIONS,
    }
    return rate(session().read.format("jdbc").options(**options).load(), count)


def warmed(run: partial[Figures]) -> partial[Figures]:
    """The first read of a kind also starts its processes and compiles its code."""
    run()
    return run


def on_postgres(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    place = stack.enter_context(pg_server.place(folder))
    fill(place.url, scale.stored // 2)
    place.settle()
    mine = Subject("penstock", warmed(partial(ours, place.url, scale.stored // 2)))
    if jdbc_jar() is None:
        return [mine, Subject(JDBC, missing=NO_JAR)]
    return [mine, Subject(JDBC, warmed(partial(theirs, place, scale.stored // 2)))]


def on_sqlite(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    url = str(folder / "tasks.db")
    fill(url, scale.stored // 2)
    return [Subject("penstock", warmed(partial(ours, url, scale.stored // 2)))]


CELLS = (
    Cell("spark-read-pg", SECTION, on_postgres, FIGURES, (Bound("rows/s", 1, of=JDBC),), rounds=3, sized=True),
    Cell("spark-read-sqlite", f"{SECTION}, SQLite", on_sqlite, FIGURES, compare="alone", rounds=3, sized=True),
)
