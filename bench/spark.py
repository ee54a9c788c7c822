"""Putting the rows of a DataFrame, beside Spark's own writer of tables and a bare COPY."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import penstock
from bench import pg_server
from bench.cell import Bound, Cell, Figures, Subject
from bench.scale import Scale
from bench.spark_session import CORES, NO_JAR, jdbc_jar, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECTION = f"Spark on {CORES} cores, putting the rows of a DataFrame"
JDBC, JDBC_DEFAULT, COPY = "df.write.jdbc", "df.write.jdbc, as it comes", "COPY"
BATCH = 10_000
FIGURES = ("rows/s",)
_files = itertools.count(1)
TABLE = "create table plain (id bigserial primary key, data text not null)"
ROW = """concat('{"n":', id, ',"url":"https://example.com/', id, '"}') as data"""
NOTES = {
    JDBC: f"the same rows into a table with nothing but a number and a text, batchsize {BATCH:,}; each partition "
    "commits for itself, so rows come twice when a task is tried again",
    JDBC_DEFAULT: "the same without the option: batches of 1,000",
    COPY: "psycopg, one connection, from a list of texts that is there already: no Spark, no tasks, no retries",
}


def frame(count: int) -> DataFrame:
    """Short tasks, made by Spark as they are written."""
    return session().range(count, numPartitions=CORES).selectExpr(ROW)


def rate(write: Callable[[], object], count: int) -> Figures:
    """Rows a second, from the call to the commit."""
    start = perf_counter()
    write()
    return {"rows/s": count / (perf_counter() - start)}


def put(url: str, count: int) -> Figures:
    with penstock.connect(url) as queue:
        queue.create_tube("bench", "fifo")
    writer = frame(count).write.format("penstock").mode("append").options(url=url, tube="bench")
    figures = rate(writer.save, count)
    with penstock.connect(url) as queue:
        stored = queue.tube("bench").statistics().tasks["total"]
    if stored != count:
        raise RuntimeError(f"{stored} tasks of {count} rows")
    return figures


def ours(folder: Path, count: int) -> Figures:
    with pg_server.place(folder) as place:
        return put(place.url, count)


def on_file(folder: Path, count: int) -> Figures:
    # Another file each time: workers of Spark keep theirs open.
    return put(str(folder / f"tasks{next(_files)}.db"), count)


def theirs(folder: Path, count: int, batch: int | None = BATCH) -> Figures:
    with pg_server.place(folder) as place:
        place.create()
        with place.connect() as connection:
            connection.execute(TABLE)
        options = {
            "url": f"jdbc:postgresql://{place.server.url.removeprefix('postgresql://postgres@')}",
            "user": "postgres",
            "driver": "org.postgresql.Driver",
            "dbtable": f"{place.name}.plain",
            **({} if batch is None else {"batchsize": str(batch)}),
        }
        return rate(frame(count).write.format("jdbc").mode("append").options(**options).save, count)


def copy(folder: Path, count: int) -> Figures:
    rows = [(f'{{"n":{n},"url":"https://example.com/{n}"}}',) for n in range(count)]
    with pg_server.place(folder) as place:
        place.create()
        with place.connect() as connection:
            connection.execute(TABLE)

            def write() -> None:
                with connection.cursor().copy("copy plain (data) from stdin") as into:
                    for row in rows:
                        into.write_row(row)

            return rate(write, count)


def warmed(run: Callable[[Path, int], Figures], folder: Path, count: int) -> partial[Figures]:
    """The first write of a kind also starts its processes and compiles its code."""
    run(folder, min(count, 20_000))
    return partial(run, folder, count)


def on_postgres(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    count = scale.stored // 2
    found = [Subject("penstock", warmed(ours, folder, count))]
    if jdbc_jar() is None:
        found.append(Subject(JDBC, missing=NO_JAR))
    else:
        found.append(Subject(JDBC, warmed(theirs, folder, count)))
        found.append(Subject(JDBC_DEFAULT, partial(theirs, folder, count, None)))
    return [*found, Subject(COPY, partial(copy, folder, count))]


def on_sqlite(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    return [Subject("penstock", warmed(on_file, folder, scale.stored // 2))]


CELLS = (
    Cell(
        "spark-put-pg",
        SECTION,
        on_postgres,
        FIGURES,
        (Bound("rows/s", 3, of=JDBC), Bound("rows/s", 0.6, of=COPY)),
        rounds=3,
        sized=True,
    ),
    Cell(
        "spark-put-sqlite",
        f"{SECTION}, SQLite",
        on_sqlite,
        FIGURES,
        (Bound("rows/s", 100_000),),
        "alone",
        3,
        sized=True,
    ),
)
