"""Rows of Arrow on their way to become tasks. pyarrow is an optional part: only what stages rows imports this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engines.spool import Buffer
from penstock.engines.verbs.checks import missing
from penstock.model.duration import FOREVER, At
from penstock.model.errors import PayloadTooLarge, UsageError, shown
from penstock.model.state import State
from penstock.model.task import Draft, OnConflict, Record
from penstock.model.tube import MAX_TEXT, TubeConfig

DATE = pa.timestamp("us", tz="UTC")
KINDS = {
    "data": (pa.string(),),
    "body": (pa.binary(),),
    "pri": (pa.int64(),),
    "lane": (pa.string(),),
    "key": (pa.string(),),
    "delay": (pa.int64(), DATE),
    "ttl": (pa.int64(),),
    "ttr": (pa.int64(),),
    "max_attempts": (pa.int64(),),
    "keep": (pa.int64(),),
    "repeat": (pa.int64(),),
}
"""The columns that staged rows may have. Times are whole microseconds; a delay may be a moment."""
LEAST = {"delay": 0, "ttl": 0, "ttr": 0, "keep": 0, "max_attempts": 1, "repeat": 1}
FEATURES = {
    **{name: name for name in ("pri", "ttl", "ttr", "delay")},
    "lane": "lanes",
    "delay_until": "delay",
    "repeat": "delay",
}
"""Options that only some tubes have."""
PLAIN = frozenset(("data", "body", "pri", "lane"))
"""What differs from task to task in ordinary bulk loads."""


def read(rows: Buffer) -> pa.Table:
    """The table of an Arrow IPC stream, checked. Options that are null in every row are left out."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(rows)) as stream:
            table = stream.read_all()
    except pa.ArrowInvalid as error:
        raise UsageError(f"rows are staged as an Arrow IPC stream, and these are not one: {error}") from None
    names = table.column_names
    if ("data" in names) == ("body" in names):
        raise UsageError(f"staged rows have either data or body, got the columns {', '.join(names) or 'none'}")
    for field in table.schema:
        if field.type not in KINDS.get(field.name, ()):
            raise UsageError(f"staged rows have no column {field.name!r} of type {field.type}; they have {_kinds()}")
    kept = [name for name in names if name in ("data", "body") or table[name].null_count < len(table)]
    table = table.select(kept)
    for name in kept:
        _check_values(name, table[name])
    return table.replace_schema_metadata()


def _kinds() -> str:
    return ", ".join(f"{name} {' or '.join(map(str, kinds))}" for name, kinds in KINDS.items())


def _check_values(name: str, column: pa.ChunkedArray) -> None:
    if name in ("data", "body"):
        if column.null_count:
            raise UsageError(f"staged rows all have data, and {name} is null in {column.null_count} of them")
    elif name in ("lane", "key"):
        if (pc.max(pc.binary_length(column)).as_py() or 0) > MAX_TEXT:
            long = column.filter(pc.greater(pc.binary_length(column), MAX_TEXT))[0].as_py()
            raise UsageError(f"{name} must have at most {MAX_TEXT} bytes, got {shown(long)}")
        if pc.any(pc.match_substring(column, "\0")).as_py():
            raise UsageError(f"{name} must not contain NUL")
    elif name in LEAST and column.type == pa.int64():
        least = pc.min(column).as_py()
        if least < LEAST[name]:
            raise UsageError(f"{name} must be at least {LEAST[name]}, got {least}")


class Extent(NamedTuple):
    """What has to be known of rows to tell whether they fit a tube."""

    rows: int
    columns: tuple[str, ...]
    longest: int
    """Bytes of the longest data."""


def extent(table: pa.Table) -> Extent:
    """The extent of a checked table."""
    lengths = pc.binary_length(table[payload_column(table)])
    return Extent(len(table), tuple(table.column_names), pc.max(lengths).as_py() or 0)


def payload_column(table: pa.Table) -> str:
    return "body" if "body" in table.column_names else "data"


