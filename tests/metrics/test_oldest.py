"""How long the oldest ready task has waited, and what it costs to know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.plans.test_plans import Meter as Steps
from tests.plans.test_postgres_plans import Meter as Pages
from tests.plans.test_postgres_plans import load
from tests.postgres.callers import Caller
from tests.support import postgres
from tests.support.blocking import unwrap
from tests.support.engines import parameters
from tests.worker.bench import Bench
from tests.worker.conftest import ONE_EACH

import penstock
from penstock.metrics import reading
from penstock.metrics.reading import Reader
from penstock.model import ops
from penstock.testing import ManualClock


class Still(Bench):
    """A store whose clock stands still."""

    manual = True


@pytest.fixture(params=parameters(ONE_EACH, in_every_run=("sqlite-async", "postgres-blocking")))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    engine, colour = request.param
    with postgres.warmth():
        bench = Still(engine, colour, tmp_path, ManualClock())
    yield bench
    bench.close()


class Watched:
    """A queue with a clock that stands still, and a reader of it."""

    def __init__(self, bench: Any) -> None:
        self.clock = bench.clock
        self.q = bench.connect(clock=self.clock)
        self.reader = Reader(unwrap(self.q))

    def oldest(self) -> dict[str, float]:
        seen = self.reader.read(30)
        assert seen.statistics is not None
        return seen.oldest


@pytest.fixture
def watched(bench: Any) -> Watched:
    return Watched(bench)


def test_it_is_the_age_of_the_first_that_is_ready(watched: Watched) -> None:
    jobs = watched.q.create_tube("jobs")
    watched.q.create_tube("idle")
    assert watched.oldest() == {"jobs": 0, "idle": 0}
    jobs.put(1)
    watched.clock.advance(20)
    jobs.put(2)
    watched.clock.advance(2.5)
    assert watched.oldest() == {"jobs": 22.5, "idle": 0}
    jobs.take()
    assert watched.oldest()["jobs"] == 2.5
    jobs.take()
    assert watched.oldest()["jobs"] == 0


def test_a_delayed_task_waits_from_when_it_is_due(watched: Watched) -> None:
    jobs = watched.q.create_tube("jobs")
    jobs.put(1, delay=10)
    watched.clock.advance(5)
    assert watched.oldest()["jobs"] == 0
    watched.clock.advance(7)
    assert watched.oldest()["jobs"] == 2


def test_a_task_that_nobody_wants_is_seen_behind_better_ones(watched: Watched) -> None:
    jobs = watched.q.create_tube("jobs")
    jobs.put("low", pri=9)
    watched.clock.advance(60)
    jobs.put("high", pri=0)
    assert watched.oldest()["jobs"] == 60


@pytest.mark.parametrize("ids", ["auto", "time64", "uuid", "required"])
def test_tasks_of_every_kind_of_id_are_found(watched: Watched, monkeypatch: pytest.MonkeyPatch, ids: str) -> None:
    monkeypatch.setattr(reading, "FEW", 0)
    jobs = watched.q.create_tube("jobs", id=ids)
    own = {"id": 1} if ids == "required" else {}
    jobs.put(1, **own)
    taken = jobs.take()
    for n in (2, 3):
        jobs.put(n, **({"id": n} if own else {}))
        watched.clock.advance(1)
    assert [watched.oldest()["jobs"] for _ in range(3)] == [2, 2, 2]
    taken.ack()
    jobs.take()
    assert watched.oldest()["jobs"] == 1


def test_what_comes_back_is_found_by_a_look_at_the_whole(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FEW", 0)
    jobs = watched.q.create_tube("jobs")
    jobs.put_many([1, 2])
    first, _ = jobs.take_many(2)
    watched.clock.advance(10)
    jobs.put(3)
    watched.clock.advance(1)
    assert watched.oldest()["jobs"] == 1
    first.release()
    watched.clock.advance(2)
    looks = [watched.oldest()["jobs"] for _ in range(reading.WHOLE)]
    # A task waits from when it became ready again.
    assert looks == [3] * (reading.WHOLE - 1) + [2]


def test_where_all_that_is_ready_came_back_it_is_found_at_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FEW", 0)
    jobs = watched.q.create_tube("jobs")
    jobs.put(1)
    first = jobs.take()
    jobs.put(2)
    watched.clock.advance(1)
    assert watched.oldest()["jobs"] == 1
    jobs.take()
    first.release()
    watched.clock.advance(2)
    assert watched.oldest()["jobs"] == 2


def test_a_tube_that_is_dropped_meanwhile_is_left_out(watched: Watched) -> None:
    jobs = watched.q.create_tube("jobs")
    watched.q.create_tube("other").put(1)
    jobs.put(1)
    statistics = watched.q.statistics()
    jobs.drop()
    oldest = reading.Oldest(getattr(unwrap(watched.q)._engine, "engine", unwrap(watched.q)._engine))
    assert set(oldest.ages(statistics)) == {"other"}


# -- cost ----------------------------------------------------------------------------------------------


def test_on_sqlite_a_look_costs_the_same_on_a_long_tube(tmp_path: Any) -> None:
    costs = []
    for number in (10, 5000):
        with penstock.connect(tmp_path / f"{number}.db", durability="relaxed", clock=ManualClock()) as q:
            jobs = q.create_tube("jobs")
            jobs.load(range(1200), keep=True)
            jobs.ack_many(jobs.take_many(1200))
            jobs.load(range(number))
            reader, meter = Reader(q), Steps(q)
            reader.read(30)
            costs.append(meter.of(lambda reader=reader: reader.read(30))["VM_STEP"])
            assert reader.read(30).statistics["jobs"].tasks == {**jobs.statistics().tasks, "ready": number}
    assert 0 < costs[1] <= costs[0] * 1.5 + 50
    assert costs[1] < 1200  # what is kept is not stepped over again


@pytest.mark.exhaustive
def test_on_postgresql_a_look_costs_the_same_on_a_long_tube() -> None:
    costs = []
    for number in (1000, 20_000):
        url = postgres.place()
        with penstock.connect(url, durability="relaxed") as q:
            q.create_tube("jobs", "fifottl")
        caller = Caller(url, "jobs")
        load(caller, number, lanes=False, delay=True)
        caller.connection.execute("analyze")  # as the server does by itself
        meter = Pages(url)
        meter.of("first", lambda: [ops.ListTasks("jobs", penstock.State.READY, 1)])
        meter.of("marked", lambda number=number: [ops.ListTasks("jobs", penstock.State.READY, 1, number - 1)])
        costs.append(meter.costs)
        meter.caller.close()
        caller.close()
        postgres.drop_place(url)
    short, long = costs
    for what, pages in long.items():
        assert pages <= 2 * short[what] + 40, (what, short, long)
