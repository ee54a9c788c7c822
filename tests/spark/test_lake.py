"""The history lake: whatever happens to its writers, it says what the history says."""

from __future__ import annotations

import math
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import add
from pathlib import Path
from typing import Any

import pytest
from tests.spark.lakes import check, stored
from tests.spark.lives import Past

import penstock
from penstock.model.errors import UsageError
from penstock.pipeline import gold, silver
from penstock.pipeline.compact import compact
from penstock.pipeline.lake import Lake
from penstock.pipeline.run import run
from penstock.pipeline.step import step
from penstock.pipeline.vacuum import vacuum
from penstock.spark import feeds, stores
from penstock.testing import ManualClock

STAGES = ("begun", "bronze", "written", "published")
LATER = 10.0
SEED = int(os.environ.get("PENSTOCK_SEED", "7"))
"""Of what happens, where steps are cut off and in which order; any will do."""


class Crash(Exception):
    """The step ends here."""


def crash_at(stage: str) -> Any:
    def at(reached: str) -> None:
        if reached == stage:
            raise Crash

    return at


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    made = Past(tmp_path, 1)
    yield made
    made.queue.close()


def counted(lake: Lake) -> dict[Any, list[Any]]:
    """What gold comes to, however the events came in and were compacted: sums, and the least and the most."""
    found = dict[Any, list[Any]]()
    for table in gold.TABLES:
        for row in stored(lake, table):
            numbers = {name: row.pop(name, None) for name in ("n", "us", "buried", "longest", "first", "last")}
            numbers["example"] = (row.pop("example", None) or {}).get("seq", 0)
            was = found.setdefault((table, *row.items()), [0, 0, 0, -1, math.inf, -1, math.inf])
            for index, (name, value) in enumerate(numbers.items()):
                join = {"longest": max, "last": max, "first": min, "example": min}.get(name, add)
                was[index] = join(was[index], -1 if value is None and join is max else value or 0)
    return found


@pytest.mark.exhaustive  # test_lake_kills.py kills a step in every run
def test_after_crashes_anywhere_the_lake_is_what_it_would_be_in_one_go(spark, tmp_path, lake):
    chance = random.Random(SEED)
    print(f"{SEED=}")
    past = Past(tmp_path, SEED)
    for stage in chance.sample(STAGES, len(STAGES)):
        past.happen(chance.randrange(40, 80))
        with pytest.raises(Crash):
            step(spark, past.url, lake, limit=chance.randrange(10, 60), at=crash_at(stage))
        # Whatever was cut off, who looks now sees whole steps.
        check(spark, lake, [event for event in past.events() if event.seq <= lake.snapshot().upto])
    run(spark, past.url, lake)
    check(spark, lake, past.events())
    whole = Lake(tmp_path / "lake[1] {of}, *all?")
    step(spark, past.url, whole)
    check(spark, whole, past.events())
    assert counted(lake) == counted(whole)
    assert {"take", "fail", "ttr", "ack"} <= {event.event for event in past.events()}
    past.queue.close()


def test_of_two_steps_at_once_one_publishes_and_the_other_looks_again(spark, past, lake):
    past.happen(60)
    both = threading.Barrier(2, timeout=600)

    def together(stage: str) -> None:
        if stage in ("begun", "written"):
            both.wait()

    with ThreadPoolExecutor(2) as pool:
        steps = [pool.submit(step, spark, past.url, lake, at=together) for _ in range(2)]
        loser, winner = sorted((it.result() for it in steps), key=lambda it: it.events)
    assert (loser.events, winner.events) == (0, len(past.events()))
    assert loser.version == winner.version == lake.snapshot().version
    check(spark, lake, past.events())
    assert vacuum(lake, older_than=-LATER, dry_run=True).directories == 0, "the loser has left files behind"


def test_a_reader_and_a_step_go_on_while_the_lake_is_compacted_and_vacuum_removes_what_nobody_needs(spark, past, lake):
    for _ in range(2):
        past.happen(40)
        step(spark, past.url, lake)
    old, wanted = lake.snapshot(), list[Any]()
    reader = silver.lives(spark, lake, old)
    rows = reader.count()
    past.happen(40)

    def during(stage: str) -> None:
        step(spark, past.url, lake)
        wanted.append(counted(lake))

    done = compact(spark, lake, at=during)
    assert done.before > done.after > 0
    assert [counted(lake)] == wanted
    check(spark, lake, past.events())
    past.happen(5)
    with pytest.raises(Crash):
        step(spark, past.url, lake, at=crash_at("bronze"))
    assert vacuum(lake, older_than=3600).directories == 0, "somebody may still read or write it"
    assert reader.count() == rows
    told = vacuum(lake, older_than=-LATER, dry_run=True)
    gone = vacuum(lake, older_than=-LATER, force=True)
    assert gone == told and gone.directories > 0 and gone.versions > 0
    assert vacuum(lake, older_than=-LATER, dry_run=True).directories == 0
    step(spark, past.url, lake)
    check(spark, lake, past.events())


