"""Fleets of programs of their own: on other masters, and stopped by Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest
from tests.spark.cluster import DRIVERS, drive
from tests.spark.conftest import ROOT, environment
from tests.support.postgres import give_back, lent_place
from tests.worker.bench import until

import penstock
from penstock.model import ops
from penstock.spark.roster import LEDGERS, Roster

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


@pytest.mark.timeout(600)
def test_the_same_job_runs_on_every_master(standalone: str, tmp_path: Path) -> None:
    """On local masters it does in all the other tests."""
    with nothing_left_in(Path(pyspark.__file__).parent / "work"):
        run_on("local-cluster[2,1,512]", str(tmp_path / "tasks.db"), tmp_path)  # a file: all of it is on this machine
    url = lent_place()
    run_on(standalone, url, tmp_path)
    give_back(url)


def run_on(master: str, url: str, folder: Path) -> None:
    run, done, squares = json.loads(drive("everywhere", master, url, str(folder)).stdout.splitlines()[-1])
    assert done == 20 and squares == [[n, n * n] for n in range(20)], master
    with penstock.connect(url) as q:
        events = q.history(limit=1000)
    assert Counter(event.event for event in events) == {"put": 20, "take": 20, "ack": 20}
    assert {event.worker for event in events if event.event == "take"} <= {f"spark:{run}:0", f"spark:{run}:1"}


def is_ordered(q: penstock.Queue) -> bool:
    """Whether the fleet was told to stop."""
    runs = [ledger.removeprefix(LEDGERS) for ledger in q._engine.execute(ops.ListLedgers(LEDGERS))]
    return any(Roster(q._engine, run).ordered() is not None for run in runs)


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
def test_ctrl_c_gives_tasks_back_after_the_grace_and_twice_at_once(tmp_path: Path) -> None:
    url, begun = str(tmp_path / "tasks.db"), tmp_path / "begun"
    with penstock.connect(url) as q, started("interrupted", url, "0.5", "600") as process:
        tube = q.create_tube("jobs", max_attempts=1)
        tube.put_many([str(begun)] * 4)
        for presses, grace in ((1, "0.5"), (2, "600")):
            begun.mkdir()
            until(lambda: len(list(begun.iterdir())) >= 2 or process.poll() is not None, PATIENCE)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            if presses == 2:
                until(lambda: is_ordered(q) or process.poll() is not None, PATIENCE)
                os.killpg(process.pid, signal.SIGINT)
            assert process.stdout is not None
            assert process.stdout.readline() == f"stopped with a grace of {grace}\n"
            assert [(task.state, task.attempt) for task in tube.tasks()] == [("ready", 0)] * 4
            shutil.rmtree(begun)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
