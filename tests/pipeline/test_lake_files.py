"""What a lake does with its directory and its queue, as far as no Spark is needed for it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.model.errors import UsageError
from penstock.pipeline import bronze, gold, silver
from penstock.pipeline.lake import PLANS, Lake, Segment, Snapshot
from penstock.pipeline.step import brief, consumer, step
from penstock.pipeline.vacuum import DAY, HOUR, vacuum
from penstock.spark import feeds, stores

LATER = 10 * DAY
NO_SPARK: Any = None


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake")
    made.begin()
    return made


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[penstock.Queue]:
    with penstock.connect(tmp_path / "tasks.db", durability="relaxed") as made:
        made.create_tube("jobs", history=True)
        yield made


def written(lake: Lake, table: str = bronze.TABLE, upto: int = 5) -> Segment:
    """What a step has written and not published."""
    home = lake.place(table, 0, upto)
    (lake.root / home).mkdir(parents=True)
    (lake.root / home / "a.parquet").write_text("rows")
    return Segment(table, f"{home}/a.parquet", 0, upto, 1, 4)


def aged(lake: Lake, segment: Segment) -> Segment:
    """The same, written long ago."""
    for path in (lake.root / segment.path, (lake.root / segment.path).parent):
        os.utime(path, (0, 0))
    return segment


def reach(lake: Lake, queue: penstock.Queue, count: int) -> Snapshot:
    """A version with so many events of the queue, and the queue's note of it."""
    event = queue.history(limit=count)[-1]
    store = stores.store(stores.absolute(place(lake)))
    made = lake.begin().with_segments((), upto=event.seq, last=brief(store, event.seq))
    assert lake.publish(made, ())
    feeds.advance(store, consumer(made), made.upto)
    return made


def place(lake: Lake) -> str:
    return str(lake.root.parent / "tasks.db")


def test_vacuum_removes_what_steps_have_left_behind_and_nothing_that_a_person_has_put_there(lake):
    own = ["photos/2020/a.jpg", "notes.txt", "bronze/mine/a.parquet", "bronze/readme.txt", "1-2-0123456789ab/x"]
    for name in own:
        (lake.root / name).parent.mkdir(parents=True, exist_ok=True)
        (lake.root / name).write_text("mine")
    left = [written(lake, table) for table in (bronze.TABLE, silver.TABLE, *gold.TABLES, PLANS)]
    assert vacuum(lake, now=time.time() + LATER).directories == len(left)
    assert not any((lake.root / segment.path).exists() for segment in left)
    assert [(lake.root / name).read_text() for name in own] == ["mine"] * len(own)


def test_a_directory_with_other_things_in_it_does_not_become_a_lake(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(UsageError, match="is no lake and not empty: photos is in it"):
        Lake(tmp_path).begin()
    assert os.listdir(tmp_path) == ["photos"]


class Busy(Lake):
    """A lake to which somebody publishes while others look at its versions."""

    def __init__(self, root: Path, looks: int) -> None:
        super().__init__(root)
        self.segment_to_come = aged(self, written(self))
        self._looks = looks

    def versions(self) -> list[int]:
        found = super().versions()
        self._looks -= 1
        if self._looks == 0:
            assert self.publish(self.snapshot().with_segments([self.segment_to_come]), [self.segment_to_come])
        return found


@pytest.mark.parametrize("looks", range(1, 5))
def test_vacuum_leaves_what_is_published_while_it_looks(lake, looks):
    busy = Busy(lake.root, looks)
    vacuum(busy)
    assert (busy.root / busy.segment_to_come.path).exists()


def test_what_is_being_published_counts_as_written_just_now(lake):
    segment = aged(lake, written(lake))
    assert vacuum(lake, dry_run=True).directories == 1
    lake.keep([segment.path])
    assert vacuum(lake).directories == 0


def test_a_vacuum_that_was_cut_off_is_finished_by_the_next(lake):
    home = (lake.root / written(lake).path).parent
    home.rename(f"{home}.gone")
    assert vacuum(lake, now=time.time() + LATER).directories == 1
    assert os.listdir(lake.root / "bronze") == []


def test_vacuum_takes_what_is_younger_than_an_hour_only_by_force(lake):
    written(lake)
    with pytest.raises(UsageError, match=r"less than an hour.*force"):
        vacuum(lake, older_than=HOUR - 1)
    assert vacuum(lake, older_than=-1, dry_run=True).directories == 1
    assert vacuum(lake, older_than=-1, force=True).directories == 1


def test_every_directory_that_leads_to_a_segment_is_on_disk_before_a_version_names_it(tmp_path, monkeypatch):
    synced, fsync = list[int](), os.fsync

    def spy(number: int) -> None:
        synced.append(os.fstat(number).st_ino)
        fsync(number)

    monkeypatch.setattr(os, "fsync", spy)
    lake = Lake(tmp_path / "new" / "lake")
    lake.begin()
    assert {path.stat().st_ino for path in (tmp_path, tmp_path / "new", lake.root)} <= set(synced)
    segment = written(lake)
    synced.clear()
    lake.publish(lake.snapshot().with_segments([segment]), [segment])
    path = lake.root / segment.path
    wanted = [it.stat().st_ino for it in (path, path.parent, lake.root / "bronze", lake.root)]
    order = [synced.index(number) for number in wanted]
    assert order == sorted(order)


def test_a_lake_that_is_ahead_of_a_restored_queue_is_refused(queue, lake):
    queue.tube("jobs").put_many(range(3))
    ahead = lake.begin().with_segments((), upto=9, last="as it was before")
    store = stores.store(stores.absolute(place(lake)))
    feeds.advance(store, consumer(ahead), 3)
    lake.publish(ahead, ())
    for _ in range(2):
        with pytest.raises(UsageError, match=r"no event 9 .* restored from a backup"):
            step(NO_SPARK, place(lake), lake)
        queue.tube("jobs").put_many(range(8))  # other events get the numbers that the lake has passed


def test_events_that_were_removed_before_they_came_into_the_lake_are_missed(queue, lake):
    queue.tube("jobs").put_many(range(5))
    reach(lake, queue, 2)
    seqs = [event.seq for event in queue.history()]
    queue.forget_history(seqs[1])
    with pytest.raises(Begun):
        step(NO_SPARK, place(lake), lake, at=begun)
    queue.forget_history(seqs[3])
    with pytest.raises(UsageError, match=rf"ends at event {seqs[1]}, .* forget events up to {seqs[3]} .*--allow-loss"):
        step(NO_SPARK, place(lake), lake, at=begun)
    with pytest.raises(Begun):
        step(NO_SPARK, place(lake), lake, allow_loss=True, at=begun)


def test_who_keeps_events_from_being_forgotten_is_named(queue, lake):
    queue.tube("jobs").put_many(range(5))
    store = stores.store(stores.absolute(place(lake)))
    feeds.advance(store, "dead", queue.history()[1].seq)
    reach(lake, queue, 5)
    done = step(NO_SPARK, place(lake), lake, purge=True)
    assert (done.purged, done.held_by) == (2, "dead")
    feeds.leave(store, "dead")
    done = step(NO_SPARK, place(lake), lake, purge=True)
    assert (done.purged, done.held_by) == (3, None)


class Begun(Exception):
    """The step would work now."""


def begun(stage: str) -> None:
    raise Begun
