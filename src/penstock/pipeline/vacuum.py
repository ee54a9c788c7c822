"""Vacuum: what no version needs is removed, once nobody can be reading or writing it any more."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.model.errors import UsageError
from penstock.pipeline.compact import SCHEMAS
from penstock.pipeline.lake import LOG, PLANS, Lake, Snapshot, home_of

HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY
GONE = ".gone"
HOME = re.compile(rf"\d+-\d+-[0-9a-f]{{12}}({re.escape(GONE)})?")
"""What Lake.place() calls a directory, and what a vacuum that was cut off leaves of it."""


@dataclass(frozen=True)
class Vacuumed:
    """What was removed."""

    directories: int
    bytes: int
    versions: int


def vacuum(
    lake: Lake, *, older_than: float = DAY, dry_run: bool = False, force: bool = False, now: float | None = None
) -> Vacuumed:
    """Remove directories that no version names, and versions that were replaced, after a grace period.

    older_than: seconds since a version was replaced, and since anything was written to a directory. Readers and steps
    that take longer than that may lose what they work on, so less than an hour needs force.
    """
    if older_than < HOUR and not (force or dry_run):
        raise UsageError(
            f"older_than {older_than:g} s is less than an hour: readers and steps may lose what they work on; "
            "say force (--force) if there are none"
        )
    lake.needed()
    limit = (time.time() if now is None else now) - older_than
    # Directories first: one that is named after this look was there, and is in a version that is read below.
    homes = _homes(lake)
    kept, old = _versions(lake, limit)
    needed, last = {home for snapshot in kept for home in _named(snapshot)}, kept[-1].version
    number = size = 0
    for home in homes:
        for version in (it for it in lake.versions() if it > last):
            needed |= _named(lake.snapshot(version))
            last = version
        # A replay that was cut off goes on from what it has written down.
        patience = WEEK if home.startswith(f"{PLANS}/") else 0.0
        with suppress(FileNotFoundError):  # somebody else removes it
            if home not in needed and _last_change(lake.root / home) <= limit - patience:
                held = sum(file.stat().st_size for file in _files(lake.root / home))
                if not dry_run:
                    _remove(lake.root / home)
                number, size = number + 1, size + held
    for snapshot in old if not dry_run else ():
        (lake.root / LOG / f"{snapshot.version:020}.json").unlink(missing_ok=True)
    return Vacuumed(number, size, len(old))


def _remove(home: Path) -> None:
    """All at once, under another name first: who publishes it at this moment finds nothing instead of a part."""
    gone = home if home.name.endswith(GONE) else home.with_name(home.name + GONE)
    home.rename(gone)
    shutil.rmtree(gone)


def _versions(lake: Lake, limit: float) -> tuple[list[Snapshot], list[Snapshot]]:
    """Those that count or did so lately, and the others. A version counts until the next one is made."""
    found = [lake.snapshot(version) for version in lake.versions()]
    replaced_at = [snapshot.made_at for snapshot in found[1:]] + [float("inf")]
    pairs = list(zip(found, replaced_at, strict=True))
    return [it for it, at in pairs if at > limit], [it for it, at in pairs if at <= limit]


def _named(snapshot: Snapshot) -> set[str]:
    return {home_of(segment.path) for segment in snapshot.segments}


def _homes(lake: Lake) -> list[str]:
    """What steps, compactions and replays have written. All else in the directory is not the lake's."""
    tables = [table for table in (*SCHEMAS, PLANS) if (lake.root / table).is_dir()]
    entries = [(table, entry) for table in sorted(tables) for entry in os.scandir(lake.root / table)]
    return [f"{table}/{entry.name}" for table, entry in entries if HOME.fullmatch(entry.name) and entry.is_dir()]


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _last_change(directory: Path) -> float:
    return max(path.stat().st_mtime for path in (directory, *directory.rglob("*")))
