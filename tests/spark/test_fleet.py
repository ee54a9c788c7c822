"""Fleets: the tasks of a Spark job are workers."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark import crews
from tests.spark.past import history
from tests.support.engines import ENGINES
from tests.worker.bench import until

import penstock
from penstock.model import ops
from penstock.spark import fleets

PATIENCE = 600.0
LONG = 3600
"""Seconds a session outlives its process: a test that had to wait for that would not end."""
MANY = 20
"""Attempts, of which none but the last need succeed on a machine that stands still now and then."""

fleet = functools.partial(penstock.spark.fleet, session_ttl=LONG)
"""A worker that gets no time for half a minute would lose its tasks otherwise, and every task is counted."""


@pytest.fixture(params=[engine for engine in ENGINES if engine.durable], ids=lambda engine: engine.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty place on every engine that many processes can share."""
    found = request.param.url(tmp_path)
    yield found
    request.param.clean(found)


def only(name: str) -> pytest.MarkDecorator:
    """For tests of what Spark does: what the store does then is in test_roster.py, on every engine."""
    return pytest.mark.parametrize("url", [one for one in ENGINES if one.name == name], indirect=True, ids=[name])


POSTGRES_FIRST = pytest.mark.parametrize(
    "url",
    [
        pytest.param(one, id=one.name, marks=pytest.mark.exhaustive if one.name == "sqlite" else ())
        for one in ENGINES
        if one.durable
    ],
    indirect=True,
)
"""For tests that wait for real seconds."""


@pytest.fixture
def q(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url) as queue:
        yield queue
        assert queue._engine.execute(ops.ListLedgers("fleet:")) == [], "a fleet leaves no notes behind"


def filled(q: penstock.Queue, data: list[Any], **options: Any) -> penstock.Tube:
    tube = q.create_tube("jobs", **{"keep": True, "history": True, **options})
    tube.put_many(data)
    return tube


def results(done: Any) -> dict[int, Any]:
    return {json.loads(row.data): json.loads(row.result) for row in done.results().collect() if row.result}


def test_every_task_is_done_once_and_its_result_is_a_row(spark: Any, url: str, q: Any) -> None:
    tube = filled(q, list(range(40)))
    done = fleet(spark, url, "jobs", "tests.spark.crews:square", workers=2, slots=4)
    assert done.counts == penstock.spark.Counts(taken=40, done=40)
    assert results(done) == {n: n * n for n in range(40)}
    workers = {event.worker for event in history(q, 120) if event.event == "take"}
    assert workers <= {f"spark:{done.run}:0", f"spark:{done.run}:1"}
    assert tube.statistics().tasks["kept"] == 40
    for data in ("again", "before"):
        tube.put(data)
        tube.take().bury()
    tube.kick(1)
    tube.put(50)
    done = fleet(spark, url, "jobs", crews.square, workers=1)
    rows = {json.loads(row.data): (row.state, row.result) for row in done.results().collect()}
    assert rows == {50: ("done", "2500"), "again": ("buried", None)}, "those of this fleet"


def test_all_kinds_of_functions_are_handlers(spark: Any, tmp_path: Path) -> None:
    """Functions of modules, async ones, handlers of a queue, and those without a name, which Spark ships."""
    url = str(tmp_path / "tasks.db")
    with penstock.connect(url) as q:
        tube = q.create_tube("jobs")
        for handler in (crews.square_later, crews.square_order, lambda n: n * n):
            tube.put_many(range(5))
            assert results(fleet(spark, url, "jobs", handler, workers=1, keep=60)) == {n: n * n for n in range(5)}


