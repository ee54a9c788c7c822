"""A program that handles a stream of tasks and dies, driver and all, at the point that FAIL_AT names.

claimed     tasks are claimed, and Spark has not written the offset down; only the process that plans dies
written     the batch is handled, and Spark has not committed it
committed   the batch is committed, and its tasks are not acked
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.spark.conftest import SETTINGS
from tests.spark.queries import finish

from penstock.spark.claims import TaskStream
from penstock.spark.format import PenstockSource
from penstock.spark.options import Options

POINT = os.environ.get("FAIL_AT", "")


def die() -> None:
    """Kill the driver: its process, its JVM and this one."""
    os.killpg(int(os.environ["DRIVER"]), signal.SIGKILL)
    os._exit(1)


class Fragile(TaskStream):
    """The stream, in a process that may be told to die, and that says who it is."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        self._told = Path(given.pop("reader", os.devnull))
        self._point = given.pop("point", POINT)
        super().__init__(Options(given), schema)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        self._told.write_text(str(os.getpid()))
        if self._point == "committed" and start["seq"] > self._attached().acked:
            die()
        end = super().latestOffset(start, limit)
        if self._point == "claimed" and end != start:
            os.kill(os.getpid(), signal.SIGKILL)
        return end


class FragileSource(PenstockSource):
    @classmethod
    def name(cls) -> str:
        return "fragile"

    def streamReader(self, schema: StructType) -> Fragile:
        return Fragile(dict(self.options), schema)


def handled(folder: Path, frame: DataFrame, number: int) -> None:
    """A sink that is written to once for each batch, and a record of all that it was given."""
    rows = sorted([row.claim, json.loads(row.data)] for row in frame.select("claim", "data").collect())
    with (folder / "seen").open("a") as seen:
        seen.write(json.dumps([number, rows]) + "\n")
        seen.flush()
        os.fsync(seen.fileno())
    (folder / "new").write_text(json.dumps(rows))
    (folder / "new").rename(folder / f"batch-{number}")
    if POINT == "written":
        die()


def run(spark: SparkSession, url: str, folder: Path, **more: str) -> None:
    """Handle what there is now, three tasks a batch."""
    spark.dataSource.register(FragileSource)
    options = {"url": url, "tube": "jobs", "streamId": "s", "maxTasksPerTrigger": "3", "lease": "600", **more}
    stream = spark.readStream.format("fragile").options(**options).load()
    writer = stream.writeStream.foreachBatch(lambda frame, number: handled(folder, frame, number))
    finish(writer, folder / "checkpoint")


def main() -> None:
    os.environ["DRIVER"] = str(os.getpid())
    builder = SparkSession.builder.master("local[1]")
    for name, value in {**SETTINGS, "spark.local.dir": sys.argv[2], "spark.sql.warehouse.dir": sys.argv[2]}.items():
        builder = builder.config(name, value)
    run(builder.getOrCreate(), sys.argv[1], Path(sys.argv[2]))


if __name__ == "__main__":
    main()
