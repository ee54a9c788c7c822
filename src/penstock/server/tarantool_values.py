"""Arguments of tarantool/queue's functions, as its clients in many languages send them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from penstock import payload
from penstock.model import duration
from penstock.model.duration import FOREVER, SECOND
from penstock.model.errors import UsageError, shown
from penstock.model.task import Data, Draft, TaskId
from penstock.model.tube import PRI_RANGE, TubeConfig, check_text
from penstock.server.refusal import FIELD_MISSING, FIELD_TYPE, KEY_COUNT, Refusal, no_id

DATA_FIELD = {"fifo": 3, "fifottl": 8, "limfifottl": 8, "utube": 4, "utubettl": 9}
"""Where the data is in a tuple of each driver: clients see the number when they forget the data."""
Options = dict[Any, Any]
NONE: Options = {}
LONG = FOREVER // SECOND
NO_OPTIONS = Draft("")[1:]


def data_of(args: Sequence[Any], config: TubeConfig) -> Any:
    """What shall be put."""
    if args:
        return args[0]
    field = DATA_FIELD.get(config.kind, 3)
    raise Refusal(f"Tuple field {field} required by space format is missing", FIELD_MISSING)


def encode(data: Any, config: TubeConfig) -> Data:
    """Data as the tube stores it; text is bytes where the tube takes bytes."""
    if config.payload == "bytes":
        if isinstance(data, str):
            return data.encode(errors="surrogateescape")
        return payload.encode(data, "bytes")
    try:
        return payload.encode_unpacked(data)
    except UsageError:
        if (text := _no_utf8(data)) is not None:
            raise UsageError(
                f"text in data must be UTF-8, got {shown(text)}; "
                'a tube created with payload="bytes" takes any string as data'
            ) from None
        raise


def _no_utf8(value: Any) -> bytes | None:
    """The first string in a value that is no UTF-8."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode(errors="surrogateescape")
    items = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next((found for item in items if (found := _no_utf8(item)) is not None), None)


def decode(data: Data) -> Any:
    """The value of stored data; what is no JSON, because somebody else has written it, is shown as it is."""
    try:
        return payload.decode(data)
    except ValueError:
        return data


def options_of(args: Sequence[Any], index: int) -> Options:
    """A map of options; nil and an empty array, which languages without maps of their own send, are none."""
    value = args[index] if len(args) > index else None
    if not value:
        return NONE
    if not isinstance(value, dict):
        raise UsageError(f"options must be a map, got {shown(value)}")
    return value


def draft(data: Data, config: TubeConfig, options: Options) -> Draft:
    """A task to be put. Options that the tube's kind has no use for are overlooked, and so are unknown ones."""
    if not options:
        bare: Draft = tuple.__new__(Draft, (data, *NO_OPTIONS))
        return bare
    features = config.features
    pri, ttl, ttr = options.get("pri"), options.get("ttl"), options.get("ttr")
    delay, lane = options.get("delay"), options.get("utube")
    return Draft(
        data,
        None if pri is None or not features.pri else priority(pri),
        None if ttl is None or not features.ttl else max(0, seconds(ttl, "ttl")),
        None if ttr is None or not features.ttr else max(0, seconds(ttr, "ttr")),
        None if delay is None or not features.delay else delay_of(delay),
        None if lane is None or not features.lanes else lane_of(lane),
    )


def priority(value: Any) -> int:
    """Whole numbers; Lua knows no other kind of 1.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or value not in PRI_RANGE:
        text = "Tuple field 6 type does not match one required by operation: expected unsigned"
        raise Refusal(f"{text}; pri must be a whole number, got {shown(value)}", FIELD_TYPE)
    return value


def delay_of(value: Any) -> int | None:
    """No delay unless it is more than 0."""
    return max(0, seconds(value, "delay")) or None


def lane_of(value: Any) -> str | None:
    """A sub-queue: whatever is given, as text."""
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, float):
        value = repr(value)
    return check_text(value, "utube")


def seconds(value: Any, name: str) -> int:
    """Microseconds."""
    if type(value) is int and 0 <= value < LONG:
        return value * SECOND
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refusal(f"attempt to compare {_lua_type(value)} with number: {name} is seconds, got {shown(value)}")
    return duration.micros(value, name)


def timeout_of(args: Sequence[Any]) -> int | None:
    """How long a take waits; None: for ever."""
    value = args[0] if args else None
    if value is None:
        return None
    length = seconds(value, "the timeout")
    return None if length >= FOREVER else max(0, length)


def _lua_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str | bytes):
        return "string"
    return "table" if isinstance(value, dict | list | tuple) else "cdata"


def id_of(args: Sequence[Any], part: int = 1) -> TaskId:
    """The task that is meant; `part`: of the index in which tarantool/queue would look for it."""
    value = args[0] if args else None
    if type(value) is int:
        if 0 <= value < 1 << 63:
            return value
    elif value is None:
        wrong = f"(expected {part + 1}, got {part})"
        raise Refusal(f"Invalid key part count in an exact match {wrong}: a task's id is needed", KEY_COUNT)
    elif isinstance(value, float) and value.is_integer() and 0 <= value < 1 << 53:
        return int(value)
    elif isinstance(value, str) and value:
        check_text(value, "id")
        return value
    elif isinstance(value, list | tuple) and value and all(type(it) in (int, str) for it in value):
        return tuple(value)
    raise no_id(value, part)


def count_of(args: Sequence[Any]) -> int:
    """How many tasks to kick: one unless said otherwise."""
    value = args[0] if args else None
    if value is None:
        return 1
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise Refusal(f"'for' limit must be a number: how many tasks to kick, got {shown(value)}")
    return max(0, min(value, (1 << 63) - 1))


def uuid_of(value: Any) -> str:
    """A session's uuid, sent as its 16 bytes, be it a string or binary."""
    if isinstance(value, str):
        value = value.encode(errors="surrogateescape")
    if not isinstance(value, bytes) or len(value) != 16:
        raise Refusal("Invalid UUID format.: identify() takes the 16 bytes that it has answered before")
    return str(uuid.UUID(bytes=value))
