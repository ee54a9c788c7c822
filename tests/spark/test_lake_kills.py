"""What works on a lake is killed; whoever comes after it finds a lake that is whole."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.spark.conftest import ROOT, environment
from tests.spark.lakes import check
from tests.spark.past import history
from tests.support import postgres

import penstock
from penstock.pipeline.compact import compact
from penstock.pipeline.lake import Lake
from penstock.pipeline.replay import replay
from penstock.pipeline.run import run
from penstock.pipeline.step import step
from penstock.pipeline.vacuum import vacuum
from penstock.spark import feeds

LATER = 10.0


@contextmanager
def standing(spark: Any, url: str, lake: Lake, what: str, stage: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has reached a stage of its work; it ends with the block, by a signal that it cannot hear."""
    gateway = spark.sparkContext._gateway.gateway_parameters
    joins = {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.auth_token}
    words = [sys.executable, str(ROOT / "tests/spark/drivers/lake.py"), url, str(lake.root), what, stage]
    process = subprocess.Popen(
        words, env={**environment(), **joins}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        try:
            assert process.stdout.readline() == f"{stage}\n"
            yield process
        finally:
            process.kill()
            process.wait(60)
            spark._jvm.SparkSession.setDefaultSession(spark._jsparkSession)


@pytest.fixture
def url() -> Iterator[str]:
    made = postgres.lent_place()
    yield made
    postgres.give_back(made)


def test_step_and_replay_are_done_once_after_a_kill(spark, url, tmp_path):
    lake = Lake(tmp_path / "lake")
    with penstock.connect(url) as queue:
        tube, again = queue.create_tube("jobs", history=True, history_data=True), queue.create_tube("again")
        tube.put_many(range(30))
        tube.ack_many(tube.take_many(30))
        events = history(queue, 90)
        with standing(spark, url, lake, "step", "written"):
            assert lake.snapshot().upto == 0
            assert run(spark, url, lake).events == 90, "two steps at once, one of which is killed later"
        assert vacuum(lake, older_than=-LATER, dry_run=True).directories > 0, "what the killed one has left"
        check(spark, lake, events)
        with standing(spark, url, lake, "again", "1"):
            assert len(again.tasks()) == 10
        assert replay(spark, url, lake, "again", "again").put == 30
        assert Counter(task.data for task in again.tasks()) == Counter(range(30))
        done = run(spark, url, lake, purge=True)
        assert (done.events, done.purged, done.held_by) == (0, len(events), None)
        assert queue.history() == []


@pytest.mark.exhaustive
def test_lake_is_whole_after_kills_at_other_points(spark, url, tmp_path):
    lake = Lake(tmp_path / "lake")
    with penstock.connect(url) as queue:
        tube = queue.create_tube("jobs", history=True, history_data=True)
        tube.put_many(range(30))
        tube.ack_many(tube.take_many(20))
        history(queue, 70)
        with standing(spark, url, lake, "step", "bronze"):
            assert lake.snapshot().upto == 0
        assert step(spark, url, lake, limit=20).events == 20
        assert run(spark, url, lake).events == 50
        check(spark, lake, history(queue, 70))
        tube.ack_many(tube.take_many(10))
        events = history(queue, 90)
        with standing(spark, url, lake, "step", "published"):
            assert lake.snapshot().upto == events[-1].seq
        assert run(spark, url, lake).events == 0, "it was published, and the queue was not told"
        assert list(feeds.positions(queue._engine).values()) == [events[-1].seq]
        with standing(spark, url, lake, "compact", "written"):
            pass
        check(spark, lake, events)
        done = compact(spark, lake)
        assert done.before > done.after > 0, "the killed one has published nothing"
        check(spark, lake, events)
