"""The lake: a directory of Parquet files, and a log that says which of them count.

`_log/<version>.json` is a whole snapshot: how far the history has been read, and every segment of every table. A
version is made by exactly one writer, all its tables at once. Files are written where nobody looks until a version
names them, and are never changed after that; so a reader that holds a snapshot is disturbed by nobody, and whatever a
crash leaves behind belongs to no version. `vacuum` removes it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from penstock.model.errors import UsageError
from penstock.pipeline.tables import LakeTable, Parquet

LOG = "_log"
PLANS = "replay"
"""Where replays write down what they put; no version names it."""
LAYOUT = 1
"""Of the tables; a lake that is newer is refused."""


@dataclass(frozen=True)
class Segment:
    """Rows of one table: a file or a directory inside of the lake, with what came of events (lo, hi]."""

    table: str
    path: str
    lo: int
    hi: int
    rows: int
    size: int


@dataclass(frozen=True)
class Snapshot:
    """One version of a lake."""

    version: int = 0
    id: str = ""
    """The same in all versions: the queue knows the lake by it."""
    upto: int = 0
    """The history's position up to which events are in the lake."""
    last: str = ""
    """The event there, shortly: by it the lake knows its queue again."""
    made_at: float = 0.0
    segments: tuple[Segment, ...] = ()
    layout: int = LAYOUT

    def of(self, table: str) -> list[Segment]:
        """The segments of one table, oldest first."""
        return [segment for segment in self.segments if segment.table == table]

    def paths(self, table: str) -> list[str]:
        return [segment.path for segment in self.of(table)]

    def with_segments(
        self, added: Iterable[Segment], removed: Iterable[Segment] = (), upto: int = 0, last: str = ""
    ) -> Snapshot:
        """What comes after this one."""
        gone = set(removed)
        kept = [segment for segment in self.segments if segment not in gone]
        return replace(
            self,
            version=self.version + 1,
            id=self.id or uuid.uuid4().hex[:12],
            upto=max(self.upto, upto),
            last=last or self.last,
            made_at=time.time(),
            segments=tuple(sorted([*kept, *added], key=lambda it: (it.table, it.lo, it.hi, it.path))),
        )


class Lake:
    """A directory that the driver and all executors share."""

    def __init__(self, root: str | Path, table: LakeTable | None = None) -> None:
        self.root = _directory(root)
        self.table: LakeTable = table or Parquet()

    def __repr__(self) -> str:
        return f"Lake({str(self.root)!r})"

    def versions(self) -> list[int]:
        """Those whose files are still there, oldest first."""
        names = (name.removesuffix(".json") for name in _names(self.root / LOG) if name.endswith(".json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def snapshot(self, version: int | None = None) -> Snapshot:
        """A version of the lake, the last if none is named; an empty one if there is no lake yet."""
        while True:
            known = self.versions()
            if version is None and not known:
                return Snapshot()
            try:
                text = self._entry(known[-1] if version is None else version).read_text()
            except FileNotFoundError:
                if version is None:  # vacuumed between the two looks
                    continue
                raise UsageError(
                    f"{self.root} has no version {version}; it has {known[0]} to {known[-1]}"
                    if known
                    else f"{self.root} is no lake; `penstock pipeline run {self.root}` makes one"
                ) from None
            return _parsed(self.root, text)

    def needed(self) -> Snapshot:
        """The last version; an error if there is no lake."""
        found = self.snapshot()
        if not found.version:
            raise UsageError(f"{self.root} is no lake; `penstock pipeline run {self.root}` makes one")
        return found

    def begin(self) -> Snapshot:
        """The last version; the first one, empty, is made if there is none."""
        while not (found := self.snapshot()).version:
            self.check_free()
            self.publish(found.with_segments(()), ())
        return found

    def check_free(self) -> None:
        """An error if this is neither a lake nor a directory that can become one."""
        if (names := _names(self.root)) and LOG not in names:
            raise UsageError(
                f"{self.root} is no lake and not empty: {sorted(names)[0]} is in it; name a directory that is new"
            )

    def publish(self, snapshot: Snapshot, added: Iterable[Segment]) -> bool:
        """Make a version count; False if somebody else has made that version before.

        added: its new segments. They are on disk before: what is in the lake may be forgotten by the queue.
        """
        self.keep(segment.path for segment in added)
        log = self.root / LOG
        _make(log)
        draft = log / f".{uuid.uuid4().hex}"
        with open(draft, "x") as file:
            json.dump(asdict(snapshot), file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self._entry(snapshot.version))
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        _sync(log)
        return True

    def keep(self, paths: Iterable[str]) -> None:
        """Have what was written there on disk, with all directories that lead to it.

        They are touched before, so that no vacuum takes them for abandoned, however long ago they were written.
        """
        found = list(paths)
        for home in {home_of(path) for path in found}:
            os.utime(self.root / home)
        above = set[Path]()
        for path in found:
            for inside in (self.root / path, *(self.root / path).rglob("*")):
                _sync(inside)
            above.update((self.root / path).relative_to(self.root).parents)
        for directory in sorted(above, reverse=True):
            _sync(self.root / directory)

    def _entry(self, version: int) -> Path:
        return self.root / LOG / f"{version:020}.json"

    def place(self, layer: str, lo: int, hi: int) -> str:
        """A directory, relative to the lake, that nobody else writes to."""
        return f"{layer}/{lo}-{hi}-{uuid.uuid4().hex[:12]}"

    def path(self, relative: str) -> str:
        return str(self.root / relative)

    def segment(self, table: str, relative: str, lo: int, hi: int) -> Segment | None:
        """What was written there; None if it is nothing."""
        if not (self.root / relative).exists():
            return None
        size = self.table.size(self.root / relative)
        return Segment(table, relative, lo, hi, *size) if size.rows else None


def discard(lake: Lake, segments: Iterable[Segment]) -> None:
    """Remove files that no version names. What is left behind by a crash here is found by vacuum."""
    for segment in segments:
        shutil.rmtree(lake.root / home_of(segment.path), ignore_errors=True)


def home_of(path: str) -> str:
    """The directory that one attempt has written."""
    return "/".join(path.split("/")[:2])


def _directory(root: str | Path) -> Path:
    text = str(root)
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = parts.path
    elif "://" in text:
        raise UsageError(
            f"a lake is a directory that the driver and all executors share, not {text!r}; mount it, or name another"
        )
    return Path(text).absolute()


def _parsed(root: Path, text: str) -> Snapshot:
    found = json.loads(text)
    if found["layout"] > LAYOUT:
        raise UsageError(
            f"{root} has layout {found['layout']}, and this version of penstock knows {LAYOUT}; update penstock"
        )
    return Snapshot(**{**found, "segments": tuple(Segment(**segment) for segment in found["segments"])})


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be listed, {error.strerror}: a lake is a directory that you may read and write"
        ) from None


def _make(directory: Path) -> None:
    """Make a directory that is still there after a crash of the machine."""
    if directory.is_dir():
        return
    _make(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync(directory.parent)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
