"""Drivers of a task stream that die or stand still: nothing is lost, and nothing is handled twice that need not be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.conftest import ROOT, environment
from tests.spark.drivers import streaming
from tests.spark.queries import finish
from tests.support import postgres

import penstock
from penstock.model import ops

pytestmark = pytest.mark.timeout(900)


def crash(url: str, folder: Path, point: str) -> None:
    """Run the driver until it kills itself."""
    program = [sys.executable, "-m", "tests.spark.drivers.streaming", url, str(folder)]
    where = {**environment(), "FAIL_AT": point}
    done = subprocess.run(program, cwd=ROOT, env=where, start_new_session=True, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_driver_that_is_killed_at_any_point_goes_on_where_it_was(spark, tmp_path):
    url = str(tmp_path / "tasks.db")
    with penstock.connect(url) as q:
        jobs = q.create_tube("jobs", keep=True)
        jobs.put_many(range(8))
        # Nothing is in the checkpoint yet, so it makes no difference that the rest of the driver lives.
        with pytest.raises(StreamingQueryException):
            streaming.run(spark, url, tmp_path, point="claimed")
        assert jobs.statistics().tasks["taken"] == 3
        for point in ("written", "committed"):
            crash(url, tmp_path, point)
        assert jobs.statistics().tasks["kept"] == 0
        streaming.run(spark, url, tmp_path)
        tasks = list(jobs.tasks())
        acked = [json.loads(note.text) for note in q._engine.execute(ops.ReadLedger("acked:s"))]
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert [number for number, _ in seen] == [0, 0, 1, 2]
    assert seen[0] == seen[1]
    handled = [row for path in tmp_path.glob("batch-*") for row in json.loads(path.read_text())]
    assert len(handled) == len({data for _, data in handled}) == 8
    assert sorted(handled) == [[number + 1, number] for number in range(8)]
    assert [(task.state, task._record.attempt) for task in tasks] == [("done", 1)] * 8
    assert sum(tally["lost"] for tally in acked) == 0


def test_a_driver_that_stands_still_past_its_lease_loses_its_tasks_to_others(spark, tmp_path):
    url = postgres.lent_place()
    with penstock.connect(url) as q:
        jobs = q.create_tube("jobs", keep=True)
        jobs.put_many(range(2))
        spark.dataSource.register(streaming.FragileSource)
        options = {"url": url, "tube": "jobs", "streamId": "s", "lease": "1", "reader": str(tmp_path / "reader")}
        taken = []

        def stand_still(frame, number):
            if number:
                return
            reader = int((tmp_path / "reader").read_text())
            os.kill(reader, signal.SIGSTOP)
            try:
                taken.append(jobs.take(timeout=120))
            finally:
                os.kill(reader, signal.SIGCONT)

        stream = spark.readStream.format("fragile").options(**options).load()
        finish(stream.writeStream.foreachBatch(stand_still), tmp_path / "c")
        tally = json.loads(q._engine.execute(ops.ReadLedger("acked:s"))[0].text)
        assert (tally["lost"], tally.get("done", 0)) == (2, 0)
        taken[0].ack()
        assert (jobs.statistics().tasks["kept"], jobs.statistics().tasks["ready"]) == (1, 1)
    postgres.give_back(url)
