"""Columns of a DataFrame as rows to stage: which of them are options of a put, and what becomes of the others.

A column `data` holds the data: text is JSON already, anything else is made JSON. `body` is for tubes with
payload="bytes". Without either, all columns that are no options become one JSON object.
"""

from __future__ import annotations

import base64
import datetime
import decimal
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types
from pyspark.sql.types import DataType, StructType

from penstock import payload
from penstock.engines import staged
from penstock.model.duration import FOREVER, SECOND
from penstock.model.errors import PayloadTooLarge, UsageError, shown
from penstock.model.tube import TubeConfig

WHOLE = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
NUMBERS = (*WHOLE, types.FloatType, types.DoubleType, types.DecimalType)
OPTIONS: dict[str, tuple[type[DataType], ...]] = {
    "pri": WHOLE,
    "lane": (types.StringType, *WHOLE),
    "key": (types.StringType, *WHOLE),
    "delay": (*NUMBERS, types.TimestampType),
    "ttl": NUMBERS,
    "ttr": NUMBERS,
    "max_attempts": WHOLE,
    "keep": (*NUMBERS, types.BooleanType),
    "repeat": NUMBERS,
}
"""Columns that are options of a put, and the types they may have. Times are seconds."""
TEXTS = ("lane", "key")
COUNTS = ("pri", "max_attempts")
SUSPECT = r"\\u|[0-9]{19}|[eE][+-]?[0-9]{3}"
"""Text in which there may be a NUL or a number that tasks cannot have."""
_is_json = msgspec.json.Decoder(msgspec.Raw).decode


class Shape(NamedTuple):
    """What the columns of a DataFrame are for. Decided by the driver, used on executors."""

    options: tuple[str, ...]
    data: tuple[str, ...]
    """Columns that make up the data."""
    whole: bool
    """True if the data is one column, false if it is an object of several."""
    most: int
    """Bytes that data may have."""


def shape(schema: StructType, config: TubeConfig) -> Shape:
    """What to do with columns of these names and types; refuses what the tube would."""
    options = [field for field in schema.fields if field.name in OPTIONS]
    others = [field for field in schema.fields if field.name not in OPTIONS]
    for field in options:
        if not isinstance(field.dataType, OPTIONS[field.name]):
            known = ", ".join(kind.typeName() for kind in OPTIONS[field.name])
            raise UsageError(
                f"column {field.name!r} is an option of put and must be one of {known}, not "
                f"{field.dataType.simpleString()}; cast or rename it"
            )
    names = tuple(field.name for field in others)
    column = "body" if config.payload == "bytes" else "data"
    named = next((name for name in names if name in ("data", "body")), None)
    if named is not None and len(names) > 1:
        extra = next(name for name in names if name != named)
        raise UsageError(
            f"column {extra!r} is neither {named!r} nor an option of put ({', '.join(OPTIONS)}); drop it, or drop "
            f"{named!r} and all such columns become the data"
        )
    if not names:
        raise UsageError(f"there is no column for the data: name one {column!r}")
    if (named or "data") != column:
        raise UsageError(f"tube {config.name!r} has payload={config.payload!r}: its data is a column {column!r}")
    if column == "body" and not isinstance(others[0].dataType, types.BinaryType):
        raise UsageError(f"column 'body' must be binary, not {others[0].dataType.simpleString()}")
    stored = tuple(field.name for field in options)
    staged.check_fit(config, staged.Extent(0, (*stored, column), 0))
    return Shape(stored, names, named is not None, config.max_payload)


def rows(batch: pa.RecordBatch, shape: Shape) -> pa.RecordBatch:
    """A batch as it is staged."""
    columns = {name: _option(name, batch.column(name)) for name in shape.options}
    if shape.whole and shape.data == ("body",):
        columns["body"] = _checked_bytes(_plain(batch.column("body"), pa.binary()))
    elif shape.whole:
        columns["data"] = _data(batch.column("data"))
    else:
        columns["data"] = _objects(batch, shape.data)
    _check_size(columns.get("data", columns.get("body")), shape.most)
    return pa.RecordBatch.from_pydict(columns)


