"""A file that can only be read: reads answer, writes are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock import EngineUnavailable, NotWritable, State, TaskNotFound, TubeNotFound


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.db"
    with penstock.connect(str(path)) as q:
        jobs = q.create_tube("jobs", history=True)
        jobs.put_many(["a", "b", "c"], lane="x")
        jobs.bury(3)
        q.create_tube("cache", "fifo", temporary=True).put("gone at the next run")
    return path


def reading(path: Path) -> str:
    return f"sqlite:///{path}?mode=ro"


def test_a_read_only_store_waits_and_answers_reads(path):
    with penstock.connect(reading(path)) as q:
        assert q.state() == "WAITING"
        jobs = q.tube("jobs")
        assert jobs.peek(1).data == "a"
        assert [task.data for task in jobs.tasks(State.READY)] == ["a", "b"]
        assert jobs.statistics().tasks["ready"] == 2
        assert q.statistics()["jobs"].tasks["buried"] == 1
        assert [lane.name for lane in jobs.lanes()] == ["x"]
        assert [event.event for event in q.history()] == ["put", "put", "put", "bury"]
        assert sorted(tube.name for tube in q.tubes()) == ["cache", "jobs"]
        with pytest.raises(TaskNotFound):
            jobs.peek(9)
        with pytest.raises(TubeNotFound):
            q.tube("none")


def test_everything_that_writes_is_refused(path):
    with penstock.connect(reading(path)) as q:
        jobs = q.tube("jobs")
        writes = [
            lambda: jobs.put(1),
            lambda: jobs.put_many([1, 2]),
            lambda: jobs.take(),
            lambda: jobs.take(timeout=5),
            lambda: jobs.ack(1),
            lambda: jobs.bury(1),
            lambda: jobs.kick(),
            lambda: jobs.delete(1),
            lambda: jobs.truncate(),
            lambda: jobs.drop(),
            lambda: jobs.pause(),
            lambda: jobs.alter(max_attempts=3),
            lambda: jobs.lane("x").configure(paused=True),
            lambda: q.create_tube("new"),
            lambda: q.transaction().__enter__(),
        ]
        for write in writes:
            with pytest.raises(NotWritable):
                write()
    with penstock.connect(str(path)) as q:
        assert q.tube("jobs").statistics().tasks["ready"] == 2


def test_a_missing_file_cannot_be_read(tmp_path):
    with pytest.raises(EngineUnavailable, match="does not exist"):
        penstock.connect(reading(tmp_path / "none.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_reader_sees_what_a_writer_does_and_does_not_hinder_it(path):
    with penstock.connect(str(path)) as writer, penstock.connect(reading(path)) as reader:
        jobs, seen = writer.tube("jobs"), reader.tube("jobs")
        jobs.put("d")
        assert seen.peek(4).data == "d"
        jobs.take()
        assert seen.statistics().tasks["taken"] == 1
        writer.create_tube("more").put(1)
        assert reader.tube("more").peek(1).data == 1


def test_a_reader_of_a_temporary_tube_does_not_lock_it(path):
    with penstock.connect(str(path)) as writer, penstock.connect(reading(path)) as reader:
        cache = writer.tube("cache")
        task = cache.put("x")
        assert reader.tube("cache").peek(task.id).data == "x"
        assert reader.statistics()["cache"].tasks["ready"] == 1
        cache.put("y")
        assert reader.statistics()["cache"].tasks["ready"] == 2


def test_a_reader_begins_no_run_and_ends_none(path):
    with penstock.connect(str(path)) as q:
        q.tube("jobs").put("d")
    with penstock.connect(reading(path)) as reader:
        assert reader.tube("jobs").statistics().calls["put"] == 1
        with penstock.connect(str(path)) as q:
            assert q.tube("jobs").statistics().calls["put"] == 0
    with penstock.connect(str(path)) as q:
        assert q.tube("jobs").statistics().tasks["total"] == 4


def test_a_reader_does_not_write_down_what_is_due(path):
    with penstock.connect(str(path)) as q:
        q.tube("jobs").put("short", ttl=0)
    size = path.stat().st_mtime_ns
    with penstock.connect(reading(path)) as reader:
        reader.tube("jobs").tasks()
        reader.statistics()
        assert reader.tick() is None
    assert path.stat().st_mtime_ns == size


def test_a_reader_sees_what_time_has_done_and_can_wait(path, clock):
    with penstock.connect(str(path), clock=clock) as q:
        jobs = q.create_tube("others", keep=True)
        lost, ready, done = jobs.put(1, ttl=5), jobs.put(2, delay=5), jobs.put(3)
        jobs.cancel(done.id)
        with penstock.connect(reading(path), clock=clock) as reader:
            seen = reader.tube("others")
            assert seen.wait(done.id, timeout=1).reason == "cancelled"
            clock._now += 6_000_000
            assert (seen.peek(lost.id).reason, seen.peek(ready.id).state) == ("expired", "ready")
