"""What has been done before makes nothing longer or dearer: sizes of structures, and steps that a call takes."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import pytest
from tests.support.engines import ENGINES
from tests.support.invariants import check

import penstock
from penstock.engines.memory import MemoryStore, MemoryTube
from penstock.testing import ManualClock

ROUNDS = 2000


class Undo(Exception):
    """Raised by a test to roll back."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> Iterator[penstock.Queue]:
    with penstock.connect(ENGINES[0].url(Path()), clock=clock, session_ttl=10**6) as q:
        yield q
        check(q._engine.name)


def inside(tube: penstock.Tube) -> MemoryTube:
    store = tube._queue._engine.store
    assert isinstance(store, MemoryStore)
    return store.data.tubes[tube.name]


def longest(tube: penstock.Tube) -> dict[str, int]:
    """How long the structures of a tube are."""
    found = {name: len(value) for name, value in vars(inside(tube)).items() if isinstance(value, list | dict | set)}
    del found["counters"]
    found["waiting"] = max((len(lane.waiting) for lane in inside(tube)._lanes.values()), default=0)
    return found


def steps(call: Callable[[], Any]) -> int:
    """How many lines of Python a call runs in this thread, each turn of a loop counted; a call of C is none.

    Lines, because Python 3.12 does not report opcodes to the first function that is traced.
    """
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    old = sys.gettrace()
    gc.disable()  # what other tests have left may take steps of its own when it is collected
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(old)
        gc.enable()
    return count


# -- what is over leaves nothing behind in memory -----------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"lane": "a"}])
def test_tasks_that_are_done_leave_nothing_in_memory(memory, options):
    jobs = memory.create_tube("jobs", ttl=1000, ttr=100)
    jobs.put("stays", pri=9, **options)
    for number in range(ROUNDS):
        jobs.put(number, **options)
        jobs.take().ack()
    assert max(longest(jobs).values()) < 200, longest(jobs)
    assert jobs.take().data == "stays"


@pytest.mark.parametrize("lane", [None, "a"])
def test_a_task_touched_often_has_one_timer(memory, clock, lane):
    jobs = memory.create_tube("jobs", ttr=100)
    jobs.put_many([penstock.Entry(n, lane=lane) for n in range(2)])
    task = jobs.take()
    for _ in range(ROUNDS):
        task.touch(1)
    assert max(longest(jobs).values()) < 200, longest(jobs)
    clock.advance(ROUNDS + 99)
    assert jobs.peek(task.id).state == "taken"
    clock.advance(1)
    assert jobs.peek(task.id).state == "ready"


@pytest.mark.parametrize("lane", [None, "a"])
def test_a_task_given_back_often_stands_in_the_line_once(memory, lane):
    jobs = memory.create_tube("jobs")
    jobs.put_many([penstock.Entry(n, lane=lane) for n in range(3)])
    for number in range(ROUNDS):
        jobs.take().release(pri=-number)
    assert max(longest(jobs).values()) < 200, longest(jobs)
    assert [task.data for task in jobs.take_many(3)] == [0, 1, 2]


def test_a_lane_with_a_rate_wakes_once(memory, clock):
    jobs = memory.create_tube("jobs", lane_rate=1)
    jobs.put("stays", lane="a", pri=9)
    for number in range(ROUNDS):
        jobs.put(number, lane="a")
        jobs.take().ack()
        clock.advance(1)
    assert max(longest(jobs).values()) < 200, longest(jobs)


def test_lanes_that_are_empty_are_forgotten_after_a_truncate(memory, clock):
    jobs = memory.create_tube("jobs", lane_rate=1)
    jobs.put_many([penstock.Entry(n, lane=str(n)) for n in range(50)])
    assert len(jobs.take_many(50)) == 50
    jobs.truncate()
    clock.advance(2)
    assert longest(jobs)["_lanes"] == longest(jobs)["_wakes"] == 0


def test_a_long_tube_keeps_its_order_when_its_heaps_are_made_anew(memory, clock):
    jobs = memory.create_tube("jobs", ttl=1000)
    jobs.put_many([penstock.Entry(n, pri=n % 3, lane=(None, "a", "b")[n % 3]) for n in range(300)])
    for _ in range(ROUNDS):
        jobs.take().release()
    check(memory._engine.name)
    assert sorted(task.data for task in jobs.take_many(300)) == list(range(300))
    jobs.release_all()
    clock.advance(1000)
    assert jobs.statistics().tasks["total"] == 0


# -- transactions in memory ---------------------------------------------------------------------------------


def undone(q: penstock.Queue, work: Callable[[Any], Any]) -> None:
    try:
        with q.transaction() as tx:
            work(tx)
            raise Undo
    except Undo:
        pass


