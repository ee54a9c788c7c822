"""The power goes: of what was written and not synced, any part may be missing."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.support import invariants

import penstock
from penstock.testing import ManualClock

CUTS = 40
seeds = pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 8))]
)


class Platter:
    """What of one file is safe on the disk, and what is on its way there."""

    def __init__(self) -> None:
        self.safe = bytearray()
        self.pending: list[tuple[int, bytes] | int] = []
        """Writes (offset, data) and truncations (size) since the last sync."""

    def sync(self) -> None:
        for change in self.pending:
            apply(self.safe, change)
        self.pending = []

    def after_cut(self, rng: random.Random) -> bytes:
        """What is found later: all that was synced, and of the rest what happened to get through."""
        image = bytearray(self.safe)
        for change in self.pending:
            if rng.random() < 0.5:
                apply(image, change)
        return bytes(image)


def apply(image: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        del image[change:]
        return
    offset, data = change
    if len(image) < offset + len(data):
        image.extend(bytes(offset + len(data) - len(image)))
    image[offset : offset + len(data)] = data


class File(apsw.VFSFile):
    def __init__(self, platter: Platter, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._platter = platter

    def xWrite(self, data: Any, offset: int) -> None:
        self._platter.pending.append((offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._platter.pending.append(size)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self._platter.sync()
        super().xSync(flags)


class Disk(apsw.VFS):
    """The real disk, with a memory of what it was told to make safe."""

    def __init__(self) -> None:
        super().__init__("penstock-power", "unix", makedefault=True)
        self.platters: dict[str, Platter] = {}

    def xOpen(self, name: Any, flags: list[int]) -> File:
        text = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        return File(self.platters.setdefault(text, Platter()), name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        self.platters.pop(name, None)
        super().xDelete(name, sync)

    def cut(self, path: Path, folder: Path, rng: random.Random) -> Path:
        """The store as it is found after the power went now."""
        folder.mkdir()
        for suffix in ("", "-wal"):
            platter = self.platters.get(str(path) + suffix)
            if platter is not None:
                (folder / (path.name + suffix)).write_bytes(platter.after_cut(rng))
        return folder / path.name


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    gc.collect()
    disk.unregister()


class Client:
    """Calls at random, and what was answered."""

    def __init__(self, q: penstock.Queue, rng: random.Random) -> None:
        self._rng = rng
        self._jobs = q.create_tube("jobs", "utube")
        self._number = 0
        self.put: list[int] = []
        """Ids in the order of their puts."""
        self.acked: list[int] = []

    def step(self) -> None:
        if self._rng.random() < 0.6:
            items = [penstock.Entry("x" * self._rng.randrange(3000), lane=f"{n % 3}") for n in range(self._size())]
            self.put += [task.id for task in self._jobs.put_many(items)]
            return
        tasks = self._jobs.take_many(self._size())
        if self._rng.random() < 0.8:
            self.acked += [task.id for task in self._jobs.ack_many(tasks)]
        else:
            self._jobs.release_all()

    def _size(self) -> int:
        return self._rng.choice((1, 1, 2, 7))


def found(path: Path, clock: ManualClock) -> set[int]:
    with penstock.connect(str(path), clock=clock) as q:
        invariants.check(str(path))
        return {task.id for task in q.tube("jobs").tasks(limit=100_000)}


@seeds
def test_at_strict_a_power_cut_loses_nothing_that_was_answered(tmp_path, disk, seed):
    rng = random.Random(seed)
    clock = ManualClock()
    path = tmp_path / "tasks.db"
    with penstock.connect(str(path), clock=clock) as q:
        client = Client(q, rng)
        for number in range(CUTS):
            for _ in range(rng.randrange(1, 8)):
                client.step()
            copy = disk.cut(path, tmp_path / f"cut{number}", rng)
            assert found(copy, ManualClock()) == set(client.put) - set(client.acked)
    assert len(client.put) > 100 and len(client.acked) > 20


@seeds
def test_at_relaxed_a_power_cut_loses_the_newest_and_leaves_no_hole(tmp_path, disk, seed):
    rng = random.Random(seed)
    clock = ManualClock()
    path = tmp_path / "tasks.db"
    losses = 0
    with penstock.connect(str(path), clock=clock, durability="strict") as strict:
        strict.create_tube("jobs", "fifo")
        with penstock.connect(str(path), clock=clock, durability="relaxed") as q:
            jobs = q.tube("jobs")
            for number in range(CUTS):
                stored = [jobs.put("x" * rng.randrange(3000)).id for _ in range(rng.randrange(1, 10))][-1]
                copy = disk.cut(path, tmp_path / f"cut{number}", rng)
                left = found(copy, ManualClock())
                assert left == set(range(1, len(left) + 1)), "there is a hole"
                losses += stored - len(left)
    assert losses > 0, "nothing was ever at risk, so nothing was proven"


def test_a_disk_that_forgets_what_was_synced_is_found_out(tmp_path, disk, monkeypatch):
    """The same check on a disk that lies fails: it can tell the difference."""
    monkeypatch.setattr(Platter, "sync", lambda self: None)
    path = tmp_path / "tasks.db"
    rng = random.Random(1)
    with penstock.connect(str(path), clock=ManualClock()) as q:
        client = Client(q, rng)
        for _ in range(20):
            client.step()
        copy = disk.cut(path, tmp_path / "cut", rng)
        with pytest.raises((AssertionError, penstock.PenstockError)):
            assert found(copy, ManualClock()) == set(client.put) - set(client.acked)
