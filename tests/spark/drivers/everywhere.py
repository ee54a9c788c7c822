"""A job that is the same on every master: put rows, let a fleet work, read what came of it. Prints what it found."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from tests.spark.conftest import SETTINGS

import penstock
import penstock.spark

SMALL = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.sql.adaptive.enabled": "false"}


def main(master: str, url: str, folder: str) -> None:
    builder = SparkSession.builder.master(master)
    for name, value in {**SETTINGS, **SMALL, "spark.local.dir": folder, "spark.sql.warehouse.dir": folder}.items():
        builder = builder.config(name, value)
    spark = penstock.spark.register(builder.getOrCreate())
    with penstock.connect(url) as q:
        q.create_tube("jobs", keep=True, history=True)
    rows = spark.range(0, 20, 1, 2).selectExpr("id AS data", "concat('lane ', id % 4) AS lane")
    rows.write.format("penstock").options(url=url, tube="jobs", jobId="load").mode("append").save()
    done = penstock.spark.fleet(spark, url, "jobs", "tests.spark.crews:square", workers=2)
    squares = {
        json.loads(row.data): json.loads(row.result) for row in done.results().select("data", "result").collect()
    }
    spark.stop()
    print(json.dumps([done.run, done.counts.done, sorted(squares.items())]))


if __name__ == "__main__":
    main(*sys.argv[1:])
