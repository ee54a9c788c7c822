"""Making the format known to a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> SparkSession:
    """Let a session read and write `format("penstock")`; it is answered, so calls can be chained.

    Ship the package first where executors do not have it (docs/spark.md): what is registered later than shipped
    is found.

        spark = penstock.spark.register(SparkSession.builder.getOrCreate())
        spark.read.format("penstock").option("url", "tasks.db").option("tube", "jobs").load()
    """
    from penstock.spark.format import PenstockSource

    spark.dataSource.register(PenstockSource)
    return spark
