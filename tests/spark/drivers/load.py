"""Puts numbers into tubes: load.py MASTER FORMAT ROWS SOURCE=URL..

SOURCE is plain, kills or straggles; OPTIONS in the environment has more options, as in a=1;b=2.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from tests.spark import faulty
from tests.spark.conftest import SETTINGS

import penstock.spark

master, form, count, *places = sys.argv[1:]
os.environ[faulty.DRIVER] = str(os.getpid())
settings = {
    **SETTINGS,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    "spark.executor.memory": "600m",
    "spark.speculation": str(any(place.startswith("straggles=") for place in places)).lower(),
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.interval": "100ms",
}
builder: Any = SparkSession.builder.master(master).appName("load")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = penstock.spark.register(builder.getOrCreate())
spark.dataSource.register(faulty.FaultySource)
for place in places:
    source, _, url = place.partition("=")
    frame = spark.range(int(count), numPartitions=2).selectExpr("cast(id as string) as data")
    if source == "kills":
        frame = frame.mapInArrow(faulty.KillsExecutor(url), "data string")
    elif source == "straggles":
        frame = frame.mapInArrow(faulty.straggling, "data string")
    options = dict(pair.split("=", 1) for pair in os.environ.get("OPTIONS", "").split(";") if pair)
    writer = frame.write.format(form).mode("append")
    writer.options(url=url, tube="jobs", stageBytes="1", **options).save()
spark.stop()
