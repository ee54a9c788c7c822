"""Fleets of handlers that only wait, one after the other, for somebody to press Ctrl-C."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from tests.spark import crews
from tests.spark.conftest import SETTINGS

import penstock.spark


def main(url: str, *graces: str) -> None:
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for grace in map(float, graces):
        try:
            penstock.spark.fleet(spark, url, "jobs", crews.hold, workers=2, slots=1, session_ttl=600, grace=grace)
        except KeyboardInterrupt:
            print(f"stopped with a grace of {grace:g}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
