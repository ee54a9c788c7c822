"""One-shot mode: a worker that ends when nothing is left to do, and not before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.worker.bench import PATIENCE, Bench, until, work
from tests.worker.conftest import on_both

import penstock
from penstock import Worker, testing
from penstock.testing import ManualClock
from penstock.worker.emptiness import is_empty


class Running:
    """A one-shot worker in a thread."""

    def __init__(self, q: Any, **options: Any) -> None:
        self.begun = threading.Event()
        self.outcome: list[Any] = []
        self._options = options
        self._worker = Worker(q)
        self._worker.on_start = self.begun.set
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.begun.wait(PATIENCE)

    def _run(self) -> None:
        self.outcome.append(self._worker.run(until_empty=True, signals=False, **self._options))

    @property
    def goes_on(self) -> bool:
        return not self.outcome

    def stop(self) -> None:
        self._worker.stop()
        self.ended()

    def ended(self) -> Any:
        self._thread.join(PATIENCE)
        assert self.outcome, "it does not end"
        return self.outcome[0]


@pytest.fixture
def q(bench: Bench) -> Iterator[Any]:
    """A blocking program on every engine."""
    with penstock.connect(bench.url, durability="relaxed") as queue:
        yield queue


@pytest.fixture
def memory() -> Any:
    clock = ManualClock()
    with penstock.connect("memory:", clock=clock) as queue:
        yield queue, clock


def test_an_empty_queue_ends_at_once(q: Any) -> None:
    @q.handler("jobs")
    async def job(n: int) -> None: ...

    assert work(q).ok == 0


def test_tasks_that_put_tasks_into_other_tubes_are_all_done(q: Any) -> None:
    seen: list[tuple[str, int]] = []
    names = [f"tube{n}" for n in range(4)]
    handlers: list[Any] = []

    def define(index: int) -> None:
        @q.handler(names[index])
        def job(n: int) -> None:
            seen.append((names[index], n))
            if n:
                handlers[(index - 1) % 4].put(n - 1)
                handlers[(index + 2) % 4].put(n - 1)

        handlers.append(job)

    for index in range(4):
        define(index)
    handlers[0].put(4)
    assert work(q, concurrency=3).ok == 2**5 - 1
    assert len(seen) == 31
    assert all(tube.statistics().tasks["total"] == 0 for tube in q.tubes())


@on_both
def test_it_does_not_end_before_others_have_done_what_they_took(q: Any, bench: Bench) -> None:  # case 340
    ran: list[int] = []
    job = q.handler("jobs")(ran.append)
    job.put(1)
    held = bench.connect().tube("jobs").take()
    running = Running(q)
    until(lambda: _looked(running))
    assert running.goes_on
    held.release()
    running.ended()
    assert ran == [1]


def _looked(running: Running) -> bool:
    """Whether it stands in line, so that only looking is left for it."""
    fetcher = running._worker._slots.fetcher  # type: ignore[union-attr]
    return any(line.waiter for line in fetcher.lines.values())


def test_a_dead_worker_is_waited_for(memory: Any) -> None:
    q, clock = memory
    ran: list[int] = []
    job = q.handler("jobs")(ran.append)
    job.put(1)
    dead = penstock.Queue(
        q._engine.twin(), q._session._replace(uuid="11111111-1111-4111-8111-111111111111", ttl=30_000_000)
    )
    dead._start()
    assert dead.tube("jobs").take() is not None
    testing.lose(dead)
    running = Running(q)
    until(lambda: _looked(running))
    assert running.goes_on
    clock.advance(31)
    assert running.ended().ok == 1
    dead.close()


@pytest.mark.parametrize(("horizon", "ran"), [(None, 3), (60, 2), (59.9, 1), (0, 1)])
def test_delayed_tasks_are_waited_for_within_the_horizon(memory: Any, horizon: float | None, ran: int) -> None:
    q, clock = memory
    seen: list[int] = []
    job = q.handler("jobs")(seen.append)
    job.put(1)
    job.put(2, delay=60)
    job.put(3, delay=3600)
    running = Running(q, horizon=horizon)
    until(lambda: seen and not q.tube("jobs").statistics().tasks["taken"])
    if horizon is None:
        until(lambda: _looked(running))
        clock.advance(3600)
    elif horizon == 60:
        until(lambda: _looked(running))
        clock.advance(60)
    assert running.ended().ok == ran
    assert q.tube("jobs").statistics().tasks["delayed"] == 3 - ran


def test_a_task_that_fails_is_tried_until_it_is_buried(memory: Any) -> None:
    q, clock = memory
    attempts: list[int] = []

    @q.handler("jobs", max_attempts=3, retry=[10, 20])
    def job(n: int, run: penstock.Run) -> None:  # case 253
        attempts.append(clock.now())
        raise ValueError("always")

    task = job.put(1)
    start = clock.now()
    running = Running(q)
    for number, pause in ((1, 10), (2, 20)):
        until(lambda number=number: len(attempts) == number)
        until(lambda: q.tube("jobs").statistics().tasks["delayed"] == 1)
        clock.advance(pause)
    tally = running.ended()
    assert [(moment - start) // 1_000_000 for moment in attempts] == [0, 10, 30]
    assert tally.trouble == 3
    assert q.tube("jobs").peek(task.id).reason == "no_attempts"


def test_very_many_delayed_tasks_are_looked_through(memory: Any) -> None:
    q, _ = memory
    q.handler("jobs")(print)
    q.create_tube("jobs").put_many(range(2500), delay=3600)
    q.tube("jobs").put(1, delay=50)
    assert is_empty(q, ["jobs"], 40_000_000)
    assert not is_empty(q, ["jobs"], 60_000_000)


@on_both
def test_a_task_that_moves_from_tube_to_tube_while_they_are_looked_into_is_seen(q: Any) -> None:
    one, two = q.create_tube("one"), q.create_tube("two")
    one.put(1)
    held = one.take()

    class Tubes(tuple[str, ...]):
        """The task moves when the tube it goes to has been looked into, and the one it comes from has not."""

        def __iter__(self) -> Iterator[str]:
            yield "two"
            if held.state == "taken":
                two.put(held.data)
                held.ack()
            yield "one"

    assert not is_empty(q, Tubes(("two", "one")), None)
    two.take().ack()
    assert is_empty(q, ["one", "two"], None)


def test_buried_tasks_and_dropped_tubes_hold_nobody_up(q: Any) -> None:
    @q.handler("jobs", max_attempts=1)
    async def job(n: int) -> None:
        raise ValueError(n)

    @q.handler("others")
    def other(n: int) -> None:
        q.tube("spare").drop(force=True)

    q.handler("spare")(print)
    job.put(1)
    other.put(1)
    assert (work(q).trouble, q.tube("jobs").statistics().tasks["buried"]) == (1, 1)


def test_it_can_be_stopped_before_it_is_done(memory: Any) -> None:
    q, _ = memory
    q.handler("jobs")(print)
    q.create_tube("jobs").put(1, delay=3600)
    running = Running(q)
    until(lambda: _looked(running))
    running.stop()
    assert q.tube("jobs").statistics().tasks["delayed"] == 1


@on_both
def test_several_at_once_all_end(q: Any) -> None:
    ran: list[int] = []
    job = q.handler("jobs")(ran.append)
    job.put_many(range(200))
    several = [Running(q) for _ in range(3)]
    assert sum(running.ended().ok for running in several) == 200
    assert sorted(ran) == list(range(200))


@pytest.mark.parametrize("horizon", [-1, float("nan"), "soon"])
def test_the_horizon_is_a_length_of_time(horizon: Any) -> None:
    with pytest.raises(penstock.UsageError, match="horizon"):
        Worker(penstock.connect("memory:")).run(until_empty=True, horizon=horizon)
