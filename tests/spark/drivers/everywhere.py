"""A job that is the same on every master: put rows, let a fleet work, read what came of it. Prints what it found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.conftest import SETTINGS

import penstock
import penstock.spark


def main(master: str, url: str, folder: str) -> None:
    builder = SparkSession.builder.master(master)
    for name, value in {**SETTINGS, "spark.local.dir": folder, "spark.executor.memory": "512m"}.items():
        builder = builder.config(name, value)
    spark = penstock.spark.register(builder.getOrCreate())
    tube = "jobs-" + "".join(letter for letter in master if letter.isalpha())
    with penstock.connect(url) as q:
        q.create_tube(tube, keep=True, history=True)
    rows = spark.range(0, 200, 1, 4).selectExpr("id AS data", "concat('lane ', id % 4) AS lane")
    place = {"url": url, "tube": tube}
    rows.write.format("penstock").options(**place, jobId=tube).mode("append").save()
    done = penstock.spark.fleet(spark, url, tube, "tests.spark.crews:square", workers=2)
    found = done.results().selectExpr("sum(cast(result AS bigint)) AS squares", "count(*) AS number").first()
    events = spark.read.format("penstock").options(**place, feed="events").load()
    workers = events.where("event = 'take'").select("worker").distinct().count()
    refused = ""
    try:
        penstock.spark.fleet(spark, Path(folder) / "tasks.db", tube, "tests.spark.crews:square", workers=1)
    except penstock.UsageError as error:
        refused = str(error)
    spark.stop()
    assert found is not None
    told = {"squares": found.squares, "number": found.number, "done": done.counts.done, "refused": refused}
    print(json.dumps({**told, "workers": workers, "events": q_events(url, tube)}))


def q_events(url: str, tube: str) -> list[str]:
    with penstock.connect(url) as q:
        return sorted({event.event for event in q.history(tube=tube)})


if __name__ == "__main__":
    main(*sys.argv[1:])
