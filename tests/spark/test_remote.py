"""Spark over a server: an embedded store feeds a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark import crews
from tests.support.servers import Running

import penstock
from penstock import UsageError
from penstock.spark import fleet
from penstock.spark.options import resolved


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with Running(str(tmp_path / "tasks.db")) as running:
        yield running.url


def test_what_spark_writes_a_fleet_works_off_and_spark_reads(spark: Any, url: str) -> None:
    with penstock.connect(url) as q:
        q.create_tube("jobs", keep=True, history=True)
        rows = [(str(n),) for n in range(60)]
        frame = spark.createDataFrame(rows, "data string").repartition(3)
        frame.write.format("penstock").options(url=url, tube="jobs").mode("append").save()
        done = fleet(spark, url, "jobs", crews.square, workers=2, slots=4, session_ttl=600)
        assert done.counts == penstock.spark.Counts(taken=60, done=60)
        read = spark.read.format("penstock").options(url=url, tube="jobs").load().collect()
        assert {json.loads(row.data): json.loads(row.result) for row in read} == {n: n * n for n in range(60)}
        assert q.statistics()["jobs"].tasks["kept"] == 60


def test_no_secret_is_shown_in_plans() -> None:
    with pytest.raises(UsageError, match="password"):
        resolved("penstock://ann:secret@host")
    assert resolved("penstock://ann:env:TOKEN@host") == "penstock://ann:env:TOKEN@host"
