"""Batches of Arrow. Nothing but scans and what stages rows imports this: pyarrow is an optional part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.duration import FOREVER, SECOND, moment

TYPES = {
    "bigint": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
LAST_DATE = moment(datetime.max.replace(tzinfo=UTC), "max")


def schema(kinds: Mapping[str, str]) -> pa.Schema:
    """Columns and their kinds, as Arrow has them. All may be null."""
    return pa.schema([pa.field(name, TYPES[kind]) for name, kind in kinds.items()])


def stored(kind: str) -> pa.DataType:
    """The type in which a store has such a column: moments and durations are whole microseconds."""
    return pa.int64() if kind in ("timestamp", "double") else TYPES[kind]


def from_columns(kinds: Mapping[str, str], columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """A batch of Python values, a sequence for each column."""
    pairs = zip(columns, kinds.values(), strict=True)
    return shown(kinds, [pa.array(values, stored(kind)) for values, kind in pairs])


def shown(kinds: Mapping[str, str], arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    """A batch of columns as they are stored, with dates and seconds."""
    pairs = zip(arrays, kinds.values(), strict=True)
    return pa.RecordBatch.from_arrays([_shown(array, kind) for array, kind in pairs], schema=schema(kinds))


def _shown(array: pa.Array, kind: str) -> pa.Array:
    if kind == "timestamp":
        return _dates(array)
    if kind == "double":
        seconds = pc.divide(array.cast(pa.float64(), safe=False), float(SECOND))
        forever = pc.greater_equal(array, FOREVER)
        return pc.if_else(forever, float("inf"), seconds)
    return array


def _dates(array: pa.Array) -> pa.Array:
    """Moments past the year 9999 are null, as everywhere."""
    last = pc.max(array).as_py()
    if last is not None and last > LAST_DATE:
        array = pc.if_else(pc.less_equal(array, LAST_DATE), array, None)
    return array.cast(TYPES["timestamp"])
