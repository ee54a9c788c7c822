"""Charts over time, drawn as SVG by hand.

The drawing is stretched to the width there is, and what is written stands beside it as text of the page: so a chart is
as readable on a phone as on a wide screen. Lines keep their width when a drawing is stretched.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from penstock.pipeline.report.axes import Axis

WIDTH, HEIGHT = 1000, 200
"""Of the view box. What is drawn stays inside."""

GAPS = 60
"""Bars that have room between them. More of them stand side by side."""

Values = Sequence[float | None]


class Series(NamedTuple):
    """Values over time. The look is a class of the style sheet."""

    look: str
    values: Values


class Slots(NamedTuple):
    """Where the values of a chart are on the axis of time: the middle of each, and how wide each is, of 1."""

    middles: Sequence[float]
    width: float


def chart(title: str, shapes: Sequence[str], slots: Slots, x: Axis, y: Axis) -> str:
    """A drawing with its axes. The title is for those who do not see it."""
    rules = "".join(f"M0 {_y(tick.place)}h{WIDTH}" for tick in y.ticks)
    marks = "".join(f"M{_x(tick.place)} 0v{HEIGHT}" for tick in x.ticks)
    left = "".join(f'<span style="bottom:{100 * tick.place:.1f}%">{escape(tick.label)}</span>' for tick in y.ticks)
    under = "".join(
        f'<span style="left:{100 * tick.place:.1f}%"{_edge(tick.place)}>{escape(tick.label)}</span>' for tick in x.ticks
    )
    wide = " wide" if sum(len(tick.label) for tick in x.ticks) > 40 else ""
    return (
        f'<div class="plot" data-slots="{len(slots.middles)}"><div class="y" aria-hidden="true">{left}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img"><title>{escape(title)}</title>'
        f'<path class="grid" d="{rules}"/><path class="grid faint" d="{marks}"/>{"".join(shapes)}</svg>'
        f'<div class="x{wide}" aria-hidden="true">{under}</div></div>'
    )


def _edge(place: float) -> str:
    """Labels near an end lean inwards."""
    return ' class="first"' if place < 0.04 else ' class="last"' if place > 0.96 else ""


def bars(stack: Sequence[Series], slots: Slots, y: Axis) -> list[str]:
    """Stacked bars, the first series at the bottom."""
    shapes = []
    floor = [0.0] * len(slots.middles)
    gap = 0.12 if len(slots.middles) <= GAPS else 0.0
    wide = slots.width * (1 - gap)
    for series in stack:
        path = []
        for place, (middle, value) in enumerate(zip(slots.middles, series.values, strict=True)):
            if not value:
                continue
            bottom = y.place(floor[place])
            floor[place] += value
            top = y.place(floor[place])
            left, right = max(0.0, middle - wide / 2), min(1.0, middle + wide / 2)
            path.append(f"M{_x(left)} {_y(bottom)}V{_y(top)}H{_x(right)}V{_y(bottom)}z")
        if path:
            shapes.append(f'<path class="fill {series.look}" d="{"".join(path)}"/>')
    return shapes


def areas(stack: Sequence[Series], slots: Slots, y: Axis, steps: bool = False) -> list[str]:
    """Stacked areas, the first series at the bottom: with slopes from value to value, or with steps."""
    outline = _stairs if steps else _edge_to_edge
    shapes = []
    floor = [0.0] * len(slots.middles)
    for series in stack:
        top = [low + (value or 0.0) for low, value in zip(floor, series.values, strict=True)]
        if any(series.values):
            upper, lower = outline(slots, top, y), outline(slots, floor, y)
            shapes.append(f'<path class="fill edged {series.look}" d="M{_points(upper + lower[::-1])}z"/>')
        floor = top
    return shapes


def _edge_to_edge(slots: Slots, values: Sequence[float], y: Axis) -> list[tuple[float, float]]:
    """Points of values, with half a slot more at each end."""
    places = [y.place(value) for value in values]
    return [(0.0, places[0]), *zip(slots.middles, places, strict=True), (1.0, places[-1])]


def _stairs(slots: Slots, values: Sequence[float], y: Axis) -> list[tuple[float, float]]:
    """A level for each slot."""
    half = slots.width / 2
    levels = zip(slots.middles, values, strict=True)
    return [(min(1.0, middle + side), y.place(value)) for middle, value in levels for side in (-half, half)]


def stairs(series: Series, slots: Slots, y: Axis) -> list[str]:
    """A line that goes level over each slot, for counts."""
    points = _stairs(slots, [value or 0.0 for value in series.values], y)
    return [f'<path class="line {series.look}" d="M{_points(points)}"/>'] if points else []


def line(series: Series, slots: Slots, y: Axis) -> list[str]:
    """A line, broken where there is no value. A value alone is a dot."""
    path = []
    for run in _runs(series.values):
        points = [(slots.middles[place], y.place(series.values[place] or 0.0)) for place in run]
        path.append(f"M{_points(points)}" + ("h0" if len(points) == 1 else ""))
    return [f'<path class="line {series.look}" d="{"".join(path)}"/>'] if path else []


def band(low: Series, high: Series, slots: Slots, y: Axis) -> list[str]:
    """What is between two lines."""
    path = []
    both = [None if one is None or two is None else one for one, two in zip(low.values, high.values, strict=True)]
    for run in _runs(both):
        upper = [(slots.middles[place], y.place(high.values[place] or 0.0)) for place in run]
        lower = [(slots.middles[place], y.place(low.values[place] or 0.0)) for place in run]
        if len(run) > 1:
            path.append(f"M{_points(upper + lower[::-1])}z")
    return [f'<path class="band {high.look}" d="{"".join(path)}"/>'] if path else []


def meter(share: float, number: str = "", look: str = "") -> str:
    """A bar, for a share from 0 to 1, and the number beside it. To those who hear the page the number is enough."""
    wide = 100 * min(1.0, max(0.0, share))
    bar = f'<span class="meter {look}" aria-hidden="true"><i style="width:{wide:.1f}%"></i></span>'
    return f'{bar}<span class="value">{number}</span>' if number else bar


def _runs(values: Values) -> list[list[int]]:
    """Places of values that stand side by side."""
    runs: list[list[int]] = []
    for place, value in enumerate(values):
        if value is None:
            continue
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _points(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{_x(x)} {_y(y)}" for x, y in points)


def _x(place: float) -> str:
    return f"{WIDTH * place:.1f}".removesuffix(".0")


def _y(place: float) -> str:
    return f"{HEIGHT * (1 - place):.1f}".removesuffix(".0")
