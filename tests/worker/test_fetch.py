"""The thread that talks to the store: how much it takes, when, from where, and in how few calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support import remotes
from tests.support.blocking import unwrap
from tests.worker.bench import PATIENCE, Later, Working, until, until_state, work
from tests.worker.conftest import on_both, on_each

import penstock
from penstock.engines import open_store
from penstock.engines.store import Store
from penstock.model import ops
from penstock.testing import waiting
from penstock.worker import fetch, slots


class Gate:
    """Where handlers wait until a test lets them go on."""

    def __init__(self) -> None:
        self.inside = 0
        self._open = False
        self._events: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}

    async def passed(self) -> None:
        self.inside += 1
        event = self._events.setdefault(asyncio.get_running_loop(), asyncio.Event())
        if not self._open:
            await event.wait()
        self.inside -= 1

    def open(self) -> None:
        self._open = True
        for loop, event in self._events.items():
            loop.call_soon_threadsafe(event.set)


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch, q: Any) -> list[list[ops.Op[Any]]]:
    """The ops of every transaction from now on."""
    store: Store = _store(q)
    seen: list[list[ops.Op[Any]]] = []
    commit = store.commit

    def seen_commit(requests: Sequence[ops.Op[Any]], strict: bool) -> Any:
        seen.append(list(requests))
        return commit(requests, strict)

    monkeypatch.setattr(store, "commit", seen_commit)
    return seen


def _store(q: Any) -> Any:
    """The store that commits: behind a server it is the server's."""
    engine = unwrap(q)._engine
    store = getattr(engine, "engine", engine).store
    return open_store(remotes.behind(store.name)) or store


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look at what runs many times a second."""
    monkeypatch.setattr(slots, "LOOK", 0.05)
    monkeypatch.setattr(fetch, "RENEW", 0.05)


def acked(requests: list[ops.Op[Any]]) -> int:
    return sum(len(op.items) for op in requests if isinstance(op, ops.Ack))


def taken(q: Any, tube: str = "jobs") -> int:
    count: int = q.tube(tube).statistics().tasks["taken"]
    return count


# -- how few calls -------------------------------------------------------------------------------------


@on_both
def test_what_ends_together_is_acked_together_and_the_next_tasks_come_with_it(q: Any, commits: Any) -> None:
    gate = Gate()

    @q.handler("jobs")
    async def job(n: int) -> None:
        await gate.passed()

    job.put_many(range(20))
    with Working(q, concurrency=10, prefetch=0) as working:
        until(lambda: gate.inside == 10)
        commits.clear()
        gate.open()
        until(lambda: working.tally.ok == 20 and not q.tube("jobs").statistics().tasks["total"])
    calls = [requests for requests in commits if acked(requests)]
    assert sum(map(acked, calls)) == 20
    assert len(calls) <= 6
    assert any(isinstance(op, ops.Take) for requests in calls for op in requests)


def test_hundreds_of_quick_tasks_need_far_fewer_transactions(q: Any, commits: Any) -> None:
    @q.handler("jobs")
    async def job(n: int) -> None: ...

    job.put_many(range(500))
    commits.clear()
    assert work(q, concurrency=10).ok == 500
    calls = [requests for requests in commits if acked(requests)]
    assert sum(map(acked, calls)) == 500
    assert len(calls) <= 250  # how many exactly is up to the machine


def is_idle(working: Working) -> bool:
    """Whether a worker has nothing to do, and stands in line for every tube."""
    fetcher = working.worker._slots and working.worker._slots.fetcher
    lines = list(fetcher.lines.values()) if fetcher else []
    return bool(lines) and not fetcher.pending and all(line.waiter and not line.waiter.done for line in lines)


@on_both
def test_an_idle_worker_asks_for_nothing(q: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    asked: list[Any] = []

    @q.handler("jobs")
    async def job(n: int) -> None:
        seen.append(n)

    with Working(q) as working:
        job.put(1)
        until(lambda: seen and is_idle(working))
        fetcher = working.worker._slots.fetcher  # type: ignore[union-attr]
        take = fetcher._take
        monkeypatch.setattr(fetcher, "_take", lambda *args: (asked.append(args), take(*args))[1])
        # How often the store is asked within a time is up to the machine; that nobody asks before there is news is not.
        assert fetcher._next_look(time.monotonic()) is None
        job.put(2)
        until(lambda: len(seen) == 2 and is_idle(working))
        assert fetcher._next_look(time.monotonic()) is None
    assert asked == []  # what was put came to the waiter


@on_each
def test_a_new_task_starts_at_once(q: Any) -> None:  # case 313
    seen = threading.Event()

    @q.handler("jobs")
    async def job(n: int) -> None:
        seen.set()

    with Working(q):
        until(lambda: waiting(unwrap(q)))
        job.put(1)
        assert seen.wait(PATIENCE)


# -- how much ------------------------------------------------------------------------------------------


def test_slow_handlers_have_no_tasks_fetched_ahead_of_them(memory: Any) -> None:
    gate = Gate()

    @memory.handler("jobs")
    async def job(n: int) -> None:
        await gate.passed()

    job.put_many(range(30))
    with Working(memory, concurrency=3) as working:
        until(lambda: gate.inside == 3)
        assert taken(memory) == 3
        gate.open()
        until(lambda: working.tally.ok == 30)


def test_what_was_fetched_ahead_is_given_back_when_handlers_turn_slow(memory: Any, often: None) -> None:
    gate = Gate()
    attempts: list[int] = []

    @memory.handler("jobs")
    async def job(slow: bool, run: penstock.Run) -> None:
        if slow:
            attempts.append(run.attempt)
            await gate.passed()

    job.put_many([False] * 500 + [True] * 40)
    with Working(memory, concurrency=2) as working:
        until(lambda: gate.inside == 2)
        until(lambda: taken(memory) == 2)
        with Working(memory, concurrency=38):
            until(lambda: gate.inside == 40)
            gate.open()
        until(lambda: working.tally.busy == 0)
    assert attempts == [1] * 40


@pytest.mark.parametrize("options", [{"concurrency": 4}, {"lane_concurrency": 50}, {"lane_rate": 1e6}])
def test_tubes_with_limits_are_not_fetched_ahead_from(memory: Any, options: Any) -> None:
    most: list[int] = []

    @memory.handler("jobs", **options)
    def job(n: int) -> None:
        most.append(taken(memory))

    job.put_many([penstock.Entry(n, lane=str(n % 7)) for n in range(100)])
    assert work(memory, concurrency=4).ok == 100
    assert max(most) <= 4  # an ack is in the transaction that takes the next one, or in one before


def test_tubes_whose_tasks_have_lanes_are_not_fetched_ahead_from(memory: Any) -> None:
    """A lane may have limits of its own, which the tube does not know of."""
    most: list[int] = []

    @memory.handler("jobs")
    def job(n: int) -> None:
        most.append(taken(memory))

    job.put_many([penstock.Entry(n, lane=str(n % 7)) for n in range(100)])
    assert work(memory, concurrency=4).ok == 100
    assert max(most) <= 4  # an ack is in the transaction that takes the next one, or in one before


@on_both
def test_a_limit_that_is_set_while_a_worker_runs_counts(q: Any, often: None) -> None:
    @q.handler("jobs")
    def job(n: int) -> None:
        if n == 300:
            q.tube("jobs").alter(concurrency=50)

    job.put_many(range(300))
    with Working(q, concurrency=4, prefetch=32) as working:
        until(lambda: working.tally.ok == 300)
        job.put(300)
        until(lambda: working.tally.ok == 301)
        until(lambda: _puts_until_prompt(job, working, q))


def _puts_until_prompt(job: Any, working: Working, q: Any) -> bool:
    """Whether fifty tasks more are run without one being fetched ahead."""
    line = working.worker._slots.fetcher.lines["jobs"]  # type: ignore[union-attr]
    done = working.tally.ok
    job.put_many(range(50))
    until(lambda: working.tally.ok == done + 50)
    return line.is_prompt


# -- from where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, None])
def test_tubes_are_served_by_their_weights(memory: Any, prefetch: int | None) -> None:
    order: list[str] = []
    for name in ("often", "seldom"):

        @memory.handler(name)
        async def job(n: int, run: penstock.Run) -> None:
            order.append(run.task.tube)

        job.put_many(range(200))
    with Working(memory, tubes={"often": 3, "seldom": 1}, concurrency=4, prefetch=prefetch) as working:
        until(lambda: working.tally.ok == 400)
    share = Counter(order[:200])["often"] / 200
    assert 0.65 < share < 0.85


def test_a_tube_beside_one_that_never_ends_is_served(memory: Any) -> None:
    order: list[str] = []

    @memory.handler("flood")
    async def flood(n: int) -> None:
        order.append("flood")
        await asyncio.to_thread(flood.put, n)

    @memory.handler("small")
    async def small(n: int) -> None:
        order.append("small")

    flood.put_many(range(50))
    with Working(memory, concurrency=1, prefetch=0):
        until(lambda: len(order) > 200)
        for n in range(3):
            small.put(n)
            until(lambda n=n: order.count("small") == n + 1)


def test_a_tube_is_served_when_the_one_before_it_has_nothing(memory: Any) -> None:
    memory.handler("empty")(_nothing)

    @memory.handler("full")
    async def full(n: int) -> None: ...

    full.put_many(range(5))
    assert work(memory, concurrency=1, prefetch=0).ok == 5


def test_many_empty_tubes_beside_a_flood_cost_few_takes(q: Any, commits: Any) -> None:
    empty = [f"empty{n}" for n in range(8)]
    for name in empty:
        q.handler(name)(_nothing)

    @q.handler("flood")
    async def flood(n: int) -> None: ...

    flood.put_many(range(500))
    commits.clear()
    assert work(q, concurrency=4).ok == 500
    takes = Counter(op.tube for requests in commits for op in requests if isinstance(op, ops.Take))
    assert takes["empty7"] < takes["flood"]


async def _nothing(n: int) -> None: ...


def test_a_task_without_a_handler_is_buried_when_its_tube_was_asked_for(q: Any) -> None:
    stray = q.create_tube("stray")
    task = stray.put(1)
    with Working(q, tubes=["stray"]):
        found = until_state(stray, task.id, "buried")
    assert found.reason == "unknown_handler"
    assert "stray" in found.error


def test_a_tube_that_does_not_exist_and_has_no_handler_is_refused(q: Any) -> None:
    with pytest.raises(penstock.UsageError, match="'nowhere'"):
        work(q, tubes=["nowhere"])


@pytest.mark.parametrize("weights", [{"jobs": 0}, {"jobs": -1}, {"jobs": True}, {"jobs": "1"}, {"jobs": float("nan")}])
def test_weights_are_numbers_above_zero(weights: Any) -> None:
    with pytest.raises(penstock.UsageError, match="jobs"):
        penstock.Worker(penstock.connect("memory:"), tubes=weights)


def test_one_name_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(penstock.UsageError, match="jobs"):
        penstock.Worker(penstock.connect("memory:"), tubes="jobs")


# -- tubes that change -----------------------------------------------------------------------------------


def handled(q: Any, seen: list[Any], **options: Any) -> Any:
    @q.handler("jobs", **options)
    async def job(n: int) -> None:
        seen.append(n)

    return job


@on_both
def test_a_paused_tube_is_left_alone_until_it_is_resumed(q: Any) -> None:
    seen: list[int] = []
    job = handled(q, seen)
    with Working(q):
        job.put(1)
        until(lambda: seen == [1])
        q.tube("jobs").pause()
        job.put(2)
        other = q.handler("other")(_nothing)
        assert other is not None
        q.tube("jobs").resume()
        until(lambda: seen == [1, 2])


@on_both
def test_a_dropped_tube_is_taken_from_again_when_it_is_back(q: Any, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    job = handled(q, seen)
    with Working(q):
        job.put(1)
        until(lambda: seen == [1])
        q.tube("jobs").drop(force=True)
        until(lambda: "no tasks can be taken from tube 'jobs'" in caplog.text)
        q.create_tube("jobs").put(2)
        until(lambda: seen == [1, 2])


@on_both
def test_a_tube_that_is_dropped_under_a_running_handler_tells_it(q: Any, later: Later) -> None:
    told: list[str | None] = []

    @q.handler("jobs")
    async def job(n: int, run: penstock.Run) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(run.why)

    job.put(1)
    with Working(q) as working:
        until(lambda: working.tally.busy)
        q.tube("jobs").drop(force=True)
        later(30)  # it looks whether what it holds is still its own
        until(lambda: told == ["lost"])


def test_a_truncated_tube_goes_on(q: Any) -> None:
    seen: list[int] = []
    job = handled(q, seen)
    with Working(q):
        job.put(1)
        until(lambda: seen == [1])
        q.tube("jobs").truncate()
        job.put(2)
        until(lambda: seen == [1, 2])


# -- limits ----------------------------------------------------------------------------------------------


def test_the_rate_of_a_lane_counts_when_a_handler_starts(still_memory: Any, clock: Any) -> None:  # case 327
    q = still_memory
    started: list[tuple[int, int]] = []
    go_on = threading.Semaphore(0)

    @q.handler("jobs", lane_rate=1, lane_burst=1)
    def job(n: int) -> None:
        started.append((n, (clock.now() - start) // 1_000_000))
        assert go_on.acquire(timeout=PATIENCE)

    job.put_many([penstock.Entry(n, lane="a") for n in range(4)])
    start = clock.now()
    with Working(q, concurrency=1):
        until(lambda: len(started) == 1)
        clock.advance(10)  # a slow consumer: nothing was granted meanwhile
        assert taken(q) == 1
        go_on.release()
        until(lambda: len(started) == 2)
        go_on.release()
        until(lambda: not taken(q))
        clock.advance(0.9)
        assert len(started) == 2
        clock.advance(0.1)
        until(lambda: len(started) == 3)
        go_on.release(2)
        until(lambda: not taken(q))
        clock.advance(1)
        until(lambda: len(started) == 4)
    assert started == [(0, 0), (1, 10), (2, 11), (3, 12)]


@on_both
def test_a_lane_runs_one_task_at_a_time_and_in_order(q: Any) -> None:
    running: Counter[str] = Counter()
    worst: list[int] = []
    order: dict[str, list[int]] = {}

    @q.handler("jobs", lane_concurrency=1, lane_order="strict")
    async def job(n: int, run: penstock.Run) -> None:
        lane = run.task.lane
        running[lane] += 1
        worst.append(running[lane])
        order.setdefault(lane, []).append(n)
        await asyncio.sleep(0)
        running[lane] -= 1

    job.put_many([penstock.Entry(n, lane=f"lane {n % 5}") for n in range(100)])
    with Working(q, concurrency=4), Working(q, concurrency=4):
        until(lambda: not q.tube("jobs").statistics().tasks["total"])
    assert max(worst) == 1
    assert all(numbers == sorted(numbers) and len(numbers) == 20 for numbers in order.values())


@on_both
def test_concurrency_of_a_tube_holds_over_workers(q: Any) -> None:
    running = 0
    worst = 0
    lock = threading.Lock()

    @q.handler("jobs", concurrency=3)
    def job(n: int) -> None:
        nonlocal running, worst
        with lock:
            running += 1
            worst = max(worst, running)
        with lock:
            running -= 1

    job.put_many(range(60))
    with Working(q), Working(q):
        until(lambda: not q.tube("jobs").statistics().tasks["total"])
    assert worst <= 3


def test_many_tasks_that_become_due_at_one_moment_all_run(still_memory: Any, clock: Any) -> None:  # case 255
    seen: list[int] = []
    job = handled(still_memory, seen)
    job.put_many(range(1500), delay=60)
    with Working(still_memory, concurrency=50):
        until(lambda: waiting(still_memory))
        clock.advance(60)
        until(lambda: len(seen) == 1500)
    assert sorted(seen) == list(range(1500))


class Odd(penstock.Kind):
    """A kind whose hooks fail."""

    features = penstock.Features(delay=True)

    def on_finish(self, task: Any) -> None:
        raise RuntimeError("after the end")

    def retry_delay(self, *args: Any) -> Any:
        raise RuntimeError("before the end")


def test_hooks_that_fail_end_their_task_and_hold_up_no_other(memory: Any) -> None:
    memory.register_kind("odd", Odd)

    @memory.handler("odd", kind="odd", max_attempts=2)
    async def odd(n: int) -> None:
        if n == 1:
            raise ValueError(n)

    tasks = odd.put_many(range(3))
    assert work(memory).ok == 2
    (found,) = memory.tube("odd").tasks()
    assert (found.id, found.reason) == (tasks[1].id, "aborted")
    assert "before the end" in found.error
