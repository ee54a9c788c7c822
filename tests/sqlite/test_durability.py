"""What is synced when, and what happens when the disk does not do what it is asked."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.support import invariants

import penstock
from penstock import EngineUnavailable
from penstock.testing import ManualClock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


class File(apsw.VFSFile):
    """A file of the store whose syncs are counted and whose writes may fail."""

    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xSync(self, flags: int) -> None:
        self._disk.syncs.append(Path(self._name).name)
        if self._disk.error is not None and self._disk.on_sync:
            raise self._disk.error
        super().xSync(flags)

    def xWrite(self, data: Any, offset: int) -> None:
        disk = self._disk
        if disk.error is not None and not disk.on_sync:
            disk.writes_left -= 1
            if disk.writes_left < 0:
                raise disk.error
        super().xWrite(data, offset)


class Disk(apsw.VFS):
    """The real disk, watched."""

    def __init__(self) -> None:
        super().__init__("penstock-disk", "unix", makedefault=True)
        self.syncs: list[str] = []
        self.error: Exception | None = None
        self.on_sync = False
        self.writes_left = 0

    def xOpen(self, name: Any, flags: list[int]) -> File:
        return File(self, name, flags)

    def break_down(self, error: Exception, after: int = 0, on_sync: bool = False) -> None:
        self.error, self.writes_left, self.on_sync = error, after, on_sync

    def repair(self) -> None:
        self.error = None

    def synced(self) -> list[str]:
        syncs, self.syncs = self.syncs, []
        return syncs


@pytest.fixture(scope="module")
def only_disk() -> Iterator[Disk]:
    """All files that are opened are on it. One for all tests, as collecting what keeps it in use takes long."""
    disk = Disk()
    yield disk
    gc.collect()
    disk.unregister()


@pytest.fixture
def disk(only_disk: Disk) -> Iterator[Disk]:
    """The same, in order and with nothing synced."""
    only_disk.synced()
    yield only_disk
    only_disk.repair()


def connect(path: Path, durability: str) -> penstock.Queue:
    return penstock.connect(str(path), durability=durability, clock=ManualClock())


WEAK = {
    "take": lambda q, jobs: jobs.take(),
    "take_many": lambda q, jobs: jobs.take_many(2),
    "touch": lambda q, jobs: jobs.touch(1, 5),
}
STRONG = {
    "put": lambda q, jobs: jobs.put("x"),
    "put_many": lambda q, jobs: jobs.put_many(["x", "y"]),
    "ack": lambda q, jobs: jobs.ack(1),
    "ack_many": lambda q, jobs: jobs.ack_many([1]),
    "release": lambda q, jobs: jobs.release(1),
    "bury": lambda q, jobs: jobs.bury(1),
    "fail": lambda q, jobs: jobs.fail(1, "no"),
    "delete": lambda q, jobs: jobs.delete(1),
    "create_tube": lambda q, jobs: q.create_tube("more"),
    "alter": lambda q, jobs: jobs.alter(max_attempts=3),
}


@pytest.fixture
def prepared(path: Path, disk: Disk, request: pytest.FixtureRequest) -> Iterator[tuple[penstock.Queue, penstock.Tube]]:
    with connect(path, request.param) as q:
        jobs = q.create_tube("jobs", ttr=100)
        jobs.put_many(range(5))
        jobs.take()
        disk.synced()
        yield q, jobs
        disk.repair()


@pytest.mark.parametrize("prepared", ["strict"], indirect=True)
@pytest.mark.parametrize("verb", STRONG)
def test_at_strict_every_change_is_synced_before_it_is_answered(prepared, disk, verb):
    STRONG[verb](*prepared)
    assert disk.synced() == ["tasks.db-wal"]


@pytest.mark.parametrize("prepared", ["strict"], indirect=True)
@pytest.mark.parametrize("verb", WEAK)
def test_at_strict_take_and_touch_wait_for_no_disk(prepared, disk, verb):
    WEAK[verb](*prepared)
    assert disk.synced() == []


@pytest.mark.parametrize("prepared", ["relaxed"], indirect=True)
@pytest.mark.parametrize("verb", [*STRONG, *WEAK])
def test_at_relaxed_nothing_waits_for_the_disk(prepared, disk, verb):
    {**STRONG, **WEAK}[verb](*prepared)
    assert disk.synced() == []


@pytest.mark.parametrize("prepared", ["strict"], indirect=True)
def test_what_a_sync_protects_includes_the_take_before_it(prepared, disk):
    _, jobs = prepared
    jobs.take()
    assert disk.synced() == []
    jobs.put("x")
    assert disk.synced() == ["tasks.db-wal"]


def test_a_strict_and_a_relaxed_queue_on_one_store_each_get_what_they_asked_for(path, disk):
    clock = ManualClock()
    with (
        penstock.connect(str(path), durability="strict", clock=clock) as strict,
        penstock.connect(str(path), durability="relaxed", clock=clock) as relaxed,
    ):
        strict.create_tube("jobs")
        disk.synced()
        relaxed.tube("jobs").put(1)
        assert disk.synced() == []
        strict.tube("jobs").put(2)
        assert disk.synced() == ["tasks.db-wal"]
        relaxed.tube("jobs").put(3)
        assert disk.synced() == []


@pytest.mark.parametrize("durability", ["strict", "relaxed"])
def test_a_transaction_and_the_start_of_a_run_are_synced_at_any_durability(path, disk, durability):
    with connect(path, durability) as q:
        jobs = q.create_tube("jobs")
        disk.synced()
        with q.transaction() as tx:
            jobs.put(1, transaction=tx)
        assert disk.synced() == ["tasks.db-wal"]
    dead = penstock.connect(str(path))
    penstock.testing.new_run(str(path))
    del dead
    disk.synced()
    with connect(path, durability):
        assert "tasks.db-wal" in disk.synced(), "the epoch is not safe before the first grant"


@pytest.mark.parametrize("durability", ["strict", "relaxed"])
def test_a_temporary_tube_never_waits_for_the_disk(path, disk, durability):
    with connect(path, durability) as q:
        cache = q.create_tube("cache", temporary=True)
        disk.synced()
        cache.put_many([1, 2])
        cache.take().ack()
        assert "tasks.db-temporary-wal" not in disk.synced()


ERRORS = {
    "full": (apsw.FullError("no room"), False),
    "write": (apsw.IOError("broken"), False),
    "sync": (apsw.IOError("broken"), True),
}


@pytest.mark.parametrize("prepared", ["strict"], indirect=True)
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("verb", STRONG)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_that_fails_is_told_and_changes_nothing(prepared, path, disk, verb, kind, monkeypatch):
    q, jobs = prepared
    # apsw reports what a VFS raises to the unraisable hook too: here that is wanted noise.
    monkeypatch.setattr("sys.unraisablehook", lambda what: None)
    before = [(task.id, task.state, task.data) for task in jobs.tasks()]
    counted = jobs.statistics()
    error, on_sync = ERRORS[kind]
    disk.break_down(error, on_sync=on_sync)
    with pytest.raises(EngineUnavailable) as caught:
        STRONG[verb](q, jobs)
    assert caught.value.outcome == "not_done"
    assert str(path) in str(caught.value)
    disk.repair()
    assert [(task.id, task.state, task.data) for task in jobs.tasks()] == before
    assert jobs.statistics() == counted
    STRONG[verb](q, jobs)
    invariants.check(str(path))
    assert jobs.put("usable again").state == "ready"


@pytest.mark.parametrize("after", range(6))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_disk_that_fails_in_the_middle_of_a_commit_leaves_nothing_of_it(path, disk, after, monkeypatch):
    monkeypatch.setattr("sys.unraisablehook", lambda what: None)
    with connect(path, "strict") as q:
        jobs = q.create_tube("jobs", "utube")
        jobs.put_many(["x" * 3000] * 4, lane="a")
        disk.break_down(apsw.FullError("no room"), after=after)
        with pytest.raises(EngineUnavailable, match="full"):
            jobs.put_many(["y" * 3000] * 10, lane="a")
        disk.repair()
        assert jobs.statistics().tasks["ready"] == 4
        invariants.check(str(path))
        assert jobs.put("z", lane="a").id == 5
        assert jobs.take().data == "x" * 3000


def fill(tube: penstock.Tube) -> tuple[int, EngineUnavailable]:
    """Put until nothing more goes in; answers how many did, and the refusal."""
    for number in range(1000):
        try:
            tube.put("x" * 2000)
        except EngineUnavailable as error:
            return number, error
    raise AssertionError("it is never full")


def test_a_full_database_takes_tasks_again_once_there_is_room(path):
    with connect(path, "strict") as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.put_many(["held"] * 3)
        held = jobs.take_many(3)
        with q.transaction() as tx:
            connection = tx.connection
        connection.pragma("max_page_count", connection.pragma("page_count") + 2)
        stored, error = fill(jobs)
        assert error.outcome == "not_done" and "full" in str(error)
        assert jobs.statistics().tasks["ready"] == stored > 0
        assert [task.ack().reason for task in held] == ["success"] * 3, "ack works while the disk is full"
        connection.pragma("max_page_count", 1_000_000)
        jobs.put_many(["x" * 2000] * 20)
        assert jobs.statistics().tasks["ready"] == stored + 20
        invariants.check(str(path))
