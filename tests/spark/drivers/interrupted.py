"""A fleet of handlers that only wait, for somebody to press Ctrl-C."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from tests.spark import crews
from tests.spark.conftest import SETTINGS

import penstock.spark


def main(url: str, grace: str) -> int:
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        penstock.spark.fleet(spark, url, "jobs", crews.hold, workers=2, slots=1, session_ttl=600, grace=float(grace))
    except KeyboardInterrupt:
        print("stopped")
        return 130
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
