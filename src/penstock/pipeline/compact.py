"""Compaction: many small segments become few large ones, with the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline import bronze, gold, silver
from penstock.pipeline.lake import Lake, Segment, discard
from penstock.pipeline.queries import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGET = 128 << 20
"""Bytes of a segment that is large enough."""
MANY = 50
"""Small segments of a table from which on a run compacts by itself."""
SCHEMAS = {bronze.TABLE: bronze.SCHEMA, silver.TABLE: silver.SCHEMA, **gold.SCHEMAS}
_ORDER = {bronze.TABLE: ("seq",), silver.TABLE: ("seq",)}


@dataclass(frozen=True)
class Compaction:
    """How many segments have become how many."""

    version: int
    before: int
    after: int


def compact(
    spark: SparkSession, lake: Lake, *, target: int = TARGET, at: Callable[[str], None] = lambda stage: None
) -> Compaction:
    """Put small segments of every table together; steps and readers may go on meanwhile."""
    snapshot = lake.needed()
    removed, added = list[Segment](), list[Segment]()
    for table in SCHEMAS:
        for group in _groups(snapshot.of(table), target):
            added += _merged(spark, lake, table, group, target)
            removed += group
    at("written")
    while added:
        if not set(removed) <= set(snapshot.segments):  # another compaction was faster
            discard(lake, added)
            return Compaction(snapshot.version, 0, 0)
        after = snapshot.with_segments(added, removed)
        if lake.publish(after, added):
            return Compaction(after.version, len(removed), len(added))
        snapshot = lake.needed()
    return Compaction(snapshot.version, 0, 0)


def is_worth_it(lake: Lake) -> bool:
    """Whether so many segments are small that readers notice."""
    snapshot = lake.snapshot()
    return any(sum(it.size < TARGET // 2 for it in snapshot.of(table)) >= MANY for table in SCHEMAS)


def _groups(segments: list[Segment], target: int) -> list[list[Segment]]:
    """Neighbours that are small, as many as make a large one."""
    groups: list[list[Segment]] = [[]]
    for segment in segments:
        if segment.size >= target // 2:
            groups.append([])
        elif sum(it.size for it in groups[-1]) + segment.size > target:
            groups.append([segment])
        else:
            groups[-1].append(segment)
    return [group for group in groups if len(group) > 1]


def _merged(spark: SparkSession, lake: Lake, table: str, group: list[Segment], target: int) -> list[Segment]:
    lo, hi = group[0].lo, group[-1].hi
    rows: DataFrame = lake.table.read(spark, [lake.path(segment.path) for segment in group], SCHEMAS[table])
    if table in gold.MERGED:
        rows = spark.sql(query(gold.MERGED[table]), rows=rows)
    rows = rows.coalesce(1)
    if table in _ORDER:
        rows = rows.sortWithinPartitions(*_ORDER[table])
    where = lake.place(table, lo, hi)
    lake.table.write(rows, lake.path(where))
    found = lake.segment(table, where, lo, hi)
    return [] if found is None else [found]
