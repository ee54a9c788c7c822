"""Rows as they are staged: an Arrow IPC stream."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from penstock import Entry
from penstock.model.duration import micros

TIMES = ("delay", "ttl", "ttr", "keep", "repeat")


def stream(table: pa.Table) -> bytes:
    """A table as an IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def rows(entries: Sequence[Entry]) -> bytes:
    """Entries of put_many as staged rows; what none of them has gets no column."""
    columns: dict[str, pa.Array] = {}
    if isinstance(entries[0].data, bytes):
        columns["body"] = pa.array([entry.data for entry in entries])
    else:
        columns["data"] = pa.array([msgspec.json.encode(entry.data).decode() for entry in entries])
    for name in ("pri", "lane", "key", "delay", "ttl", "ttr", "max_attempts", "keep", "repeat"):
        values: list[Any] = [getattr(entry, name) for entry in entries]
        if any(value is not None for value in values):
            columns[name] = _column(name, values)
    return stream(pa.table(columns))


def _column(name: str, values: list[Any]) -> pa.Array:
    if name in ("lane", "key"):
        return pa.array(values, pa.string())
    if any(isinstance(value, datetime) for value in values):
        return pa.array(values, pa.timestamp("us", tz="UTC"))
    if name in TIMES:
        values = [None if value is None else micros(value, name) for value in values]
    return pa.array(values, pa.int64())
