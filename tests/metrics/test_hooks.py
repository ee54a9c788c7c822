"""What a worker tells a collector of metrics about each task: pgqueue's three hooks."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from tests.worker.bench import PATIENCE, Later, Working, until, work

import penstock


class Told:
    """Hooks that remember what they were told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def inc_busy(self, name: str, tube: str) -> None:
        self.calls.append(("inc", name, tube))

    def measure(self, name: str, tube: str, ok: bool, seconds: float) -> None:
        assert seconds >= 0
        self.calls.append(("measure", name, tube, ok))

    def dec_busy(self, name: str, tube: str) -> None:
        self.calls.append(("dec", name, tube))


class Broken:
    """Hooks that fail, each in its own way."""

    def inc_busy(self, name: str, tube: str) -> None:
        raise RuntimeError("no such gauge")

    def measure(self, name: str, tube: str, ok: bool, seconds: float) -> None:
        raise KeyError(tube)

    def dec_busy(self, name: str, tube: str) -> None:
        raise TypeError("not a number")


def _program(q: Any) -> list[int]:
    """A tube of numbers, each of which ends another way."""
    done: list[int] = []

    @q.handler("jobs", max_attempts=1, kind="fifottl")
    def job(n: int) -> None:
        if n == 1:
            raise ValueError("one is bad")
        if n == 2:
            raise penstock.Abort("two never works")
        if n == 3:
            raise penstock.Bury("look at three")
        done.append(n)

    job.put(0)
    for n in (1, 2, 3):
        job.put(n)
    q.tube("jobs").put("four")
    job.put(5)
    return done


def test_each_task_is_told_in_order_and_with_its_outcome(q: Any) -> None:  # case 292
    _program(q)
    told = Told()
    work(q, concurrency=1, hooks=told, name="fetcher")
    expected = []
    for ok in (True, False, False, False, False, True):
        expected += [("inc", "fetcher", "jobs"), ("measure", "fetcher", "jobs", ok), ("dec", "fetcher", "jobs")]
    assert told.calls == expected


def test_hooks_that_fail_change_nothing(q: Any, caplog: pytest.LogCaptureFixture) -> None:  # case 292
    done = _program(q)
    tally = work(q, concurrency=1, hooks=Broken())
    assert done == [0, 5]
    assert (tally.ok, tally.trouble, tally.busy) == (2, 4, 0)
    tasks = q.tube("jobs").statistics().tasks
    assert (tasks["buried"], tasks["done"], tasks["total"]) == (4, 2, 4)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert said[:3] == ["the hook inc_busy failed", "the hook measure failed", "the hook dec_busy failed"]


def test_a_task_without_a_handler_is_not_told(q: Any) -> None:
    q.create_tube("nobody").put(1)
    told = Told()
    work(q, tubes=["nobody"], hooks=told)
    assert told.calls == []
    assert q.tube("nobody").statistics().tasks["buried"] == 1


def test_what_runs_at_once_is_told_in_pairs(q: Any) -> None:
    both = threading.Barrier(2)

    @q.handler("jobs")
    def job(n: int) -> None:
        both.wait(PATIENCE)

    job.put_many([1, 2])
    told = Told()
    work(q, hooks=told)
    names = [call[0] for call in told.calls]
    assert names[:2] == ["inc", "inc"]
    assert sorted(names[2:]) == ["dec", "dec", "measure", "measure"]


def test_a_run_whose_task_is_taken_away_is_no_success(q: Any, later: Later) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @q.handler("jobs", attempt_limit=600, max_attempts=1)
    def job(n: int) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    job.put(1)
    told = Told()
    with Working(q, hooks=told) as working:
        assert begun.wait(PATIENCE)
        later(600)
        until(lambda: working.tally.lost)
        go_on.set()
        until(lambda: len(told.calls) == 3)
    assert [call[-1] for call in told.calls if call[0] == "measure"] == [False]
    runs = working.tally.of("jobs")
    assert (runs.ok, runs.trouble, runs.outcomes) == (0, 1, {"late": 1})


def test_runs_are_counted_by_how_they_ended(q: Any) -> None:
    @q.handler("jobs", max_attempts=2, retry=0)
    def job(way: str, run: penstock.Run) -> None:
        if way == "release" and run.attempt == 1:
            raise penstock.Release
        if way == "fail" and run.attempt == 1:
            raise OSError("down")
        if way == "by hand":
            run.task.ack()

    job.put_many(["ack", "release", "fail", "by hand"])
    tally = work(q)
    assert tally.of("jobs").outcomes == {"ack": 3, "release": 1, "fail": 1, "by_hand": 1}
    assert sum(tally.of("jobs").buckets) == 6 == tally.ok + tally.trouble
