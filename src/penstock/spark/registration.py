"""Making the format known to a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> SparkSession:
    """Let a session read and write `format("penstock")`; it is answered, so calls can be chained.

    Ship the package first where executors do not have it (docs/spark.md): what is registered later than shipped
    is found. A thread of your own that writes calls this too: Spark looks for the format of a write in the session that
    is active in the thread, and a new thread has none.

        spark = penstock.spark.register(SparkSession.builder.getOrCreate())
        spark.read.format("penstock").option("url", "tasks.db").option("tube", "jobs").load()
    """
    from penstock.spark.format import PenstockSource

    spark.dataSource.register(PenstockSource)
    session = getattr(spark, "_jsparkSession", None)
    if session is not None:  # Spark Connect has none
        spark._jvm.SparkSession.setActiveSession(session)  # type: ignore[union-attr]
    return spark
