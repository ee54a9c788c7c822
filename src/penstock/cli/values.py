"""From words on the command line to values. What cannot be read is said by the option that it was given to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import typer

from penstock.model.errors import PenstockError, UsageError, shown
from penstock.model.retry import Exponential
from penstock.model.task import TaskId

UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
LENGTH = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|w|)\Z")
WHOLE = re.compile(r"-?(0|[1-9]\d*)\Z")
YES, NO = ("yes", "true", "forever"), ("no", "false")


def seconds(text: str) -> float:
    """A length of time.

    >>> seconds("90"), seconds("1.5h"), seconds("2d")
    (90.0, 5400.0, 172800.0)
    """
    if text == "forever":
        return float("inf")
    match = LENGTH.match(text)
    if match is None:
        raise typer.BadParameter(f"{shown(text)} is no length of time such as 30, 1.5s, 10m, 2h, 1d or forever")
    return float(match[1]) * UNITS[match[2]]


def delay(text: str) -> float | datetime:
    """A length of time, or the date when it is over; without a time zone it is that of this machine."""
    if LENGTH.match(text) or text == "forever":
        return seconds(text)
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{shown(text)} is neither a length of time such as 30, 10m or 2h nor a date such as 2030-01-31T08:00"
        ) from None
    return date if date.tzinfo else date.astimezone()


def life(text: str) -> float | str:
    """A ttl: a length of time, or `derived`."""
    return text if text == "derived" else seconds(text)


def keep(text: str) -> bool | float:
    """How long something is kept: yes, no, or a length of time."""
    if text in YES or text in NO:
        return text in YES
    return seconds(text)


def retry(text: str) -> Any:
    """A retry policy.

    >>> retry("1,5,30"), retry("exponential:base=2,jitter=0.1")
    ([1.0, 5.0, 30.0], Exponential(base=2.0, factor=2, max=3600, jitter=0.1))
    """
    name, _, rest = text.partition(":")
    if name != "exponential":
        waits = [seconds(part) for part in text.split(",")]
        return waits if len(waits) > 1 else waits[0]
    given: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        option, _, value = part.partition("=")
        if option not in Exponential.__dataclass_fields__:
            raise typer.BadParameter(f"exponential has base, factor, max and jitter, not {shown(option)}")
        given[option] = seconds(value) if option in ("base", "max") else real(value)
    return Exponential(**given)


def whole(text: str) -> int:
    """A whole number."""
    if not WHOLE.match(text):
        raise typer.BadParameter(f"{shown(text)} is no whole number")
    return int(text)


def real(text: str) -> float:
    """A number."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{shown(text)} is no number") from None


def task_id(text: str) -> TaskId:
    """An id as it is printed: a number, text, or JSON where the two could be mixed up.

    >>> task_id("7"), task_id("order-7"), task_id('"7"'), task_id('["a", 7]')
    (7, 'order-7', '7', ('a', 7))
    """
    if WHOLE.match(text):
        return int(text)
    if text[:1] not in ('"', "["):
        return text
    try:
        found: TaskId = _tuples(json.loads(text))
        return found
    except ValueError:
        return text


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def shown_id(id: TaskId) -> str:
    """An id so that task_id() reads the same.

    >>> shown_id(7), shown_id("order-7"), shown_id("7"), shown_id(("a", 7))
    ('7', 'order-7', '"7"', '["a", 7]')
    """
    if isinstance(id, str) and task_id(id) == id and id.isprintable():
        return id
    return json.dumps(id, ensure_ascii=False)


def data(text: str) -> Any:
    """A task's data as JSON."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        raise UsageError(f"{shown(text)} is no JSON; for text add --text, or quotes: '\"..\"'") from None
    except RecursionError:
        raise UsageError("data may be nested at most 64 deep") from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def option(name: str, text: str, read: Callable[[str], Any]) -> Any:
    """What an option was given, read; `none` is None. What is wrong is said with the option's name."""
    if text == "none":
        return None
    try:
        return read(text)
    except (typer.BadParameter, PenstockError) as error:
        raise UsageError(f"--{name.replace('_', '-')}: {error}") from None