def check_fit(config: TubeConfig, rows: Extent) -> None:
    """Refuse rows that a put of this tube would refuse, whatever it holds."""
    if config.hooks:
        raise UsageError(f"tube {config.name!r} has rules in a program (kind {config.kind!r}), so tasks are put there")
    if config.id in ("required", "function"):
        raise UsageError(f"tube {config.name!r} has id={config.id!r}: every put needs an id, and staged rows have none")
    for name, feature in FEATURES.items():
        if name in rows.columns and not getattr(config.features, feature):
            raise missing(config, name.removesuffix("_until"), feature)
    if rows.longest > config.max_payload:
        raise PayloadTooLarge(
            f"the longest data has {rows.longest} bytes, tube {config.name!r} takes at most {config.max_payload}; "
            "put it elsewhere and its address in the task, or alter max_payload"
        )
    if ("body" in rows.columns) != (config.payload == "bytes"):
        raise UsageError(f"tube {config.name!r} takes {config.payload} payloads")


def drafts(table: pa.Table, on_conflict: OnConflict) -> Iterator[Draft]:
    """The rows as drafts."""
    columns: dict[str, list[Any]] = {name: table[name].to_pylist() for name in table.column_names if name != "delay"}
    data = columns.pop(payload_column(table))
    if "delay" in table.column_names:
        columns["delay"] = delays(table["delay"])
    for name in ("lane", "key"):  # "" is none, as everywhere
        if name in columns:
            columns[name] = [value or None for value in columns[name]]
    blank = Draft("", on_conflict=on_conflict)
    names = list(columns)
    for text, *values in zip(data, *columns.values(), strict=True):
        yield blank._replace(data=text, **dict(zip(names, values, strict=True)))


def delays(column: pa.ChunkedArray) -> list[Any]:
    """A column of delays as drafts have them."""
    if column.type == pa.int64():
        return list(column.to_pylist())
    return [None if moment is None else At(moment) for moment in column.cast(pa.int64()).to_pylist()]


def timed(config: TubeConfig, table: pa.Table, fresh: Record, now: int) -> dict[str, pa.ChunkedArray]:
    """What rules.put and rules.due answer for each row, where rows have options that matter to it.

    fresh: a task of the tube without options.
    """
    given = [name for name in table.column_names if name not in (*PLAIN, "key")]
    if not given:
        return {}
    rows = len(table)
    own: dict[str, Any] = {
        name: pc.coalesce(table[name], pa.scalar(getattr(fresh, name), pa.int64()))
        if name in given
        else pa.chunked_array([pa.array([getattr(fresh, name)] * rows, pa.int64())])
        for name in ("max_attempts", "ttl", "ttr", "keep", "repeat")
    }
    if config.ttr_is_ttl:
        own["ttr"] = pc.coalesce(own["ttr"], own["ttl"])
    start = pa.chunked_array([pa.array([now] * rows, pa.int64())])
    delay = _lengths(table["delay"], now) if "delay" in given else pc.multiply(start, 0)
    waits = pc.greater(delay, 0)
    own["state"] = pc.if_else(waits, str(State.DELAYED), str(State.READY))
    own["ready_at"] = _after(start, delay)
    lasts = pc.if_else(pc.is_null(own["repeat"]), own["ttl"], None)
    own["expires_at"] = _after(own["ready_at"], lasts)
    wakes = pc.if_else(waits, own["ready_at"], None)
    own["due_at"] = pc.min_element_wise(wakes, own["expires_at"])
    return own


def _lengths(delays: pa.ChunkedArray, now: int) -> pa.ChunkedArray:
    """Delays as durations; a moment that has passed is none."""
    if delays.type == DATE:
        delays = pc.subtract(delays.cast(pa.int64()), now)
    return pc.max_element_wise(pc.fill_null(delays, 0), 0)


def _after(start: pa.ChunkedArray, duration: pa.ChunkedArray) -> pa.ChunkedArray:
    """The moments after durations; null where they never come."""
    return pc.add(start, pc.if_else(pc.less(duration, FOREVER), duration, None))
