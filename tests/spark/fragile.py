"""A stream of tasks whose driver stands still, to be killed, at a point that it is told.

claimed     tasks are claimed, and Spark has not written the offset down
written     the batch is handled, and Spark has not committed it
committed   the batch is committed, and its tasks are not acked
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.spark.faulty import stand
from tests.spark.queries import finish

from penstock.spark.claims import TaskStream
from penstock.spark.format import PenstockSource
from penstock.spark.options import Options

MARK = "mark"


class Fragile(TaskStream):
    """The stream, in a process that may be told to stand still, and that says who it is."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        self._told = Path(given.pop("reader", os.devnull))
        self._mark = Path(given.pop("mark", os.devnull))
        self._point = given.pop("point", "")
        super().__init__(Options(given), schema)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        self._told.write_text(str(os.getpid()))
        if self._point == "committed" and start["seq"] > self._attached().acked:
            stand(self._mark)
        end = super().latestOffset(start, limit)
        if self._point == "claimed" and end != start:
            stand(self._mark)
        return end


class FragileSource(PenstockSource):
    @classmethod
    def name(cls) -> str:
        return "fragile"

    def streamReader(self, schema: StructType) -> Fragile:
        return Fragile(dict(self.options), schema)


def handled(folder: Path, frame: DataFrame, number: int, point: str) -> None:
    """A sink that is written to once for each batch, and a record of all that it was given."""
    rows = sorted([row.claim, json.loads(row.data)] for row in frame.select("claim", "data").collect())
    with (folder / "seen").open("a") as seen:
        seen.write(json.dumps([number, rows]) + "\n")
        seen.flush()
        os.fsync(seen.fileno())
    (folder / "new").write_text(json.dumps(rows))
    (folder / "new").rename(folder / f"batch-{number}")
    if point == "written":
        stand(folder / MARK)


def run(spark: SparkSession, url: str, tube: str, folder: Path, point: str = "") -> None:
    """Handle what there is now, three tasks a batch."""
    spark.dataSource.register(FragileSource)
    options = {"url": url, "tube": tube, "streamId": tube, "maxTasksPerTrigger": "3", "lease": "7200", "point": point}
    stream = spark.readStream.format("fragile").options(mark=str(folder / MARK), **options).load()
    writer = stream.writeStream.foreachBatch(lambda frame, number: handled(folder, frame, number, point))
    finish(writer, folder / "checkpoint")
