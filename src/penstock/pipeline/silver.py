"""Silver: the lives of tasks and their attempts.

A life begins when a task is put, or revived after its end, and ends when the task is done; buried tasks still live. It
is known by the seq of its first event. An attempt is one lease, from the take to what ended it.

A step folds the lives that were open before it and its own events, in the order of seq. What has ended is written once
and never changes; lives that go on are written anew by every step, so what a step has to look at is bounded by the
tasks that are alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pipeline.lake import Lake, Segment, Snapshot
from penstock.pipeline.queries import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "silver"
OPEN = "open"
LIFE = (
    "last bigint, lane string, key string, pri bigint, began_at timestamp, taken_at timestamp, at timestamp, "
    "state string, reason string, takes bigint, fails bigint, lost bigint, waited bigint, ran bigint, "
    "error_class string, error string, data_seq bigint, was_ready timestamp"
)
ATTEMPT = (
    "lane string, attempt bigint, worker string, ready_at timestamp, taken_at timestamp, ended_at timestamp, "
    "how string, state string, reason string, error_class string, error string"
)


SCHEMA = f"tube string, task_id string, first bigint, seq bigint, attempt struct<{ATTEMPT}>, life struct<{LIFE}>"


def write(
    spark: SparkSession, lake: Lake, before: Snapshot, events: DataFrame, lo: int, hi: int
) -> tuple[list[Segment], list[Segment]]:
    """Fold events (lo, hi] into the lives that are open; answers new segments and those that they replace."""
    known = before.of(OPEN)
    where = lake.place(TABLE, lo, hi)
    lake.table.write(
        spark.sql(query("fold"), events=events, open=read(spark, lake, known)), lake.path(where), by="part"
    )
    found = (lake.segment(TABLE, f"{where}/part=settled", lo, hi), lake.segment(OPEN, f"{where}/part=open", 0, hi))
    return [segment for segment in found if segment is not None], known


def read(spark: SparkSession, lake: Lake, segments: list[Segment]) -> DataFrame:
    """The rows of segments, of settled or of open lives."""
    return lake.table.read(spark, [lake.path(segment.path) for segment in segments], SCHEMA)


def attempts(spark: SparkSession, lake: Lake, snapshot: Snapshot) -> DataFrame:
    """Every lease that has ended, with how long the task had waited for it and how it ended. Times are seconds."""
    return spark.sql(query("attempts"), settled=read(spark, lake, snapshot.of(TABLE)))


def lives(spark: SparkSession, lake: Lake, snapshot: Snapshot) -> DataFrame:
    """Every life of a task, ended or not. Times are seconds, over all attempts that have ended."""
    return spark.sql(query("lives"), rows=read(spark, lake, [*snapshot.of(TABLE), *snapshot.of(OPEN)]))