# -- options -------------------------------------------------------------------------------------------


def _option(name: str, column: pa.Array) -> pa.Array:
    if name in TEXTS:
        return _plain(column, pa.string())
    if name in COUNTS:
        return column.cast(pa.int64())
    if pa.types.is_timestamp(column.type):
        return column.cast(staged.DATE)
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, pa.scalar(FOREVER, pa.int64()), pa.scalar(0, pa.int64()))
    return _micros(name, column)


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def _micros(name: str, column: pa.Array) -> pa.Array:
    """Seconds as whole microseconds, rounded as everywhere; as long as FOREVER is for ever."""
    # Unsafe for whole numbers above 2**53, which are for ever however they are rounded.
    seconds = column.cast(pa.float64(), safe=False)
    if pc.any(pc.is_nan(seconds)).as_py():
        raise UsageError(f"{name} must be a number of seconds, not NaN")
    if name == "delay":
        seconds = pc.if_else(pc.less(seconds, 0.0), 0.0, seconds)
    elif (least := pc.min(seconds).as_py()) is not None and least < 0:
        raise UsageError(f"{name} must not be negative, got {least!r}")
    exact = pc.round(pc.multiply(pc.if_else(pc.greater(seconds, FOREVER / SECOND), 0.0, seconds), float(SECOND)))
    micros = pc.if_else(pc.greater_equal(seconds, FOREVER / SECOND), FOREVER, exact.cast(pa.int64()))
    if name == "repeat" and pc.any(pc.equal(micros, 0)).as_py():
        raise UsageError("repeat must be more than 0 seconds")
    return micros


# -- data ----------------------------------------------------------------------------------------------


def _data(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise UsageError(f"data is null in {column.null_count} of {len(column)} rows; the text 'null' is JSON's null")
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _plain(column, pa.string())
        _check_json(column)
        return column
    return _encoded(_values(column))


def _check_json(column: pa.Array) -> None:
    """Refuse text that is no JSON, or JSON that put would refuse."""
    texts = column.to_pylist()
    try:
        for text in texts:
            _is_json(text)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise UsageError(
            f"data must be JSON text, and {shown(text)} is not: {error}; to_json() makes it of a column, and a text "
            "in quotes is one"
        ) from None
    long = column.filter(pc.greater(pc.binary_length(column), payload.SHORT))
    deep = pc.greater(pc.add(pc.count_substring(long, "["), pc.count_substring(long, "{")), payload.MAX_DEPTH)
    suspects = (column.filter(pc.match_substring_regex(column, SUSPECT)), long.filter(deep))
    for text in chain.from_iterable(some.to_pylist() for some in suspects):
        try:
            payload.encode(payload.decode(text))
        except (UsageError, msgspec.MsgspecError) as error:
            raise UsageError(f"data {shown(text)} is refused: {error}") from None


def _objects(batch: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    columns = [_values(batch.column(name)) for name in names]
    return _encoded([dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)])


def _values(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    simple = _simple(column.type)
    return values if simple is None else [simple(value) for value in values]


def _encoded(values: Sequence[Any]) -> pa.Array:
    texts = []
    for value in values:
        try:
            texts.append(payload.encode(value))
        except UsageError as error:
            raise UsageError(f"data {shown(value)} is refused: {error}") from None
    return pa.array(texts, pa.string())


def _simple(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes values of a type such as JSON has; None if they are."""
    scalars = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string, pa.types.is_null)
    return None if any(test(kind) for test in scalars) else _jsonable


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def _checked_bytes(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise UsageError(f"body is null in {column.null_count} of {len(column)} rows; empty bytes are b''")
    return column


def _check_size(column: pa.Array, most: int) -> None:
    lengths = pc.binary_length(column)
    if (pc.max(lengths).as_py() or 0) > most:
        long = column.filter(pc.greater(lengths, most))[0].as_py()
        raise PayloadTooLarge(
            f"data {shown(long)} has {len(long.encode() if isinstance(long, str) else long)} bytes, the tube takes at "
            f"most {most}; put it elsewhere and its address in the task, or alter max_payload"
        )
