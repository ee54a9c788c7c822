"""Spark finds the format by itself where the package is installed."""

from __future__ import annotations

import io

from pyspark.serializers import CPickleSerializer, read_int
from pyspark.sql.worker import lookup_data_sources

from penstock.spark.format import PenstockSource


def test_the_lookup_of_spark_finds_the_format():
    out = io.BytesIO()
    lookup_data_sources._main(io.BytesIO(), out)
    out.seek(0)
    found = {}
    for _ in range(read_int(out)):
        name = out.read(read_int(out)).decode()
        found[name] = CPickleSerializer().loads(out.read(read_int(out)))
    assert found["penstock"] is PenstockSource