def test_a_transaction_in_memory_copies_no_task(memory):
    jobs, other = memory.create_tube("jobs", "utube"), memory.create_tube("other")
    costs = []
    for number in (20, 2000):
        for tube in (jobs, other):
            tube.put_many([penstock.Entry(n, lane=str(n % 4)) for n in range(number)])
        costs.append(steps(lambda: undone(memory, lambda tx: jobs.put(1, lane="x", transaction=tx))))
    short, long = costs
    assert long < short * 1.1 + 100


def test_a_transaction_in_memory_leaves_tubes_alone_that_it_does_not_touch(memory):
    jobs, other = memory.create_tube("jobs"), memory.create_tube("other")
    other.put(1)
    before = inside(other), inside(other)._records
    undone(memory, lambda tx: jobs.put(1, transaction=tx))
    assert (inside(other), inside(other)._records) == before
    assert inside(other) is before[0] and inside(other)._records is before[1]


def test_all_of_a_tube_is_as_it_was_after_a_rollback(memory, clock):
    jobs = memory.create_tube("jobs", ttr=50, lane_concurrency=2, lane_rate=5, lane_burst=3, history=True)
    jobs.put_many([penstock.Entry(n, lane="ab"[n % 2], key=str(n), put_id=str(n)) for n in range(8)])
    jobs.put("no lane")
    jobs.lane("b").configure(concurrency=1)
    held = jobs.take_many(3)
    jobs.bury(8)
    before = inside(jobs).image()
    events = memory.history(limit=100)

    def work(tx):
        jobs.ack_many(held, transaction=tx)
        jobs.put_many([penstock.Entry(n, lane="abc"[n % 3], delay=n) for n in range(6)], transaction=tx)
        jobs.put("again", key="5", on_conflict="replace", lane="c", transaction=tx)

    undone(memory, work)
    assert inside(jobs).image() == before
    assert memory.history(limit=100) == events
    assert jobs.put("next").id == 10
    check(memory._engine.name)
    clock.advance(50)
    assert jobs.statistics().tasks["taken"] == 0


# -- pause, alter and lists in memory -----------------------------------------------------------------------


def laned(q: penstock.Queue, number: int, **options: Any) -> penstock.Tube:
    jobs = q.create_tube(f"jobs{number}", lane_concurrency=1, **options)
    jobs.put_many([penstock.Entry(n, lane=str(n % (number // 4))) for n in range(number)])
    return jobs


@pytest.mark.parametrize(
    "call",
    [
        lambda jobs: jobs.pause(),
        lambda jobs: jobs.resume(),
        lambda jobs: jobs.alter(retry=5),
        lambda jobs: jobs.tasks(limit=5),
        lambda jobs: jobs.tasks("ready", limit=5),
        lambda jobs: jobs.kick(1),
        lambda jobs: jobs.release_all(),
    ],
    ids=["pause", "resume", "alter", "tasks", "tasks of a state", "kick", "release_all"],
)
def test_what_concerns_few_tasks_costs_the_same_in_a_long_tube(memory, call):
    costs = []
    for number in (40, 4000):
        jobs = laned(memory, number)
        jobs.bury(1)
        jobs.take()
        costs.append(steps(lambda jobs=jobs: call(jobs)))
    assert costs[1] < costs[0] * 1.1 + 100


def test_other_options_of_lanes_cost_one_look_at_each_task(memory):
    costs = [steps(lambda n=n: laned(memory, n).alter(lane_concurrency=2)) for n in (100, 1000)]
    assert costs[1] < costs[0] * 12


# -- lanes with much to do at once, in SQLite ---------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [5000, None])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("many", [500, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_a_lane_with_many_taken_tasks_costs_no_more_than_one_with_few(tmp_path: Path, concurrency, own, many):
    costs = []
    for number in (50, many):
        with penstock.connect(str(tmp_path / f"{number}.db"), durability="relaxed", clock=ManualClock()) as q:
            jobs = q.create_tube("jobs", lane_concurrency=None if own else concurrency)
            if own:
                jobs.lane("a").configure(concurrency=concurrency, paused=False)
            jobs.put_many([penstock.Entry(n, lane="a", key=str(n)) for n in range(number + 5)])
            held = jobs.take_many(number)
            cost: Counter[str] = Counter()

            def note(event: dict[str, Any], cost: Counter[str] = cost) -> None:
                cost["steps"] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

            q._engine.store._main.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)  # type: ignore[attr-defined]
            jobs.put("x", lane="a", key="x")
            jobs.take()
            held[0].ack()
            held[1].release()
            jobs.take(lane="a")
            costs.append(cost["steps"])
    assert 0 < costs[1] < costs[0] * 1.2 + 50, costs