@only("sqlite")
def test_the_handler_of_a_queue_is_found_by_the_name_of_the_queue(spark: Any, url: str, q: Any) -> None:
    with pytest.raises(penstock.UsageError, match="has no handler for tube 'jobs'; it has handlers for orders"):
        fleet(spark, url, "jobs", "tests.spark.crews:Shop.q")
    first = q.create_tube("orders", keep=True).put(7)
    done = fleet(spark, url, "orders", "tests.spark.crews:Shop.q", workers=1)
    assert (done.counts.done, q.tube("orders")._config.max_attempts) == (1, 2)
    assert q.tube("orders").result(first.id) == "order 7, noted"


def test_what_fails_is_tried_again_and_buried_after_the_last_attempt(spark: Any, url: str, q: Any) -> None:
    filled(q, list(range(20)), max_attempts=3, retry=0)
    seen = list[Any]()
    done = fleet(spark, url, "jobs", crews.fussy, workers=2, progress=seen.append)
    counts = done.counts
    assert (counts.done, counts.failed, counts.buried, counts.left) == (16, 8 + 4 * 3, 4, 0)
    rows = {json.loads(row.data): (row.state, row.reason, row.error) for row in done.results().collect()}
    assert rows[15][:2] == ("buried", "no_attempts") and "15 in attempt 3" in rows[15][2]
    assert rows[7][:2] == ("done", "success")
    assert all(counts.taken >= earlier.taken for earlier in seen)


def test_limits_of_lanes_hold_over_all_workers(spark: Any, url: str, q: Any) -> None:
    tube = q.create_tube("jobs", history=True, lane_concurrency=1, lane_rate=20)
    tube.put_many([penstock.Entry(n, lane=f"site {n % 3}") for n in range(30)])
    assert fleet(spark, url, "jobs", crews.square, workers=2).counts.done == 30
    lanes: dict[str, list[Any]] = {}
    for event in history(q, 90):
        if event.event in ("take", "ack"):
            lanes.setdefault(event.lane, []).append(event)
    for events in lanes.values():
        assert [event.event for event in events] == ["take", "ack"] * 10
        moments = [event.taken_at.timestamp() for event in events if event.event == "take"]
        assert min(later - earlier for earlier, later in pairwise(moments)) >= 0.05 - 1e-5


def test_handlers_put_more_tasks_and_none_twice(spark: Any, url: str, q: Any) -> None:
    tube = filled(q, [])
    tube.put(1, key="1", put_id="1")
    done = fleet(spark, url, "jobs", crews.spread, workers=2)
    assert done.counts.done == 49
    assert sorted(task.data for task in tube.tasks(limit=100)) == list(range(1, 50))


@only("postgres")
def test_a_killed_process_loses_nothing_and_a_task_that_kills_is_buried(spark: Any, url: str, q: Any) -> None:
    tube = filled(q, list(range(10)), max_attempts=2)
    done = fleet(spark, url, "jobs", crews.fragile, workers=2, slots=1)
    tasks = {task.data: task for task in tube.tasks(limit=100)}
    assert (tasks[4].state, tasks[4].reason) == ("buried", "lost")
    assert tasks[3].attempt == 2
    assert {n for n, task in tasks.items() if task.state == "done"} == set(range(10)) - {4}
    assert (done.counts.done, done.counts.buried, done.counts.left) == (9, 1, 0)


@POSTGRES_FIRST
def test_an_attempt_that_outlasts_its_lease_counts_no_more(spark: Any, url: str, q: Any) -> None:
    tube = filled(q, [1, 2], max_attempts=MANY, retry=0, ttr=1)
    done = fleet(spark, url, "jobs", crews.late, workers=2, attempt_limit=1)
    assert results(done) == {1: "in time", 2: "in time"}
    attempts = [task.attempt for task in tube.tasks()]
    # On a machine that stands still for a second a later attempt outlasts its lease as well.
    assert min(attempts) >= 2 and done.counts.taken == sum(attempts)
    assert (done.counts.done, done.counts.late) == (2, sum(attempts) - 2)


