"""Drivers that are killed, or stand still, at every point that matters: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.spark import faulty, fragile
from tests.spark.driver import HERE, Driver
from tests.spark.lines import Lines
from tests.spark.places import PLACES, check_once, found
from tests.spark.queries import finish
from tests.support import postgres

import penstock
from penstock.model import ops

ROWS, BATCH = 200, 20
"""Of the driver's writes, and of the files that its streams read."""
TASKS = 8
What = tuple[str, str]
"""What stands still, and at which point."""
STORES: dict[What, str] = {
    ("batch", "before"): "postgres",
    ("batch", "after"): "sqlite",
    ("sink", "before"): "sqlite",
    ("sink", "after"): "postgres",
    ("tasks", "claimed"): "postgres",
    ("tasks", "written"): "sqlite",
    ("tasks", "committed"): "postgres",
}
"""In which store: what differs between stores is tested without Spark."""
IN_EVERY_RUN = {("batch", "before"), ("tasks", "written")}
"""The other points are exhaustive: test_jobs.py and test_stream_calls.py have all of them, without Spark."""


def points(kind: str) -> pytest.MarkDecorator:
    """Run a test at each point."""
    marks = dict.fromkeys(IN_EVERY_RUN, ())
    whats = [what for what in STORES if what[0] == kind]
    return pytest.mark.parametrize(
        "what", [pytest.param(what, id=what[1], marks=marks.get(what, pytest.mark.exhaustive)) for what in whats]
    )


class Killed(NamedTuple):
    """What a driver has left behind of one thing that it did."""

    queue: Any
    url: str
    tube: str
    folder: Path
    staged: list[int]
    """Attempts of each run that has staged rows."""


@pytest.fixture(scope="module")
def killed(
    driver: Driver, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[What, Killed]]:
    """One driver that is killed in the midst of all that it does, which is what the tests of this run ask for."""
    tests = [item for item in request.session.items if "killed" in getattr(item, "fixturenames", ())]
    asked = {test.callspec.params["what"] for test in tests}  # type: ignore[attr-defined]
    with ExitStack() as stack:
        stores = {place.name: place.url(tmp_path_factory.mktemp(place.name)) for place in PLACES}
        queues = {name: stack.enter_context(penstock.connect(url)) for name, url in stores.items()}
        things = dict[What, Killed]()
        for kind, point in sorted(asked):
            name, store = f"{kind}-{point}", STORES[kind, point]
            tube = queues[store].create_tube(name, keep=True)
            if kind == "tasks":
                tube.put_many(range(TASKS))
            things[kind, point] = Killed(queues[store], stores[store], name, tmp_path_factory.mktemp(name), [])
        words = [[*what, thing.url, str(thing.folder)] for what, thing in things.items()]
        assert driver.on(HERE).ask("stand", words) == "all stand"
        driver.kill()
        for thing in things.values():
            # Spark's own processes may outlive it for a moment, and must do nothing in it.
            with suppress(ProcessLookupError):
                os.kill(int((thing.folder / fragile.MARK).read_text()), signal.SIGKILL)
            staged = thing.queue._engine.execute(ops.ListStaged())
            thing.staged.extend(job.parts for job in staged if job.tube == thing.tube)
        yield things


@points("batch")
def test_a_write_whose_driver_was_killed_is_run_again(spark, killed, what):
    (_, point), (queue, url, tube, _, staged) = what, killed[what]
    assert len(found(queue, tube)) == (0 if point == "before" else ROWS)
    assert staged == ([2] if point == "before" else [])
    frame = spark.range(ROWS, numPartitions=3).selectExpr("cast(id as string) as data")
    frame.write.format("penstock").mode("append").options(url=url, tube=tube, jobId=tube).save()
    check_once(queue, ROWS, tube)


@points("sink")
def test_a_stream_into_a_tube_whose_driver_was_killed_goes_on(spark, killed, what):
    (_, point), (queue, url, tube, folder, _) = what, killed[what]
    assert (folder / "a/offsets/0").exists() and not (folder / "a/commits/0").exists(), "Spark does not know of it"
    assert len(found(queue, tube)) == (0 if point == "before" else BATCH)
    lines = Lines(spark, folder)
    lines.add(BATCH)
    lines.run(url, tube=tube, sinkId=tube, partitions=3)
    check_once(queue, 2 * BATCH, tube)
    assert [note.number for note in queue._engine.execute(ops.ReadLedger(f"sink:{tube}"))] == [0, 1]


@points("tasks")
def test_a_stream_of_tasks_whose_driver_was_killed_goes_on_where_it_was(spark, killed, what):
    (_, point), (queue, url, tube, folder, _) = what, killed[what]
    tasks = queue.tube(tube)
    assert (tasks.statistics().tasks["taken"], tasks.statistics().tasks["kept"]) == (3, 0)
    files = {kind: (folder / f"checkpoint/{kind}/0").exists() for kind in ("offsets", "commits")}
    assert files == {"offsets": point != "claimed", "commits": point == "committed"}
    fragile.run(spark, url, tube, folder)
    seen = [json.loads(line) for line in (folder / "seen").read_text().splitlines()]
    assert [number for number, _ in seen] == ([0, 0, 1, 2] if point == "written" else [0, 1, 2])
    assert point != "written" or seen[0] == seen[1]
    handled = [row for path in folder.glob("batch-*") for row in json.loads(path.read_text())]
    assert sorted(handled) == [[number + 1, number] for number in range(TASKS)]
    assert [(task.data, task.state, task.attempt) for task in tasks.tasks()] == [(n, "done", 1) for n in range(TASKS)]
    acked = queue._engine.execute(ops.ReadLedger(f"acked:{tube}"))
    assert sum(json.loads(note.text)["lost"] for note in acked) == 0


@pytest.mark.exhaustive
def test_a_driver_that_stands_still_past_its_lease_loses_its_tasks_to_others(spark, tmp_path):
    url = postgres.lent_place()
    with penstock.connect(url) as q:
        jobs = q.create_tube("jobs", keep=True)
        jobs.put_many(range(2))
        spark.dataSource.register(fragile.FragileSource)
        options = {"url": url, "tube": "jobs", "streamId": "s", "lease": "1", "reader": str(tmp_path / "reader")}
        taken = []

        def stand_still(frame, number):
            if number:
                return
            reader = int((tmp_path / "reader").read_text())
            os.kill(reader, signal.SIGSTOP)
            try:
                taken.append(jobs.take(timeout=faulty.PATIENCE))
            finally:
                os.kill(reader, signal.SIGCONT)

        stream = spark.readStream.format("fragile").options(**options).load()
        finish(stream.writeStream.foreachBatch(stand_still), tmp_path / "c")
        tally = json.loads(q._engine.execute(ops.ReadLedger("acked:s"))[0].text)
        assert (tally["lost"], tally.get("done", 0)) == (2, 0)
        taken[0].ack()
        assert (jobs.statistics().tasks["kept"], jobs.statistics().tasks["ready"]) == (1, 1)
    postgres.give_back(url)
