"""Vacuum: what no version needs is removed, once nobody can be reading or writing it any more."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.pipeline.lake import LOG, PLANS, Lake, Snapshot

DAY = 24 * 3600.0
WEEK = 7 * DAY


@dataclass(frozen=True)
class Vacuumed:
    """What was removed."""

    directories: int
    bytes: int
    versions: int


def vacuum(lake: Lake, *, older_than: float = DAY, dry_run: bool = False, now: float | None = None) -> Vacuumed:
    """Remove directories that no version names, and versions that were replaced, after a grace period.

    older_than: seconds since a version was replaced, and since anything was written to a directory. Readers and steps
    that take longer than that may lose what they work on.
    """
    lake.needed()
    limit = (time.time() if now is None else now) - older_than
    kept, old = _versions(lake, limit)
    needed = {_home(path) for snapshot in kept for path in (segment.path for segment in snapshot.segments)}
    number = size = 0
    for home in _homes(lake):
        # A replay that was cut off goes on from what it has written down.
        patience = WEEK if home.startswith(f"{PLANS}/") else 0.0
        if home not in needed and _last_change(lake.root / home) <= limit - patience:
            number += 1
            size += sum(file.stat().st_size for file in _files(lake.root / home))
            if not dry_run:
                shutil.rmtree(lake.root / home)
    for snapshot in old if not dry_run else ():
        (lake.root / LOG / f"{snapshot.version:020}.json").unlink(missing_ok=True)
    return Vacuumed(number, size, len(old))


def _versions(lake: Lake, limit: float) -> tuple[list[Snapshot], list[Snapshot]]:
    """Those that count or did so lately, and the others. A version counts until the next one is made."""
    found = [lake.snapshot(version) for version in lake.versions()]
    replaced_at = [snapshot.made_at for snapshot in found[1:]] + [float("inf")]
    pairs = list(zip(found, replaced_at, strict=True))
    return [it for it, at in pairs if at > limit], [it for it, at in pairs if at <= limit]


def _home(path: str) -> str:
    """The directory that one attempt has written."""
    return "/".join(path.split("/")[:2])


def _homes(lake: Lake) -> list[str]:
    tables = [entry.name for entry in os.scandir(lake.root) if entry.is_dir() and entry.name != LOG]
    return [f"{table}/{entry.name}" for table in sorted(tables) for entry in os.scandir(lake.root / table)]


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _last_change(directory: Path) -> float:
    return max(path.stat().st_mtime for path in (directory, *directory.rglob("*")))
