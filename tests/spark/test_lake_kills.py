"""What works on a lake is killed; whoever comes after it finds a lake that is whole."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.spark.conftest import ROOT, environment

import penstock
from penstock.pipeline.lake import Lake
from penstock.pipeline.replay import replay
from penstock.pipeline.run import run
from penstock.pipeline.vacuum import vacuum

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


def test_steps_and_a_replay_that_are_killed_leave_a_whole_lake_and_put_each_task_once(spark, tmp_path):
    url, lake = str(tmp_path / "tasks.db"), Lake(tmp_path / "lake")
    with penstock.connect(url, durability="relaxed") as queue:
        tube, again = queue.create_tube("jobs", history=True, history_data=True), queue.create_tube("again")
        tube.put_many(range(30))
        tube.ack_many(tube.take_many(30))
        for stage in ("bronze", "written"):
            with standing(spark, url, lake, "step", stage):
                assert lake.snapshot().upto == 0
        assert vacuum(lake, older_than=-LATER, dry_run=True).directories > 0
        assert run(spark, url, lake).events == 90
        with standing(spark, url, lake, "again", "1"):
            assert len(again.tasks()) == 10
        assert replay(spark, url, lake, "again", "again").put == 30
        assert Counter(task.data for task in again.tasks()) == Counter(range(30))
