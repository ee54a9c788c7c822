"""Time as whole microseconds, rounded once, at the door.

A *moment* is microseconds since 1970 on the store's clock; a *duration* is microseconds. `FOREVER` and
anything longer is never: `after()` answers None for it, and None as a moment means "does not come".
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from penstock.model.errors import UsageError, shown

SECOND = 1_000_000
FOREVER = 100 * 365 * 24 * 3600 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Seconds = float | int | timedelta


class At(NamedTuple):
    """A delay given as a moment instead of a length of time."""

    moment: int


Delay = int | At


def micros(value: Seconds, name: str) -> int:
    """Turn seconds or a timedelta into whole microseconds; 100 years or more is FOREVER.

    >>> micros(1.5, "ttl")
    1500000
    """
    if isinstance(value, timedelta):
        value = value / timedelta(seconds=1)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name} must be seconds (a number) or a timedelta, not {shown(value)}")
    if value != value:
        raise UsageError(f"{name} must be a number of seconds, not NaN")
    if value >= FOREVER / SECOND:
        return FOREVER
    if value <= -FOREVER / SECOND:
        return -FOREVER
    return round(value * SECOND)


def length(value: Seconds | None, name: str) -> int | None:
    """A duration that may be absent but not negative (ttl, ttr, repeat)."""
    if value is None:
        return None
    result = micros(value, name)
    if result < 0:
        raise UsageError(f"{name} must not be negative, got {shown(value)}")
    return result


def delay(value: Seconds | datetime | None, name: str = "delay") -> Delay | None:
    """A delay: seconds, timedelta or an aware datetime. What lies in the past means now."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return At(moment(value, name))
    return max(0, micros(value, name))


def timeout(value: Seconds | None, name: str = "timeout") -> int | None:
    """A waiting time: None waits for ever, zero and less do not wait."""
    if value is None:
        return None
    result = micros(value, name)
    return None if result >= FOREVER else max(0, result)


def moment(value: datetime, name: str) -> int:
    """An aware datetime as microseconds since 1970."""
    if value.utcoffset() is None:
        raise UsageError(f"{name} must be an aware datetime, got the naive {value!r}: add a tzinfo")
    return (value - EPOCH) // timedelta(microseconds=1)


def after(start: int | None, duration: int | None) -> int | None:
    """The moment `duration` after `start`; None when it never comes."""
    if start is None or duration is None or duration >= FOREVER:
        return None
    return start + duration


def resolve(value: Delay | None, now: int) -> int:
    """How long from now a delay still lasts."""
    if value is None:
        return 0
    return max(0, value.moment - now) if isinstance(value, At) else value


def date(value: int | None) -> datetime | None:
    """A moment as an aware datetime in UTC; moments past the year 9999 are None."""
    if value is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return None


def seconds(value: int | None) -> float | None:
    """A duration as float seconds; FOREVER is inf."""
    if value is None:
        return None
    return math.inf if value >= FOREVER else value / SECOND
