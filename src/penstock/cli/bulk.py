"""Very many puts from a file: read as it goes, stored in parts, what is refused named by its line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import IO, Annotated, Any

import typer

from penstock.blocking import Tube
from penstock.calls import Entry
from penstock.cli import output, values
from penstock.cli.advice import advised
from penstock.cli.interruption import Signals
from penstock.cli.records import Format, Record, Source, opened_file, parts
from penstock.model.errors import BatchError, EngineUnavailable, PenstockError, TubeFull, UsageError, shown

PART = 2000
"""Records in a transaction."""
PART_SIZE = 4 << 20
MOST_TOLD = 20
"""Refused lines that are told one by one on stderr; with --json all are, on stdout."""
FILES = "Files"


def field_option(what: str) -> Any:
    return typer.Option(metavar="NAME", help=f"The field of a record that is the task's {what}.", rich_help_panel=FILES)


@dataclass(frozen=True)
class Bulk:
    """Options of a put from a file."""

    format: Annotated[
        Format | None,
        typer.Option(help="Of the file; else its suffix says. CSV has names in line 1.", rich_help_panel=FILES),
    ] = None
    lane_field: Annotated[str | None, field_option("lane")] = None
    key_field: Annotated[str | None, field_option("key")] = None
    pri_field: Annotated[str | None, field_option("priority")] = None
    id_field: Annotated[str | None, field_option("id")] = None
    skip: Annotated[
        int, typer.Option(min=0, help="Leave out this many lines, to go on after a stop.", rich_help_panel=FILES)
    ] = 0
    refused: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write lines that are refused here.", rich_help_panel=FILES)
    ] = None

    def put(self, tube: Tube, name: str, options: dict[str, Any], timeout: float) -> None:
        """Put the records of a file; BatchError at the end if some were refused."""
        with ExitStack() as stack:
            source = stack.enter_context(opened_file(name, self.format, tube.options["payload"] == "bytes"))
            refused = stack.enter_context(_opened_new(self.refused)) if self.refused else None
            Loading(self, tube, source, refused, options, timeout).run()


class Loading:
    """One file on its way into a tube."""

    def __init__(
        self,
        bulk: Bulk,
        tube: Tube,
        source: Source,
        refused: IO[bytes] | None,
        options: dict[str, Any],
        timeout: float,
    ) -> None:
        self._bulk = bulk
        self._tube = tube
        self._source = source
        self._file = refused
        self._options = options
        self._timeout = timeout
        self._stored = self._existing = self._refused = 0
        self._line = bulk.skip
        """The last line of what is dealt with."""
        self._storing = False
        """Whether what comes after that line is on its way."""

    def run(self) -> None:
        try:
            with (
                Signals() as signals,
                output.progress(f"put into {self._tube.name}", self._source.size, "bytes") as tell,
            ):
                for part in parts(self._wanted(), PART, PART_SIZE):
                    # A part whose put is cut off may be stored or not. One that waits for room can be cut off.
                    with nullcontext() if self._timeout else signals.held():
                        self._put(part)
                    tell(self._source.read)
        except BaseException as error:
            if self._all or self._storing:
                self._tell_number()
                self._tell_how_to_go_on(error)
            raise
        self._tell_number()
        if self._refused:
            raise BatchError(
                f"{self._refused} of {self._all} records of {self._source.name} were refused; "
                "the others are stored. Mend those and put them again"
            )

    @property
    def _all(self) -> int:
        return self._stored + self._existing + self._refused

    def _wanted(self) -> Iterator[Record]:
        return (record for record in self._source.records() if record.line > self._bulk.skip)

    def _put(self, part: list[Record]) -> None:
        entries = [self._tried(record) for record in part]
        good = [entry for entry in entries if isinstance(entry, Entry)]
        self._storing = True
        placed = self._tube.put_many(good, errors="return", timeout=self._timeout, **self._options) if good else []
        self._storing = False
        answers = iter(placed)
        for record, entry in zip(part, entries, strict=True):
            answer = next(answers) if isinstance(entry, Entry) else entry
            if isinstance(answer, TubeFull):
                self._line = record.line - 1
                raise answer
            if isinstance(answer, PenstockError):
                self._refuse(record, answer)
            elif answer.outcome == "existing":
                self._existing += 1
            else:
                self._stored += 1
        self._line = part[-1].end

    def _tried(self, record: Record) -> Entry | PenstockError:
        try:
            return self._entry(record.value)
        except PenstockError as error:
            return error

    def _entry(self, value: Any) -> Entry:
        """A record with the options that its fields hold."""
        if isinstance(value, PenstockError):
            raise value
        bulk = self._bulk
        pri = _field(value, bulk.pri_field)
        id = _field(value, bulk.id_field)
        return Entry(
            value,
            pri=None if pri is None else _whole(pri, bulk.pri_field),
            lane=_text(_field(value, bulk.lane_field), bulk.lane_field),
            key=_text(_field(value, bulk.key_field), bulk.key_field),
            id=values.task_id(id) if isinstance(id, str) and self._source.format is Format.csv else id,
        )

    def _refuse(self, record: Record, error: PenstockError) -> None:
        self._refused += 1
        if self._file is not None:
            head = self._source.head if self._refused == 1 else b""
            self._file.write(head + record.raw.removesuffix(b"\n") + b"\n")
        if output.as_json():
            output.json_line({"line": record.line, "error": advised(error), "code": error.code})
        elif self._refused <= MOST_TOLD:
            output.message(f"{self._source.name}:{record.line}: {advised(error)}")
        elif self._refused == MOST_TOLD + 1:
            output.message("more are refused; --json tells all, --refused FILE collects them")

    def _tell_number(self) -> None:
        output.number("stored", self._stored, existing=self._existing, refused=self._refused, line=self._line)

    def _tell_how_to_go_on(self, error: BaseException) -> None:
        unsure = self._storing and not (isinstance(error, EngineUnavailable) and error.outcome == "not_done")
        doubt = f"; of the {PART} after it nothing is known" if unsure else ""
        output.message(f"up to line {self._line} all is dealt with{doubt}; go on with --skip {self._line}")


def _opened_new(name: str) -> IO[bytes]:
    try:
        return open(name, "xb")
    except OSError as error:
        raise UsageError(
            f"--refused {name} cannot be made: {error.strerror}; name a file that does not exist"
        ) from None


def _field(value: Any, name: str | None) -> Any:
    if name is None:
        return None
    if not isinstance(value, dict):
        raise UsageError(f"it is no object, so it has no field {name!r}")
    if name not in value:
        raise UsageError(f"it has no field {name!r}")
    return value[name] if value[name] != "" else None


def _text(value: Any, name: str | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UsageError(f"field {name!r} is {shown(value)}, no text")


def _whole(value: Any, name: str | None) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and values.WHOLE.match(value):
        return int(value)
    raise UsageError(f"field {name!r} is {shown(value)}, no whole number")