def test_events_are_forgotten_only_up_to_what_the_lake_and_every_other_reader_has(spark, past, lake):
    past.happen(40)
    seqs = [event.seq for event in past.events()]
    store = stores.store(stores.absolute(past.url))
    feeds.advance(store, "another", seqs[9])
    with pytest.raises(Crash):
        step(spark, past.url, lake, purge=True, at=crash_at("written"))
    assert [event.seq for event in past.events()] == seqs, "nothing was published"
    done = step(spark, past.url, lake, limit=20, purge=True)
    assert (done.events, done.purged) == (20, 10)
    feeds.advance(store, "another", seqs[-1])
    done = step(spark, past.url, lake, limit=5, purge=True)
    assert (done.events, done.purged) == (5, 15)
    assert [event.seq for event in past.events()] == seqs[25:]
    assert feeds.position(store, f"lake:{lake.snapshot().id}") == seqs[24]


def test_a_lake_of_another_queue_or_an_old_copy_is_refused(spark, tmp_path, past, lake):
    past.happen(30)
    step(spark, past.url, lake, limit=10)
    shutil.copytree(lake.root, tmp_path / "copy")
    step(spark, past.url, lake)
    with pytest.raises(UsageError, match="old copy"):
        step(spark, past.url, Lake(tmp_path / "copy"))
    with penstock.connect(tmp_path / "other.db") as other:
        other.create_tube("jobs", history=True).put(1)
    with pytest.raises(UsageError, match="history of another queue"):
        step(spark, str(tmp_path / "other.db"), lake)
    with pytest.raises(UsageError, match="share"):
        Lake("s3a://bucket/lake")
    with pytest.raises(UsageError, match="is no lake"):
        gold.figures(spark, tmp_path / "nowhere")


def test_figures_are_those_of_a_history_that_is_known(spark, tmp_path, lake):
    clock = ManualClock()
    chance = random.Random(3)
    url = str(tmp_path / "known.db")
    waits, runs, lanes = list[float](), list[float](), Counter[str]()
    with penstock.connect(url, clock=clock, durability="relaxed") as queue:
        tube = queue.create_tube("jobs", history=True, max_attempts=2, retry=0)
        for number in range(150):
            lane = "ab"[number % 3 == 0]
            tube.put(number, lane=lane)
            waits.append(round(math.exp(chance.gauss(-2, 2)), 6))
            runs.append(round(math.exp(chance.gauss(-4, 1)), 6))
            clock.advance(waits[-1])
            task = tube.take()
            assert task is not None
            clock.advance(runs[-1])
            if number % 10:
                task.ack()
                lanes[lane] += 1
            else:
                task.fail(f"OSError: host 10.0.0.{number} said 'no {number}'")
                tube.bury(task.id)
        step(spark, url, lake)
    found = gold.figures(spark, lake)
    for spread, exact in ((found.wait, sorted(waits)), (found.run, sorted(runs))):
        assert spread is not None and spread.count == len(exact)
        assert spread.mean == pytest.approx(sum(exact) / len(exact))
        assert spread.max == pytest.approx(exact[-1])
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            assert getattr(spread, name) == pytest.approx(exact[math.ceil(share * len(exact)) - 1], rel=0.011)
    assert (found.counts.puts, found.counts.acks, found.counts.fails) == (150, 135, 15)
    assert found.outcomes == {"success": 135} and found.open == {"buried": 15} and found.attempts == {1: 135}
    (failure,) = found.failures
    assert (failure.error_class, failure.fingerprint) == ("OSError", "host # said <value>")
    assert (failure.count, failure.lanes, failure.example) == (15, 2, "OSError: host 10.0.0.0 said 'no 0'")
    shares = {lane.lane: lane.share for lane in found.lanes}
    assert shares == pytest.approx({lane: number / 135 for lane, number in lanes.items()})
    (only,) = found.tubes
    jain = 135**2 / (2 * sum(number**2 for number in lanes.values()))
    assert (only.lanes, only.fairness) == (2, pytest.approx(jain))
    last = found.timeline[-1]
    assert (last.ready, last.taken, last.delayed, last.buried) == (0, 0, 0, 15)
    assert sum(point.counts.events for point in found.timeline) == found.counts.events
    assert len(found.timeline) <= 122