@POSTGRES_FIRST
def test_a_handler_may_take_longer_than_its_session_lives_without_a_sign(spark: Any, url: str, q: Any) -> None:
    filled(q, [2.5], max_attempts=MANY)
    done = fleet(spark, url, "jobs", crews.long, workers=1, session_ttl=1)
    # Without signs of life no attempt would come to its end; a machine that stands still for a second may lose some.
    assert (done.counts.done, done.counts.buried) == (1, 0) and results(done) == {2.5: "whole"}


def stopped(spark: Any, url: str, folder: Path, workers: int, **options: Any) -> tuple[threading.Thread, list[Any]]:
    """Start a fleet of handlers that only wait, and come back once they do; what it will have raised."""
    raised = list[BaseException]()

    def run() -> None:
        try:
            fleet(spark, url, "jobs", crews.hold, workers=workers, slots=1, **options)
        except BaseException as error:
            raised.append(error)

    folder.mkdir()
    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: len(list(folder.iterdir())) >= workers, PATIENCE)
    return thread, raised


def test_a_cancelled_job_gives_its_tasks_back(spark: Any, tmp_path: Path) -> None:
    """On every store at one time: Spark cancels all jobs that it has."""
    places = [(engine, engine.url(tmp_path), tmp_path / engine.name) for engine in ENGINES if engine.durable]
    fleets = list[Any]()
    for _, url, folder in places:
        with penstock.connect(url) as q:
            filled(q, [str(folder)] * 3, max_attempts=1)
        fleets.append(stopped(spark, url, folder, workers=1))
    spark.sparkContext.cancelAllJobs()
    for (engine, url, _), (thread, raised) in zip(places, fleets, strict=True):
        thread.join(PATIENCE)
        assert not thread.is_alive() and "was given back" in "".join(raised[0].__notes__)
        with penstock.connect(url) as q:
            assert [(task.state, task.attempt) for task in q.tube("jobs").tasks()] == [("ready", 0)] * 3
            assert q._engine.execute(ops.ListLedgers("fleet:")) == []
        engine.clean(url)


@only("postgres")
def test_a_fleet_ends_when_its_time_is_over(spark: Any, url: str, q: Any, tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "begun"
    tube = filled(q, [str(folder)] * 4, max_attempts=1)
    hours = count()

    def monotonic() -> float:
        """The clock of the driver: once a handler runs, an hour goes by between two looks."""
        return time.monotonic() + 3600 * (next(hours) if any(folder.iterdir()) else 0)

    monkeypatch.setattr(fleets, "time", SimpleNamespace(**{**vars(time), "monotonic": monotonic}))
    thread, raised = stopped(spark, url, folder, workers=1, max_runtime=3000, grace=0)
    thread.join(PATIENCE)
    assert not thread.is_alive() and raised == []
    assert [(task.state, task.attempt) for task in tube.tasks()] == [("ready", 0)] * 4


def test_what_cannot_work_is_refused_before_the_job(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "tasks.db")
    lock = threading.Lock()

    def needs_a_lock(n: int) -> None:
        with lock:
            pass

    for handler, named in (
        ("square", "module:function"),
        ("tests.spark.nowhere:square", "there is no module 'tests.spark.nowhere'"),
        ("tests.spark.crews:nothing", "has no 'nothing'"),
        ("tests.spark.crews:PATIENCE", "a handler is a function"),
        (7, "a handler is a function"),
        (needs_a_lock, "cannot be sent to executors"),
    ):
        with pytest.raises(penstock.UsageError, match=named):
            fleet(spark, url, "jobs", handler)
    for place, named in (("memory:", "memory of one process"), ("postgresql://ann:secret@h/d", "password")):
        with pytest.raises(penstock.UsageError, match=named):
            fleet(spark, place, "jobs", crews.square)
    with pytest.raises(penstock.UsageError, match="workers"):
        fleet(spark, url, "jobs", crews.square, workers=0)
    with pytest.raises(penstock.UsageError, match="unknown option 'speed'"):
        fleet(spark, url, "jobs", crews.square, speed=7)
