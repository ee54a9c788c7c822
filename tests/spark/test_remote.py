"""Spark over a server: an embedded store feeds a cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark import crews
from tests.spark.lakes import stored
from tests.spark.queries import finish
from tests.support.servers import Running

import penstock
from penstock import UsageError
from penstock.pipeline import bronze
from penstock.pipeline.lake import Lake
from penstock.pipeline.replay import replay
from penstock.pipeline.run import run
from penstock.spark import fleet
from penstock.spark.options import resolved

NAMES = ("jobs", "copies")


@pytest.fixture(params=["penstock", pytest.param("grpc", marks=pytest.mark.exhaustive)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with Running(str(tmp_path / "tasks.db"), grpc_port=0) as running:
        yield running.url if request.param == "penstock" else running.grpc_url


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


@pytest.mark.exhaustive  # the remote engine passes the contract, and streams run on SQLite and PostgreSQL in every run
def test_a_stream_of_tasks_is_put_into_another_tube_and_all_of_it_is_in_the_lake(
    spark: Any, url: str, tmp_path: Path
) -> None:
    with penstock.connect(url) as q:
        jobs, copies = (q.create_tube(name, history=True, history_data=True) for name in NAMES)
        jobs.put_many(range(30))
        tasks = spark.readStream.format("penstock").options(url=url, tube="jobs", streamId="s", maxTasksPerTrigger=10)
        copying = tasks.load().select("data").writeStream.format("penstock").options(url=url, tube="copies")
        finish(copying, tmp_path / "c")
        assert sorted(task.data for task in copies.tasks()) == list(range(30))
        assert jobs.tasks() == [], "the last batch is acked too"
        lake = Lake(tmp_path / "lake")
        assert run(spark, url, lake, limit=80, purge=True).events == 120
        events = stored(lake, bronze.TABLE)
        of_jobs, of_copies = (Counter(row["event"] for row in events if row["tube"] == name) for name in NAMES)
        assert (of_jobs, of_copies) == (Counter(put=30, take=30, ack=30), Counter(put=30))
        assert q.history() == [], "what is in the lake may go"
        assert replay(spark, url, lake, "copies", "again", where="tube = 'jobs'").put == 30
        assert Counter(task.data for task in copies.tasks(limit=100)) == Counter([*range(30)] * 2)


def test_no_secret_is_shown_in_plans() -> None:
    with pytest.raises(UsageError, match="password"):
        resolved("penstock://ann:secret@host")
    assert resolved("penstock://ann:env:TOKEN@host") == "penstock://ann:env:TOKEN@host"
