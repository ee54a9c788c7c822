"""Staged rows of a SQLite store: files in a folder beside the database.

Many processes that insert into one file would only wait for its write lock; files they can write side by side.
A file gets its name once all of it is on the disk, so one with a name is whole.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import tempfile
from mmap import ACCESS_READ, mmap
from pathlib import Path

from penstock.engines.spool import Spool
from penstock.model.errors import EngineUnavailable
from penstock.model.staging import StagedJob

ABOUT = "job.json"


class FileSpool(Spool):
    """A folder for each job, named by a hash: jobs and parts may be called anything."""

    def __init__(self, database: Path) -> None:
        self.folder = database.with_name(database.name + "-spool")

    def add(self, tube: str, job: str, part: str, rows: bytes, now: int) -> None:
        folder = self.folder / _name(job)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = folder / ABOUT
            if not about.exists():
                _publish(folder, json.dumps({"job": job, "tube": tube}).encode(), about)
            for number in itertools.count(len(self._files(job, part))):
                if _publish(folder, rows, folder / f"{_name(part)}-{number:06}.arrow"):
                    break
            os.utime(about, ns=(now * 1000, now * 1000))
        except OSError as error:
            raise EngineUnavailable(f"rows cannot be staged in {folder}: {error.strerror}") from error

    def _files(self, job: str, part: str) -> list[Path]:
        return sorted((self.folder / _name(job)).glob(f"{_name(part)}-*.arrow"))

    def portions(self, job: str, part: str) -> list[mmap]:
        try:
            return [_mapped(file) for file in self._files(job, part)]
        except FileNotFoundError:  # discarded just now
            return []

    def tube(self, job: str) -> str | None:
        try:
            tube: str = json.loads((self.folder / _name(job) / ABOUT).read_bytes())["tube"]
        except FileNotFoundError:
            return None
        return tube

    def discard(self, job: str) -> int:
        folder = self.folder / _name(job)
        parts = {file.name.partition("-")[0] for file in folder.glob("*.arrow")}
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:  # another discards it too
            shutil.rmtree(folder, ignore_errors=True)
            return 0
        except OSError as error:
            raise EngineUnavailable(f"staged rows in {folder} cannot be removed: {error.strerror}") from error
        return len(parts)

    def jobs(self) -> list[StagedJob]:
        found = []
        for about in self.folder.glob(f"*/{ABOUT}"):
            try:
                said, at = json.loads(about.read_bytes()), about.stat().st_mtime_ns // 1000
            except FileNotFoundError:
                continue
            parts = {file.name.partition("-")[0] for file in about.parent.glob("*.arrow")}
            found.append(StagedJob(said["job"], said["tube"], len(parts), at))
        return sorted(found)


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _mapped(file: Path) -> mmap:
    """The content of a file, of which the system keeps in memory what it has room for."""
    with file.open("rb") as opened:
        return mmap(opened.fileno(), 0, access=ACCESS_READ)


def _publish(folder: Path, content: bytes, name: Path) -> bool:
    """Write a file, and give it its name once it is on the disk; False if that is taken."""
    handle, draft = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, name)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    _sync(folder)
    return True


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
