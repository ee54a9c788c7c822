"""Periodic tasks: when they are due, that each fire is put once, and what happens when things change meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.crash.children import Children, family
from tests.support import postgres
from tests.support.engines import ENGINES
from tests.worker import roles
from tests.worker.bench import PATIENCE, Working, pass_by, until
from tests.worker.conftest import DURABLE

import penstock
from penstock import UsageError, schedules, testing
from penstock.model.duration import SECOND
from penstock.schedules import SCHEDULES, Schedule, due, first, micros_of, new_schedule
from penstock.testing import ManualClock
from penstock.worker import schedule as firing

# -- when ------------------------------------------------------------------------------------------------


def cron(text: str, tz: str = "UTC", missed: str = "coalesce") -> Schedule:
    return new_schedule("s", "jobs", None, text, None, tz, missed, {})


def fires(text: str, tz: str, start: str, number: int) -> list[str]:
    """The local times at which a schedule fires, from a local time on."""
    zone = ZoneInfo(tz)
    schedule = first(cron(text, tz), micros_of(datetime.fromisoformat(start).replace(tzinfo=zone)))
    found = list[str]()
    for _ in range(number):
        found.append(datetime.fromtimestamp(schedule.next // SECOND, zone).isoformat()[:22])
        schedule = schedule._replace(next=schedule.after(schedule.next))
    return found


CHANGES = {
    "a time that is skipped comes when the gap is over": (
        *("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00"),
        ["2027-03-28T03:00:00+02", "2027-03-29T02:30:00+02", "2027-03-30T02:30:00+02"],
    ),
    "and is not mixed up with the one after": (
        *("15 2,3 * * *", "Europe/Berlin", "2027-03-27T12:00"),
        ["2027-03-28T03:00:00+02", "2027-03-28T03:15:00+02", "2027-03-29T02:15:00+02"],
    ),
    "a time that is repeated comes once": (
        *("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00"),
        ["2027-10-31T02:30:00+02", "2027-11-01T02:30:00+01", "2027-11-02T02:30:00+01"],
    ),
    "several of them too": (
        *("*/20 2 * * *", "Europe/Berlin", "2027-10-30T12:00"),
        [
            *("2027-10-31T02:00:00+02", "2027-10-31T02:20:00+02", "2027-10-31T02:40:00+02"),
            "2027-11-01T02:00:00+01",
        ],
    ),
    "the time after the repeated ones": (
        *("0 3 * * *", "Europe/Berlin", "2027-10-30T12:00"),
        ["2027-10-31T03:00:00+01", "2027-11-01T03:00:00+01"],
    ),
    "every hour is every hour when it is repeated": (
        *("0 * * * *", "Europe/Berlin", "2027-10-31T00:30"),
        ["2027-10-31T01:00:00+02", "2027-10-31T02:00:00+02", "2027-10-31T02:00:00+01", "2027-10-31T03:00:00+01"],
    ),
    "and when it is skipped": (
        *("*/30 * * * *", "Europe/Berlin", "2027-03-28T01:00"),
        ["2027-03-28T01:30:00+01", "2027-03-28T03:00:00+02", "2027-03-28T03:30:00+02"],
    ),
    "a gap in New York": (
        *("30 2 * * *", "America/New_York", "2027-03-13T12:00"),
        ["2027-03-14T03:00:00-04", "2027-03-15T02:30:00-04"],
    ),
    "a repeated hour in New York": (
        *("30 1 * * *", "America/New_York", "2027-11-06T12:00"),
        ["2027-11-07T01:30:00-04", "2027-11-08T01:30:00-05"],
    ),
    "half an hour on Lord Howe Island": (
        *("45 1 * * *", "Australia/Lord_Howe", "2027-04-03T12:00"),
        ["2027-04-04T01:45:00+11", "2027-04-05T01:45:00+10"],
    ),
    "no change at all": ("30 2 * * *", "Asia/Kolkata", "2027-03-27T12:00", ["2027-03-28T02:30:00+05"]),
}


@pytest.mark.parametrize("case", CHANGES.values(), ids=CHANGES)
def test_clock_changes(case: Any) -> None:
    text, tz, start, expected = case
    assert fires(text, tz, start, len(expected)) == expected


DAYS = {
    "Europe/Berlin": ("2027-03-27", "2027-10-30"),
    "America/New_York": ("2027-03-13", "2027-11-06"),
    "Australia/Lord_Howe": ("2027-04-03", "2027-10-02"),
    "UTC": ("2027-03-27",),
}


@pytest.mark.parametrize("tz", DAYS)
@pytest.mark.parametrize("text", ["30 2 * * *", "*/15 1-3 * * *", "0 0 * * *", "0 */6 * * *", "7 3 * * sun"])
def test_looking_back_finds_what_looking_ahead_found(text: str, tz: str) -> None:
    for day in DAYS[tz]:
        start = datetime.fromisoformat(day).replace(hour=20, tzinfo=ZoneInfo(tz))
        schedule = first(cron(text, tz), micros_of(start))
        while schedule.next < micros_of(start + timedelta(days=1, hours=12)):
            following = schedule.after(schedule.next)
            assert following > schedule.next
            for moment in (schedule.next, following - 1):
                assert due(schedule, moment) == ([schedule.next], following)
            schedule = schedule._replace(next=following)


def test_every_goes_on_from_the_last_fire_and_does_not_drift() -> None:
    schedule = new_schedule("s", "jobs", None, None, 10, "UTC", "coalesce", {})._replace(next=1000 * SECOND)
    assert due(schedule, 1003 * SECOND).next == 1010 * SECOND
    assert due(schedule, 1010 * SECOND) == ([1010 * SECOND], 1020 * SECOND)
    assert due(schedule, 5555 * SECOND).next == 5560 * SECOND


def test_what_becomes_of_fires_that_were_missed() -> None:
    hourly = first(cron("0 * * * *"), 0)
    late = hourly.next + 5 * 3600 * SECOND + 120 * SECOND
    assert due(hourly, late).moments == [late - 120 * SECOND]
    assert due(hourly._replace(missed="skip"), late).moments == []
    assert due(hourly._replace(missed="skip"), hourly.next + SECOND).moments == [hourly.next]
    assert len(due(hourly._replace(missed="all"), late).moments) == 6
    for missed in schedules.MISSED:
        assert due(hourly._replace(missed=missed), late).next == late - 120 * SECOND + 3600 * SECOND  # type: ignore[arg-type]


def test_very_many_missed_fires_are_put_in_parts() -> None:
    schedule = new_schedule("s", "jobs", None, None, 1, "UTC", "all", {})._replace(next=SECOND)
    fires = due(schedule, 10_000 * SECOND)
    assert len(fires.moments) == schedules.MOST_MISSED
    assert fires.next == (schedules.MOST_MISSED + 1) * SECOND


WRONG: dict[str, dict[str, Any]] = {
    "neither": {},
    "both": {"cron": "* * * * *", "every": 5},
    "empty": {"cron": ""},
    "four fields": {"cron": "* * * *"},
    "a year": {"cron": "0 0 1 1 * 0 2030"},
    "a minute that is not": {"cron": "60 * * * *"},
    "a date that is not": {"cron": "0 0 30 2 *"},
    "at random": {"cron": "R 3 * * *"},
    "no text": {"cron": 5},
    "zero": {"every": 0},
    "below zero": {"every": -1},
    "too often": {"every": 0.01},
    "never": {"every": float("inf")},
    "not a number": {"every": float("nan")},
    "text for seconds": {"every": "5"},
    "no such zone": {"cron": "0 3 * * *", "tz": "Mars/Olympus"},
    "a folder of zones": {"cron": "0 3 * * *", "tz": "Europe"},
    "a path": {"cron": "0 3 * * *", "tz": "../../etc/passwd"},
    "no zone": {"cron": "0 3 * * *", "tz": ""},
    "zone of another type": {"cron": "0 3 * * *", "tz": UTC},
    "no such way": {"every": 5, "missed": "sometimes"},
    "unknown option": {"every": 5, "prio": 1},
    "bad option": {"every": 5, "pri": "high"},
    "no data": {"every": 5, "data": object()},
    "bad tube": {"every": 5, "tube": "a b"},
    "bad name": {"every": 5, "name": ""},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_no_schedule_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with penstock.connect("memory:") as q:
        with pytest.raises(UsageError):
            q.schedule(**{"name": "s", "tube": "jobs", **wrong})
        assert q.schedules() == []


def test_lengths_of_time_may_be_timedeltas() -> None:
    with penstock.connect("memory:") as q:
        made = q.schedule("s", "jobs", every=timedelta(minutes=5), ttl=timedelta(hours=1))
        assert (made.every, made.options) == (300 * SECOND, {"ttl": 3600.0})


# -- by a worker -----------------------------------------------------------------------------------------


class Bench:
    """A store with a manual clock and a worker that fires its schedules."""

    def __init__(self, url: str, clock: ManualClock | None = None) -> None:
        self.url = url
        self.clock = clock or ManualClock()
        self.q = penstock.connect(url, durability="relaxed", clock=self.clock)
        self.tube = self.q.create_tube("jobs")

    def settle(self) -> int:
        """Wait until everything that is due was fired; answers how many tasks there are."""

        def is_settled() -> bool:
            tasks = self.q.tube(SCHEDULES).statistics().tasks
            return not tasks["ready"] and not tasks["taken"]

        until(is_settled)
        count: int = self.tube.statistics().tasks["total"]
        return count


@pytest.fixture(
    params=[
        pytest.param(engine, id=engine.name, marks=() if engine.durable else pytest.mark.exhaustive)
        for engine in ENGINES
    ]
)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    clock = ManualClock()
    with postgres.warmth():
        url = request.param.url(tmp_path, clock)
    bench = Bench(url, clock)
    yield bench
    bench.q.close()
    request.param.clean(url)


@pytest.fixture
def quick() -> Iterator[Any]:
    """The same in memory, for what the engine has no part in."""
    bench = Bench("memory:")
    yield bench
    bench.q.close()


def test_a_task_is_put_at_every_fire(bench: Any) -> None:
    made = bench.q.schedule("s", "jobs", {"of": "sales"}, every=60, pri=5, key="k", on_conflict="replace")
    assert (made.next_at - bench.q.schedules()[0].next_at) == timedelta(0)
    with Working(bench.q, tubes=[]):
        bench.clock.advance(59)
        assert bench.settle() == 0
        bench.clock.advance(1)
        assert bench.settle() == 1
    task = bench.tube.take()
    assert (task.data, task.pri, task.key) == ({"of": "sales"}, 5, "k")
    assert bench.q.schedules()[0].next_at == made.next_at + timedelta(seconds=60)


@pytest.mark.parametrize(("missed", "number"), [("coalesce", 1), ("skip", 0), ("all", 24)])
def test_fires_without_a_worker_are_missed(bench: Any, missed: Any, number: int) -> None:
    bench.q.schedule("s", "jobs", every=3600, missed=missed)
    bench.clock.advance(24 * 3600 + 1800)
    with Working(bench.q, tubes=[]):
        until(lambda: bench.settle() == number)
        bench.clock.advance(1800)
        until(lambda: bench.settle() == number + 1)


def test_a_change_of_the_definition_replaces_it_and_nothing_else_does(bench: Any) -> None:
    first = bench.q.schedule("s", "jobs", [1], every=60)
    bench.clock.advance(30)
    assert bench.q.schedule("s", "jobs", [1], every=60) == first
    second = bench.q.schedule("s", "jobs", [2], every=60)
    assert second.next == first.next + 30 * SECOND
    assert bench.q.schedules() == [second]


def test_overlapping_fires_are_put_once_while_the_last_one_lives(quick: Any) -> None:
    quick.q.schedule("s", "jobs", every=60, key="only", on_conflict="ignore")
    quick.q.schedule("t", "jobs", every=60, key="other")  # an error of the key is no error of the schedule
    with Working(quick.q, tubes=[]):
        for _ in range(3):
            quick.clock.advance(60)
            assert quick.settle() == 2
        for task in quick.tube.take_many(2):
            task.ack()
        quick.clock.advance(60)
        assert quick.settle() == 2


def test_a_schedule_goes_on_when_its_tube_is_back(quick: Any, caplog: pytest.LogCaptureFixture) -> None:
    quick.q.schedule("s", "nowhere", every=60)
    with Working(quick.q, tubes=[]):
        quick.clock.advance(60)
        quick.settle()
        until(lambda: "cannot put into tube 'nowhere'" in caplog.text)
        tube = quick.q.create_tube("nowhere")
        quick.clock.advance(60)
        quick.settle()
        assert tube.statistics().tasks["ready"] == 1


def test_a_schedule_that_fits_its_tube_no_more_is_told_of(quick: Any, caplog: pytest.LogCaptureFixture) -> None:
    plain = quick.q.create_tube("plain", "fifo")
    quick.q.schedule("s", "plain", every=60, pri=5)
    with Working(quick.q, tubes=[]):
        quick.clock.advance(60)
        quick.settle()
        until(lambda: "cannot put into tube 'plain'" in caplog.text or "could not put its task" in caplog.text)
        assert "pri" in caplog.text
    assert plain.statistics().tasks["total"] == 0
    assert quick.q.tube(SCHEDULES).statistics().tasks["delayed"] == 1


def test_what_is_no_schedule_is_buried(quick: Any) -> None:
    quick.q.schedule("s", "jobs", every=60)
    stray = quick.q.tube(SCHEDULES).put({"name": "odd"})
    with Working(quick.q, tubes=[]):
        until(lambda: quick.q.tube(SCHEDULES).peek(stray.id).state == "buried")


def test_unscheduling_ends_it(quick: Any) -> None:
    quick.q.schedule("s", "jobs", every=60)
    assert quick.q.unschedule("s")
    assert not quick.q.unschedule("s")
    assert quick.q.schedules() == []
    with Working(quick.q, tubes=[]):
        quick.clock.advance(600)
        assert quick.settle() == 0


@pytest.fixture
def firing_now(bench: Any) -> Any:
    """A schedule that somebody has taken in order to fire it."""
    bench.q.schedule("s", "jobs", 1, every=60)
    bench.clock.advance(60)
    other = penstock.connect(bench.url, durability="relaxed", clock=bench.clock)
    task = other.tube(SCHEDULES).take()
    assert task is not None
    yield other, task
    other.close()


def test_a_schedule_that_is_being_fired_can_be_replaced(bench: Any, firing_now: Any) -> None:
    other, task = firing_now
    made = bench.q.schedule("s", "jobs", 2, every=3600)
    assert bench.q.schedules() == [made]
    with pytest.raises(penstock.LeaseLost):
        task.release()
    assert other.tube(SCHEDULES).take() is None


def test_a_schedule_that_is_being_fired_can_be_removed_and_made_again(bench: Any, firing_now: Any) -> None:
    _, task = firing_now
    assert bench.q.unschedule("s")
    assert bench.q.schedules() == []
    with pytest.raises(penstock.LeaseLost):
        task.release()
    made = bench.q.schedule("s", "jobs", 1, every=60)
    assert bench.q.schedules() == [made]


def test_a_schedule_that_was_asked_to_cancel_is_made_again(bench: Any, firing_now: Any) -> None:
    bench.q.tube(SCHEDULES).cancel(key="s")
    made = bench.q.schedule("s", "jobs", 1, every=60)
    (found,) = bench.q.tube(SCHEDULES).tasks()
    assert (found.state, found.cancel_asked) == ("delayed", False)
    assert bench.q.schedules() == [made]


def test_a_buried_schedule_is_revived_by_defining_it(bench: Any, firing_now: Any) -> None:
    _, task = firing_now
    task.bury("by hand")
    bench.q.schedule("s", "jobs", 1, every=60)
    assert bench.q.tube(SCHEDULES).tasks()[0].state == "delayed"


def test_a_scheduler_that_dies_in_the_middle_fires_once(bench: Any, firing_now: Any) -> None:
    other, _ = firing_now
    testing.lose(other)
    with Working(bench.q, tubes=[]):
        bench.clock.advance(31)
        assert bench.settle() == 1


def test_a_fire_that_the_store_does_not_take_is_tried_again(bench: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(firing, "AGAIN", 5.0)
    failures = threading.Semaphore(2)
    put = firing.Scheduler._put

    def fail(self: Any, schedule: Any, moments: Any) -> Any:
        if failures.acquire(blocking=False):
            raise penstock.EngineUnavailable("the store is gone")
        return put(self, schedule, moments)

    monkeypatch.setattr(firing.Scheduler, "_put", fail)
    bench.q.schedule("s", "jobs", every=3600)
    with Working(bench.q, tubes=[]):
        bench.clock.advance(3600)
        for _ in range(2):
            assert bench.settle() == 0
            bench.clock.advance(5)
        assert bench.settle() == 1
    assert bench.q.tube(SCHEDULES).statistics().tasks["delayed"] == 1


def test_schedules_are_fired_although_every_slot_is_busy(quick: Any) -> None:
    go_on, inside = threading.Event(), threading.Event()

    @quick.q.handler("slow")
    def slow(n: int) -> None:
        inside.set()
        assert go_on.wait(PATIENCE)

    slow.put(1)
    quick.q.schedule("s", "jobs", every=60)
    with Working(quick.q, concurrency=1) as working:
        assert inside.wait(PATIENCE)
        quick.clock.advance(60)
        assert quick.settle() == 1
        go_on.set()
        until(lambda: working.tally.ok == 1)
    assert list(working.tally.tubes) == ["slow"]  # a fire is no run of a handler


def test_hundreds_of_schedules_that_are_due_at_once_are_all_fired(tmp_path: Path) -> None:
    clock = ManualClock()
    with penstock.connect("memory:", clock=clock) as q:
        tube = q.create_tube("jobs")
        for n in range(300):
            q.schedule(f"s{n}", "jobs", n, every=60)
        with Working(q, tubes=[]):
            clock.advance(60)
            until(lambda: tube.statistics().tasks["ready"] == 300)
        assert len(q.schedules()) == 300
        assert {task.data for task in tube.take_many(300)} == set(range(300))


def test_a_periodic_handler_is_scheduled_by_its_worker(quick: Any) -> None:
    seen: list[Any] = []

    @quick.q.periodic("beat", every=60, data="now", put={"ttl": 30}, max_attempts=3)
    def beat(data: str, run: penstock.Run) -> None:
        seen.append((data, run.task.max_attempts))

    assert quick.q.schedules() == []
    with Working(quick.q):
        until(lambda: quick.q.schedules())
        quick.clock.advance(60)
        until(lambda: seen == [("now", 3)])


def test_defining_a_periodic_handler_again_replaces_its_schedule() -> None:
    with penstock.connect("memory:") as q:
        for every in (60, 120):

            @q.periodic("beat", every=every)
            def beat(data: Any) -> None: ...

        assert [schedule.every for schedule in q.handlers.schedules] == [120 * SECOND]


def test_one_shot_mode_fires_nothing(quick: Any) -> None:
    quick.q.schedule("s", "jobs", every=60)
    quick.clock.advance(600)
    penstock.Worker(quick.q, tubes=["jobs"]).run(until_empty=True, signals=False)
    assert quick.tube.statistics().tasks["total"] == 0


# -- endless tasks ---------------------------------------------------------------------------------------


def test_an_endless_task_waits_its_period_and_is_not_worn_out(bench: Any) -> None:  # cases 280, 299
    runs: list[int] = []

    @bench.q.handler("endless", max_attempts=2, ttl=100)
    def endless(n: int, run: penstock.Run) -> None:
        runs.append(run.attempt)

    endless.put(1, repeat=60)
    with Working(bench.q):
        for n in range(5):
            until(lambda n=n: len(runs) == n + 1)
            until(lambda: bench.q.tube("endless").statistics().tasks["delayed"] == 1)
            bench.clock.advance(60)
        until(lambda: len(runs) == 6)
    assert runs == [1] * 6


def test_a_lost_endless_task_is_offered_again(quick: Any) -> None:  # case 289
    runs: list[int] = []
    told = threading.Event()

    @quick.q.handler("endless", max_attempts=5)
    def endless(n: int, run: penstock.Run) -> None:
        runs.append(run.attempt)
        if len(runs) == 1:
            assert run.wait(PATIENCE)
            told.set()

    task = endless.put(1, repeat=60)
    with Working(quick.q) as working:
        until(lambda: runs)
        quick.q.tube("endless").snatch(task.id)
        working.worker._slots.fetcher.check([run.task for run in working.worker._slots.running])  # type: ignore[union-attr]
        assert told.wait(PATIENCE)
        until(lambda: len(runs) == 2)
        until(lambda: quick.q.tube("endless").statistics().tasks["delayed"] == 1)
    assert runs == [1, 2]


# -- processes -------------------------------------------------------------------------------------------


@pytest.fixture
def children() -> Iterator[Children]:
    with family() as children:
        yield children


# A schedule fires ten times a second at most.
@pytest.mark.parametrize("fires", [4, pytest.param(50, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("engine", DURABLE, ids=lambda engine: engine.name)
def test_three_processes_put_each_fire_once(engine: Any, tmp_path: Path, children: Children, fires: int) -> None:
    url = engine.url(tmp_path)
    with penstock.connect(url, durability="relaxed") as q:
        tube = q.create_tube("jobs", history=True)
        start = q.schedule("s", "jobs", every=0.1, missed="all").next
        workers = [children.start(roles.program, url, {"tubes": []}, {}) for _ in range(3)]
        sessions = [child.line()[1] for child in workers]
        until(lambda: tube.statistics().tasks["ready"] >= fires)
        workers[0].kill()
        pass_by(q, sessions[0])
        before = tube.statistics().tasks["ready"]
        until(lambda: tube.statistics().tasks["ready"] >= before + fires)
        for child in workers[1:]:
            os.kill(child.pid, signal.SIGTERM)
            child.rest()
        (schedule,) = q.schedules()
        puts = Counter(event.event for event in q.history(tube="jobs", limit=100_000))["put"]
        assert puts == (schedule.next - start) // (SECOND // 10)
    engine.clean(url)
