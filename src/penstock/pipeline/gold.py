"""Gold: what happened, counted.

Each step adds rows of its own, and a view adds them up: so nothing is ever counted anew. Times are counted in buckets
that grow by a fixed share. Such counts add up exactly: a percentile is the same however the events came in, and it is
right to half a bucket at any rank, which sketches that sample are not at the far end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.lake import Lake, Segment, Snapshot
from penstock.pipeline.queries import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.figures import Figures

MINUTE = 60_000_000
HOUR = 60 * MINUTE
BY_TIME = "gold_by_time"
BY_LANE = "gold_by_lane"
FAILURES = "gold_failures"
TABLES = (BY_TIME, BY_LANE, FAILURES)
GROWTH = {BY_TIME: 1.02, BY_LANE: 1.08}
"""How much wider each bucket is than the one before: percentiles are right to 1 in a hundred, those of lanes to 4."""
COUNTED = (
    "slot bigint, tube string, lane string, event string, from_state string, to_state string, reason string, "
    "again boolean, bucket int, n bigint, us bigint, longest bigint, first bigint, last bigint"
)
ERRORS = (
    "slot bigint, tube string, lane string, error_class string, fingerprint string, n bigint, buried bigint, "
    "example struct<seq bigint, error string>, first bigint, last bigint"
)
SCHEMAS = {BY_TIME: COUNTED, BY_LANE: COUNTED, FAILURES: ERRORS}


def counts(growth: float, width: int, lanes: bool) -> str:
    """SQL that counts {events} by slots of so many microseconds, with or without lanes."""
    return query("counts", growth=repr(growth), width=str(width), lane="lane" if lanes else "CAST(NULL AS string)")


SQL = {
    BY_TIME: lambda: counts(GROWTH[BY_TIME], MINUTE, lanes=False),
    BY_LANE: lambda: counts(GROWTH[BY_LANE], HOUR, lanes=True),
    FAILURES: lambda: query("failures"),
}
MERGED = {BY_TIME: "counts_merged", BY_LANE: "counts_merged", FAILURES: "failures_merged"}
"""Queries that add up rows of many steps: what compaction stores."""


def write(spark: SparkSession, lake: Lake, events: DataFrame, lo: int, hi: int) -> list[Segment]:
    """Count events (lo, hi]; answers the new segments."""
    found = list[Segment | None]()
    for table in TABLES:
        where = lake.place(table, lo, hi)
        lake.table.write(spark.sql(SQL[table](), events=events).coalesce(1), lake.path(where))
        found.append(lake.segment(table, where, lo, hi))
    return [segment for segment in found if segment is not None]


def read(spark: SparkSession, lake: Lake, snapshot: Snapshot, table: str) -> DataFrame:
    """Rows of one table, of all steps."""
    return lake.table.read(spark, [lake.path(path) for path in snapshot.paths(table)], SCHEMAS[table])


def figures(spark: SparkSession, lake: Lake | str, tube: str | None = None) -> Figures:
    """What the lake says, as plain numbers; of one tube if it is named."""
    from penstock.pipeline.counting import figures_of

    lake = lake if isinstance(lake, Lake) else Lake(lake)
    return figures_of(spark, lake, lake.needed(), tube)
