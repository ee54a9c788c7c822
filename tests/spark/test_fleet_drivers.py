"""Fleets of programs of their own: on other masters, and stopped by Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest
from tests.spark.cluster import DRIVERS, cluster, drive
from tests.spark.conftest import ROOT, environment
from tests.support.postgres import give_back, lent_place
from tests.worker.bench import until

import penstock
from penstock.model import ops

PATIENCE = 240.0


@contextmanager
def nothing_left_in(folder: Path) -> Iterator[None]:
    """A local-cluster works in the folder of the package, and cleans nothing up."""
    before = set(folder.glob("*"))
    yield
    for path in set(folder.glob("*")) - before:
        shutil.rmtree(path)
    if not before:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(900)
def test_the_same_job_runs_on_every_master(tmp_path: Path) -> None:
    url = lent_place()
    with cluster(tmp_path) as standalone:
        for master in ("local[*]", "local-cluster[2,1,512]", standalone):
            folder = tmp_path / master.partition("[")[0].partition(":")[0]
            folder.mkdir()
            with nothing_left_in(Path(pyspark.__file__).parent / "work"):
                told = json.loads(drive("everywhere", master, url, str(folder)).stdout.splitlines()[-1])
            expected = {"squares": sum(n * n for n in range(200)), "number": 200, "done": 200}
            assert {name: told[name] for name in expected} == expected, master
            assert told["workers"] in (1, 2) and told["events"] == ["ack", "put", "take"]
            assert ("SQLite works with a local master only" in told["refused"]) == (master != "local[*]")
    give_back(url)


def ledgers(q: penstock.Queue) -> list[str]:
    return q._engine.execute(ops.ListLedgers("fleet:"))


@contextmanager
def started(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program of tests/spark/drivers, in a group of its own, as a shell starts it; it ends with the context."""
    command = [sys.executable, str(DRIVERS / f"{name}.py"), *arguments]
    with subprocess.Popen(
        command,
        env=environment(),
        cwd=ROOT,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.timeout(600)
def test_ctrl_c_twice_gives_tasks_back_at_once(tmp_path: Path) -> None:
    """Once gives handlers the grace, as the demo shows."""
    url, begun = str(tmp_path / "tasks.db"), tmp_path / "begun"
    begun.mkdir()
    with penstock.connect(url) as q, started("interrupted", url, "600") as process:
        tube = q.create_tube("jobs", max_attempts=1)
        tube.put_many([str(begun)] * 4)
        until(lambda: len(list(begun.iterdir())) >= 2 or process.poll() is not None, PATIENCE)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        until(lambda: any(name.endswith(":orders") for name in ledgers(q)) or process.poll() is not None, PATIENCE)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out.splitlines()[-1:]) == (130, ["stopped"]), err
        assert [(task.state, task.attempt) for task in tube.tasks()] == [("ready", 0)] * 4
