"""Records of a file, one at a time: JSON lines, CSV, or plain lines. What is bad is an error in its place."""

from __future__ import annotations

import csv
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from penstock.cli import values
from penstock.model.errors import PenstockError, UsageError, shown

BOM = b"\xef\xbb\xbf"
LONGEST = 64 << 20
"""Bytes of a line above which a file is taken for something else."""
MOST_LINES = 10_000
"""Lines of one record of CSV."""


class Format(StrEnum):
    """How a file is written."""

    jsonl = "jsonl"
    csv = "csv"
    lines = "lines"


SUFFIXES = {
    ".jsonl": Format.jsonl,
    ".ndjson": Format.jsonl,
    ".json": Format.jsonl,
    ".csv": Format.csv,
    ".txt": Format.lines,
}


class Line(NamedTuple):
    """A line of the file, with its number."""

    number: int
    raw: bytes


class Record(NamedTuple):
    """What was read, or why it could not be, from which lines."""

    value: Any
    lines: list[Line]

    @property
    def line(self) -> int:
        """The number of the line where it begins."""
        return self.lines[0].number

    @property
    def end(self) -> int:
        """The number of the line where it ends."""
        return self.lines[-1].number

    @property
    def raw(self) -> bytes:
        return b"".join(line.raw for line in self.lines)


class Source:
    """An open file. `read` is how many bytes of it were read so far, `head` the line that names the columns."""

    def __init__(self, name: str, stream: BinaryIO, size: int | None, format: Format, as_bytes: bool = False) -> None:
        self.name = name
        self.size = size
        self.format = format
        self.read = 0
        self.head = b""
        self._as_bytes = as_bytes
        self._stream = stream

    def records(self) -> Iterator[Record]:
        """All records, in order; empty lines are none."""
        if self.format is Format.csv:
            yield from self._csv()
            return
        read = values.data if self.format is Format.jsonl else str
        for line in self._lines():
            text = line.raw.strip() if self.format is Format.jsonl else line.raw.rstrip(b"\r\n")
            if text:
                yield Record(text if self._as_bytes else _tried(text, read), [line])

    def _lines(self) -> Iterator[Line]:
        number = 0
        while raw := self._stream.readline(LONGEST):
            if len(raw) == LONGEST:
                raise UsageError(f"{self.name} has a line of more than {LONGEST >> 20} MiB; is it a file of records?")
            if number == 0:
                raw = raw.removeprefix(BOM)
            number += 1
            self.read += len(raw)
            yield Line(number, raw)

    def _csv(self) -> Iterator[Record]:
        csv.field_size_limit(LONGEST)
        feed = Feed(self._lines())
        reader = csv.reader(feed, strict=True)
        names: list[str] | None = None
        while True:
            feed.taken = []
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                # A quote may have been opened by mistake: only the line where it was is given up.
                feed.give_back(feed.taken[1:])
                reader = csv.reader(feed, strict=True)
                yield Record(UsageError(f"it is no CSV: {error}"), feed.taken[:1])
                continue
            if row and names is None:
                names, self.head = _checked_names(self.name, row), feed.taken[-1].raw
            elif row and names is not None:
                yield Record(_row(names, row), feed.taken)


class Feed:
    """Lines for a reader of CSV, as text; bytes that are no UTF-8 stay, and are refused with their record."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.taken: list[Line] = []
        self._lines = lines
        self._back = deque[Line]()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self.taken) >= MOST_LINES:
            raise csv.Error(f"a quote is not closed within {MOST_LINES} lines")
        line = self._back.popleft() if self._back else next(self._lines)
        self.taken.append(line)
        return line.raw.decode(errors="surrogateescape")

    def give_back(self, lines: Iterable[Line]) -> None:
        """These are read again."""
        self._back.extendleft(reversed(list(lines)))


def _checked_names(file: str, names: list[str]) -> list[str]:
    if len(set(names)) < len(names) or "" in names:
        raise UsageError(f"the first line of {file} must name the columns, each once; it has {shown(names)}")
    return names


def _row(names: list[str], row: list[str]) -> dict[str, str] | PenstockError:
    if len(row) != len(names):
        return UsageError(f"it has {len(row)} fields, the first line names {len(names)}")
    try:
        ",".join(row).encode()
    except UnicodeEncodeError:
        return UsageError("it is no UTF-8")
    return dict(zip(names, row, strict=True))


def _tried(raw: bytes, read: Callable[[str], Any]) -> Any:
    try:
        return read(raw.decode())
    except UnicodeDecodeError:
        return UsageError("it is no UTF-8")
    except PenstockError:
        return UsageError(f"{shown(raw.decode())} is no JSON")


@contextmanager
def opened_file(name: str, format: Format | None, as_bytes: bool = False) -> Iterator[Source]:
    """A file by its name; - is stdin. The format is the one of its suffix unless it is given.

    as_bytes: records are lines as they are, for a tube that takes bytes
    """
    if format is None:
        format = SUFFIXES.get(Path(name).suffix.lower())
    if format is None:
        raise UsageError(f"what is in {name}? Pass --format jsonl, csv or lines")
    if as_bytes and format is not Format.lines:
        raise UsageError("a tube with payload bytes takes lines as they are: --format lines")
    if name == "-":
        yield Source("stdin", sys.stdin.buffer, None, format, as_bytes)
        return
    try:
        stream = open(name, "rb")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None
    with stream:
        yield Source(name, stream, Path(name).stat().st_size or None, format, as_bytes)


def parts(records: Iterable[Record], number: int, size: int) -> Iterator[list[Record]]:
    """Records together, up to so many, or so many bytes."""
    part, bytes = list[Record](), 0
    for record in records:
        part.append(record)
        bytes += len(record.raw)
        if len(part) >= number or bytes >= size:
            yield part
            part, bytes = [], 0
    if part:
        yield part
