"""What Spark does with a writer, without Spark; with few imports, because processes of tests do it too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from penstock.spark.options import Options
from penstock.spark.writing import Staged, Writer, stage

SCHEMA = StructType([StructField("data", StringType())])


def batch(numbers: Any, **more: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"data": pa.array([str(n) for n in numbers]), **more})


def writer(place: str, **options: str) -> Writer:
    return Writer(Options({"url": place, "tube": "jobs", **options}), SCHEMA)


def staged(engine: Any, made: Writer, numbers: Any, part: str = "0-0", **more: Any) -> list[Staged | None]:
    """What an executor does for a writer."""
    return [Staged(part, stage(engine, "jobs", made._run, part, [batch(numbers, **more)], 1))]
