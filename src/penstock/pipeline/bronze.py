"""Bronze: the events themselves, as they were.

They go from the store to Parquet in Arrow's own form, by the Spark tasks that read them: no row is touched by Python or
by the JVM. Each attempt of a task writes a file of its own, and only files of attempts that Spark counts are named by
the lake, so a task that is tried again or twice at once adds nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.engines.scan import EVENTS, Scan
from penstock.pipeline.lake import Lake, Segment

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.place import Place

TABLE = "bronze"
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in EVENTS.items())
ROWS = 131_072
BYTES = 64 << 20
"""Of a row group, about."""
_WRITTEN = "path string, lo bigint, hi bigint, rows bigint, size bigint"


def write(spark: SparkSession, lake: Lake, place: Place, lo: int, hi: int, parts: int = 0) -> list[Segment]:
    """Store the events (lo, hi] of a queue; a segment for each file."""
    from penstock.spark.reading import event_ranges

    ranges = [(it.lo, it.hi) for it in event_ranges(place.store(), Scan("events", lo=lo, hi=hi), parts)]
    if not ranges:
        return []
    where = lake.place(TABLE, lo, hi)
    Path(lake.path(where)).mkdir(parents=True)
    tasks = spark.range(0, len(ranges), 1, len(ranges))
    written = tasks.mapInArrow(_writing(place, lake.path(where), ranges), _WRITTEN).collect()
    found = [Segment(TABLE, f"{where}/{row.path}", row.lo, row.hi, row.rows, row.size) for row in written]
    return sorted(found, key=lambda segment: segment.lo)


def _writing(
    place: Place, directory: str, ranges: list[tuple[int, int]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def written(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pylist([_file(place, directory, *ranges[number])])

    return written


def _file(place: Place, directory: str, lo: int, hi: int) -> dict[str, str | int]:
    import pyarrow.parquet as pq

    from penstock.engines import arrow
    from penstock.spark.collector import spare_modules

    spare_modules()
    name = f"{lo}-{hi}-{uuid.uuid4().hex[:12]}.parquet"
    path = Path(directory) / name
    rows = 0
    with pq.ParquetWriter(path, arrow.schema(EVENTS), compression="zstd") as file:
        for table in _groups(place.scan(Scan("events", lo=lo, hi=hi))):
            file.write_table(table)
            rows += table.num_rows
    return {"path": name, "lo": lo, "hi": hi, "rows": rows, "size": path.stat().st_size}


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches, put together until they are worth a row group."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(it.num_rows for it in held) >= ROWS or sum(it.nbytes for it in held) >= BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def read(spark: SparkSession, lake: Lake, segments: list[Segment]) -> DataFrame:
    """The events of segments."""
    return lake.table.read(spark, [lake.path(segment.path) for segment in segments], SCHEMA)
