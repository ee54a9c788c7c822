"""How a worker stops: it finishes what it can, and gives back the rest as though it had never been taken."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest
from tests.support.blocking import unwrap
from tests.worker.bench import PATIENCE, Working, until
from tests.worker.conftest import on_both, on_each

import penstock
from penstock import Worker
from penstock.worker import slots


def states(q: Any, tube: str = "jobs") -> list[tuple[str, int]]:
    """(state, attempt) of every task."""
    return [(task.state, task.attempt) for task in q.tube(tube).tasks()]


class Door:
    """Handlers wait before it, in the loop or in a thread; each says how it was told to stop."""

    def __init__(self) -> None:
        self.inside = threading.Semaphore(0)
        self.open = threading.Event()
        self.told: list[str | None] = []

    def thread(self, n: int, run: penstock.Run) -> str:
        self.inside.release()
        until(lambda: self.open.is_set() or run.cancelled)
        self.told.append(run.why)
        return "done"

    async def loop(self, n: int, run: penstock.Run) -> str:
        self.inside.release()
        try:
            while not self.open.is_set():
                await asyncio.get_running_loop().run_in_executor(None, self.open.wait, 0.01)
        except asyncio.CancelledError:
            self.told.append(run.why)
            raise
        self.told.append(run.why)
        return "done"

    def reached(self, number: int = 1) -> None:
        for _ in range(number):
            assert self.inside.acquire(timeout=PATIENCE)


both = pytest.mark.parametrize("colour", ["loop", "thread"])


@pytest.fixture
def door() -> Any:
    door = Door()
    yield door
    door.open.set()


def told_to_stop(working: Working, now: bool = False) -> None:
    """Tell a worker to stop, and come back when it takes nothing any more."""
    fetcher = working.worker._slots.fetcher  # type: ignore[union-attr]
    working.worker.stop(now)
    until(lambda: not fetcher._taking and not any(line.waiter for line in fetcher.lines.values()))


@both
def test_what_runs_is_finished_and_nothing_new_is_taken(q: Any, door: Door, colour: str) -> None:  # case 310
    job = q.handler("jobs", keep=True)(getattr(door, colour))
    task = job.put(1)
    with Working(q, concurrency=2) as working:
        door.reached()
        told_to_stop(working)
        job.put(2)
        assert working.running
        door.open.set()
        working.ended()
    assert q.tube("jobs").result(task.id) == "done"
    assert states(q) == [("done", 1), ("ready", 0)]
    assert (working.tally.ok, working.tally.given_back) == (1, 0)


@on_each
def test_what_was_fetched_ahead_is_given_back_with_its_attempt(
    q: Any, door: Door, monkeypatch: Any
) -> None:  # case 311
    monkeypatch.setattr(slots, "AHEAD", 1e6)
    monkeypatch.setattr(slots, "LOOK", 1e6)

    @q.handler("jobs")
    def job(n: int, run: penstock.Run) -> None:
        if n >= 50:
            door.thread(n, run)

    job.put_many(range(100))
    with Working(q, concurrency=2, prefetch=10) as working:
        door.reached(2)
        until(lambda: q.tube("jobs").statistics().tasks["taken"] == 12)
        until(lambda: working.worker._slots.fetcher._held == 12)  # type: ignore[union-attr]
        told_to_stop(working)
        door.open.set()
        working.ended()
    assert (working.tally.ok, working.tally.given_back) == (52, 10)
    assert states(q) == [("ready", 0)] * 48


@both
@pytest.mark.parametrize("how", ["grace", "now", "twice"])
def test_when_the_grace_is_over_what_runs_is_given_back_too(q: Any, door: Door, colour: str, how: str) -> None:
    job = q.handler("jobs", max_attempts=1)(getattr(door, colour))
    job.put(1)
    with Working(q, grace=0.01 if how == "grace" else 1000) as working:
        door.reached()
        if how == "twice":
            told_to_stop(working)
        working.stop(now=how == "now")
    assert door.told in ([], ["stopping"])  # a thread may not have looked yet
    assert states(q) == [("ready", 0)]
    assert (working.tally.ok, working.tally.given_back) == (0, 1)
    until(lambda: door.told == ["stopping"])


def test_a_thread_that_does_not_look_is_left_behind(q: Any) -> None:
    inside, open_ = threading.Event(), threading.Event()

    @q.handler("jobs")
    def job(n: int) -> None:
        inside.set()
        open_.wait(PATIENCE)

    job.put(1)
    with Working(q, grace=0) as working:
        assert inside.wait(PATIENCE)
        working.stop()
        assert working.worker.abandoned == 1
    assert states(q) == [("ready", 0)]
    open_.set()


def test_a_coroutine_that_will_not_be_cancelled_is_left_behind(memory: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(slots, "LAST_WORDS", 0.05)
    inside, open_ = threading.Event(), threading.Event()

    @memory.handler("jobs")
    async def job(n: int) -> None:
        inside.set()
        while not open_.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().run_in_executor(None, open_.wait, 0.01)

    job.put(1)
    with Working(memory, grace=0) as working:
        assert inside.wait(PATIENCE)
        working.worker.stop()
        until(lambda: states(memory) == [("ready", 0)])
        open_.set()
        working.ended()
    assert working.tally.given_back == 1


def test_a_handler_that_answers_cancelling_with_an_error_loses_no_attempt(memory: Any) -> None:
    inside = threading.Event()

    @memory.handler("jobs", max_attempts=1)
    async def job(n: int) -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("interrupted") from None

    job.put(1)
    with Working(memory, grace=0) as working:
        assert inside.wait(PATIENCE)
        working.stop()
    assert states(memory) == [("ready", 0)]


def test_a_handler_may_use_its_last_moment_to_finish(memory: Any) -> None:
    inside = threading.Event()

    @memory.handler("jobs", keep=True)
    async def job(n: int) -> str:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "saved"
        return "never"

    task = job.put(1)
    with Working(memory, grace=0) as working:
        assert inside.wait(PATIENCE)
        working.stop()
    assert memory.tube("jobs").result(task.id) == "saved"


def test_a_worker_that_was_stopped_before_it_ran_takes_nothing(memory: Any) -> None:
    seen: list[int] = []
    job = memory.handler("jobs")(seen.append)
    job.put(1)
    working = Working(memory)
    working.worker.stop()
    working.start().ended()
    assert (seen, states(memory)) == ([], [("ready", 0)])


def test_a_worker_can_run_again_after_it_was_stopped(memory: Any) -> None:
    seen: list[int] = []
    job = memory.handler("jobs")(seen.append)
    worker = Worker(unwrap(memory))
    for n in range(2):
        job.put(n)
        working = Working(memory)
        working.worker = worker
        with working:
            until(lambda n=n: worker.tally.ok == n + 1)
    assert seen == [0, 1]


def test_a_worker_does_not_run_twice_at_a_time(memory: Any, door: Door) -> None:
    job = memory.handler("jobs")(door.thread)
    job.put(1)
    with Working(memory) as working:
        door.reached()
        again = Working(memory)
        again.worker = working.worker
        with pytest.raises(penstock.UsageError, match="runs already"):
            again.start().ended()
        door.open.set()


def test_stopping_a_worker_that_has_ended_does_nothing(memory: Any) -> None:
    memory.handler("jobs")(print)
    with Working(memory) as working:
        working.stop()
    working.worker.stop()
    working.worker.stop(now=True)


@on_both
def test_two_workers_of_one_queue_share_its_tasks(q: Any, door: Door) -> None:  # case 254
    job = q.handler("jobs")(door.thread)
    job.put_many(range(4))
    with Working(q, concurrency=2) as one, Working(q, concurrency=2) as other:
        door.reached(4)
        one.worker.stop()
        door.open.set()
        one.ended()
        job.put(4)
        until(lambda: one.tally.ok + other.tally.ok == 5)
    assert one.tally.ok == 2


def test_a_worker_of_a_closed_queue_is_refused() -> None:
    q = penstock.connect("memory:")
    q.close()
    with pytest.raises(penstock.UsageError, match="closed"):
        Worker(q).run(until_empty=True, signals=False)


@on_both
def test_closing_the_queue_does_not_touch_what_its_workers_do(q: Any, bench: Any, door: Door) -> None:
    job = q.handler("jobs", keep=True)(door.thread)
    job.put(1)
    other = bench.connect()
    with Working(q) as working:
        door.reached()
        q.close()
        assert states(other) == [("taken", 1)]
        door.open.set()
        until(lambda: working.tally.ok == 1)
    assert states(other) == [("done", 1)]


def test_a_handler_that_asks_for_what_cannot_be_wrong_options_stop_nobody(q: Any) -> None:
    """What the store refuses about one task is that task's affair."""

    @q.handler("jobs", kind="fifo", max_attempts=1)
    async def job(n: int) -> None:
        if n == 1:
            raise penstock.Release(60)  # this kind has no delays

    tasks = job.put_many(range(3))
    with Working(q) as working:
        until(lambda: working.tally.ok == 3 and not q.tube("jobs").statistics().tasks["taken"])
    found = q.tube("jobs").peek(tasks[1].id)
    assert (found.state, found.reason) == ("buried", "aborted")
    assert "delay" in found.error
