"""What there was before a fleet began, so that its results can be told from earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.engines import Engine
from penstock.engines.scan import Scan
from penstock.model import ops
from penstock.spark.schemas import RESULTS, arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARKS = ("seq", "ready_at")
"""What changes when a buried task is kicked and buried again."""


class Earlier(NamedTuple):
    """A moment by the store's clock, and what lay buried then."""

    moment: int
    buried: pa.Table

    @classmethod
    def look(cls, engine: Engine, tube: str) -> Earlier:
        """How it is now."""
        moment = engine.execute(ops.GetMoment())
        found = list(engine.scan(Scan("tasks", tube, MARKS, states=("buried",))))
        return cls(moment, pa.Table.from_batches(found, arrow("tasks", MARKS)))

    def later(self, spark: SparkSession, tasks: DataFrame) -> DataFrame:
        """Of tasks those that ended, or were buried, since then; with the columns of results."""
        found = tasks.where(f"state = 'buried' OR unix_micros(done_at) >= {self.moment}")
        if self.buried.num_rows:
            before = spark.createDataFrame(self.buried)
            same = (found.seq == before.seq) & found.ready_at.eqNullSafe(before.ready_at)
            found = found.join(before, same & (found.state == "buried"), "left_anti")
        return found.select(*RESULTS)


__all__ = ["Earlier"]
