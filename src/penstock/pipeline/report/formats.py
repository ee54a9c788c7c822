"""Numbers, lengths of time and moments as a person reads them: with a unit, in UTC, short."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

NONE = "-"
"""Stands where there is no value."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BIG = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_PARTS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_FINE = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def count(number: float) -> str:
    """A number of things.

    >>> count(1204), count(0)
    ('1,204', '0')
    """
    return f"{number:,.0f}"


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things with their name.

    >>> counted(1, "task"), counted(1204, "task"), counted(2, "try", "tries")
    ('1 task', '1,204 tasks', '2 tries')
    """
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def short(number: float) -> str:
    """A number in few characters, for axes.

    >>> short(0), short(0.25), short(950), short(12500), short(3e6)
    ('0', '0.25', '950', '12.5k', '3M')
    """
    for size, letter in _BIG:
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def percent(part: float, whole: float) -> str:
    """A share. Only all is 100 %, and only none is 0 %.

    >>> percent(2, 3), percent(3, 200), percent(9999, 10000), percent(1, 10**6), percent(0, 5), percent(0, 0)
    ('67\u202f%', '1.5\u202f%', '>99.9\u202f%', '<0.1\u202f%', '0\u202f%', '-')
    """
    if not whole:
        return NONE
    share = 100 * part / whole
    if part and share < 0.1:
        text = "<0.1"
    elif part != whole and 99.9 < share < 100:
        text = ">99.9"
    else:
        digits = 0 if share in (0, 100) or 10 <= share < 99 else 1
        text = f"{share:.{digits}f}"
        text = text.removesuffix(".0")
    return f"{text}\u202f%"


def duration(seconds: float | None) -> str:
    """A length of time, in one unit or two.

    >>> duration(0.0004), duration(1.26), duration(203), duration(7260), duration(273_600), duration(None)
    ('0.4\u202fms', '1.3\u202fs', '3\u202fmin 23\u202fs', '2\u202fh 1\u202fmin', '3\u202fd 4\u202fh', '-')
    """
    if seconds is None or math.isnan(seconds):
        return NONE
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds == 0:
        return "0\u202fs"
    if seconds < 59.95:
        return _fine(seconds)
    whole = round(seconds)
    for place, (size, unit) in enumerate(_PARTS[:-1]):
        if whole >= size:
            lesser, name = _PARTS[place + 1]
            first, rest = divmod(round(whole / lesser) * lesser, size)
            more = f" {rest // lesser}\u202f{name}" if rest >= lesser and first < 100 else ""
            return f"{first}\u202f{unit}{more}"
    return _fine(seconds)


def _fine(seconds: float) -> str:
    """A length below a minute, with two digits that count."""
    for size, unit in _FINE:
        # Half a millisecond is better known as 0.5 ms than as 500 µs.
        if seconds >= size * (0.1 if unit == "ms" else 0.9995):
            value = seconds / size
            return f"{value:.0f}\u202f{unit}" if value >= 9.95 else f"{value:.1f}".removesuffix(".0") + f"\u202f{unit}"
    return "<0.1\u202fms"


def long_duration(seconds: float) -> str:
    """A length of time in words, for sentences.

    >>> long_duration(0.2), long_duration(42.4), long_duration(180), long_duration(5_400), long_duration(259_200)
    ('less than a second', '42 seconds', '3 minutes', '1.5 hours', '3 days')
    """
    if seconds < 1:
        return "less than a second"
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        value = seconds / size
        if value >= (1 if name == "second" else 0.995):
            text = f"{value:.0f}" if value >= 10 or name == "second" else f"{value:.1f}".removesuffix(".0")
            return f"{text} {name}{'' if text == '1' else 's'}"
    return "less than a second"


def rate(number: float, seconds: float) -> str:
    """How many in a time, in the unit that gives a number a person can picture.

    >>> rate(1204, 180), rate(30, 600), rate(5, 86_400), rate(0, 60), rate(9, 0)
    ('6.7/s', '3/min', '5/day', '0/s', '-')
    """
    if seconds <= 0:
        return NONE
    value, unit = number / seconds, "s"
    for size, name in ((60, "min"), (3_600, "h"), (86_400, "day")):
        if number and value < 0.995:
            value, unit = number / seconds * size, name
    text = count(value) if value >= 99.5 else f"{value:.2g}"
    return f"{text}/{unit}"


def date(at: float) -> datetime:
    """A moment, in seconds since 1970, as a date in UTC."""
    return _EPOCH + timedelta(seconds=at)


def moment(at: float) -> str:
    """A moment to the second, with its zone.

    >>> moment(1_767_225_600)
    '2026-01-01 00:00:00 UTC'
    """
    return f"{date(at):%Y-%m-%d %H:%M:%S} UTC"


def clock(at: float, step: float = 1.0) -> str:
    """A time of day, as fine as steps are.

    >>> clock(1_767_225_601.25), clock(1_767_225_601.25, 0.5), clock(1_767_225_601.25, 0.02)
    ('00:00:01', '00:00:01.2', '00:00:01.25')
    """
    digits = 0 if step >= 1 else 1 if step >= 0.1 else 2 if step >= 0.01 else 3
    return f"{date(at):%H:%M:%S.%f}"[: 8 + digits + (digits > 0)]


def span(first: float, last: float) -> str:
    """From a moment to another. What both share is said once.

    >>> span(1_767_225_600, 1_767_225_783)
    '2026-01-01, 00:00:00 to 00:03:03 UTC'
    """
    if last - first < 1:
        return moment(first)
    start, end = date(first), date(last)
    if start.date() == end.date():
        return f"{start:%Y-%m-%d}, {start:%H:%M:%S} to {end:%H:%M:%S} UTC"
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"


def cut(text: str, length: int) -> str:
    """A text on one line, without what cannot be shown, and no longer than a length.

    >>> cut("one\\n two", 20), cut("a long lane", 7)
    ('one two', 'a long…')
    """
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text[: 4 * length].split()))
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
