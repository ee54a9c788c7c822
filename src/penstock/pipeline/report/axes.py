"""Ticks where a person would put them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from penstock.pipeline.report import formats

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(size * _MINUTE for size in (1, 2, 5, 10, 15, 30)),
    *(size * _HOUR for size in (1, 2, 3, 6, 12)),
    *(size * _DAY for size in (1, 2, 7, 14, 28, 91, 182, 364)),
)
_PARTS = tuple(unit * size for unit in (0.001, 0.01, 0.1, 1) for size in (1, 2, 5))
_LENGTHS = (
    *(unit * size for unit in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1) for size in (1, 2, 5)),
    *map(float, _STEPS),
)
_DECADES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 60, 600, 3_600, 36_000, 86_400, 864_000, 8_640_000, 86_400_000)


class Tick(NamedTuple):
    """A place on an axis, from 0 to 1, and what is written there."""

    place: float
    label: str


@dataclass(frozen=True)
class Axis:
    """A scale and its ticks."""

    low: float
    high: float
    ticks: tuple[Tick, ...]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Where a value is, from 0 to 1. What is outside is at the edge."""
        if self.logarithmic:
            low, high, value = math.log(self.low), math.log(self.high), math.log(max(value, self.low))
        else:
            low, high = self.low, self.high
        return min(1.0, max(0.0, (value - low) / (high - low)))


def numbers(top: float, most: int = 5, whole: bool = True) -> Axis:
    """From 0 to a round number at or above a value."""
    step = _round_step(max(top, 1e-9) / most)
    if whole:
        step = max(1.0, step)
    count = max(1, math.ceil(top / step - 1e-9))
    ticks = tuple(Tick(at / count, formats.short(round(at * step, 9))) for at in range(count + 1))
    return Axis(0, count * step, ticks)


def _round_step(least: float) -> float:
    """The first of 1, 2, 5, 10, 20 .. that is no less."""
    size = 10.0 ** math.floor(math.log10(least))
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least * (1 - 1e-9))


def lengths(values: list[float], most: int = 5) -> Axis:
    """For lengths of time in seconds: from 0 while they are alike, by powers where they are not."""
    top = max(values, default=0.0) or 1e-3
    least = min((value for value in values if value > 0), default=top)
    if top / least > 100:
        return _powers(least, top)
    step = next((size for size in _LENGTHS if top / size <= most), _round_step(top / most / _DAY) * _DAY)
    count = max(1, math.ceil(top / step - 1e-9))
    return Axis(0, count * step, tuple(Tick(at / count, formats.duration(at * step)) for at in range(count + 1)))


def _powers(least: float, top: float) -> Axis:
    least = max(least, _DECADES[0])
    top = min(top, _DECADES[-1])
    first = max(place for place, size in enumerate(_DECADES) if size <= least)
    last = min(place for place, size in enumerate(_DECADES) if size >= top)
    low, high = _DECADES[first], _DECADES[last]
    shown = _DECADES[first : last + 1]
    bare = Axis(low, high, (), logarithmic=True)
    step = math.ceil(len(shown) / 7)
    ticks = (Tick(bare.place(size), formats.duration(size)) for size in shown[::step])
    return Axis(low, high, tuple(ticks), logarithmic=True)


def times(first: float, last: float, most: int = 7) -> Axis:
    """Moments in UTC, at full seconds, minutes, hours or days."""
    wide = max(last - first, 0.001)
    step = next((size for size in _STEPS if wide / size <= most), _round_step(wide / _DAY / most) * _DAY)
    if wide < most:  # such labels are long
        step = next(size for size in (*_PARTS, 2.0) if wide / size <= 4)
    bare = Axis(first, first + wide, ())
    numbers = range(math.ceil(round(first / step, 6)), math.floor(round((first + wide) / step, 6)) + 1)
    return Axis(first, first + wide, tuple(Tick(bare.place(n * step), named(n * step, step)) for n in numbers))


def named(at: float, step: float) -> str:
    """A moment among its neighbours: midnight is known by its day, a day far from the next by its month."""
    date = formats.date(at)
    if step >= 90 * _DAY:
        return f"{date:%b %Y}"
    if not at % _DAY and step >= _MINUTE:
        return f"{date.day} {date:%b}"
    return f"{date:%H:%M}" if step >= _MINUTE else formats.clock(at, step)
