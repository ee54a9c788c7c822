"""What happened over time: throughput, backlog, waiting and running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.pipeline.figures import Figures, Spread
from penstock.pipeline.report import axes, charts, formats, markup
from penstock.pipeline.report.charts import Series, Slots

LEAST = 3
"""Slots that make a chart. Fewer are a table."""
SMOOTH = 40
"""Slots, and tasks, that make slopes. Between fewer they would be invented."""
FEW = 20
"""Times that make percentiles worth a chart."""
FAR = 4
"""How much higher than runs puts may be, before runs could not be seen beside them."""
STATES = {"taken": "running", "ready": "waiting for a worker", "delayed": "delayed", "buried": "buried"}
"""In the order in which they are stacked, from the bottom."""


@dataclass(frozen=True)
class Graph:
    """One chart with all that is around it."""

    name: str
    title: str
    said: str
    """What is to be seen, in a sentence or two."""
    unit: str
    """What the axis counts."""
    looks: Sequence[tuple[str, str, str]]
    shapes: Sequence[str]
    y: axes.Axis
    heads: Sequence[str]
    columns: Sequence[Sequence[str]]
    drawn: bool = True
    """Whether there is enough to draw."""

    def markup(self, figures: Figures) -> str:
        """As it stands on the page."""
        days = figures.end - figures.begin > 86_400
        starts = [
            f"{formats.date(point.at):%Y-%m-%d %H:%M}" if days else formats.clock(point.at, figures.slot)
            for point in figures.timeline
        ]
        rows = zip(starts, *self.columns, strict=True)
        numbers = markup.table(f"{self.title}: {self.unit}", ("from (UTC)", *self.heads), rows)
        folded = markup.folded("The numbers", numbers)
        if len(figures.timeline) < LEAST or not self.drawn:
            return markup.figure(self.name, self.title, self.said, folded)
        x = axes.times(*_extent(figures))
        title = f"{self.title}: {self.unit}. {self.said} The table below has the numbers."
        drawing = charts.chart(title, self.shapes, _slots(figures), x, self.y)
        unit = f'<p class="unit">{self.unit}, UTC</p>'
        return markup.figure(
            self.name,
            self.title,
            self.said,
            markup.legend(self.looks),
            unit,
            drawing,
            folded,
        )


def throughput(figures: Figures) -> str:
    """How many tasks were put, and how many runs ended well or not."""
    points = figures.timeline
    done = Series("done", [point.counts.acks for point in points])
    failed = Series("failed", [point.counts.fails + point.counts.lost for point in points])
    put = Series("put", [point.counts.puts for point in points])
    ended = [point.counts.acks + point.counts.fails + point.counts.lost for point in points]
    most, peak = max(ended, default=0), max((point.counts.puts for point in points), default=0)
    beyond = 0 < FAR * most < peak
    y = axes.numbers(1.2 * most if beyond else max(most, peak))
    slots, each = _slots(figures), formats.duration(figures.slot)
    return Graph(
        "throughput",
        "Throughput",
        _busiest(figures) + (f" Puts go beyond the chart, to {formats.count(peak)} in {each}." if beyond else ""),
        f"In each {each}",
        (
            ("fill", "done", "runs that ended well"),
            *([("fill", "failed", "on top: failed or lost")] if any(failed.values) else []),
            ("line", "put", "tasks put"),
        ),
        [*charts.bars([done, failed], slots, y), *charts.stairs(put, slots, y)],
        y,
        ("ended well", "failed or lost", "put"),
        [[formats.count(value or 0) for value in series.values] for series in (done, failed, put)],
    ).markup(figures)


def _busiest(figures: Figures) -> str:
    """The average and the peak."""
    acks, wide = figures.counts.acks, figures.end - figures.begin
    if not acks:
        return "No run has ended well yet."
    best = max(figures.timeline, key=lambda point: point.counts.acks, default=None)
    if best is None or wide <= 0 or len(figures.timeline) < LEAST:
        return f"{formats.counted(acks, 'run')} ended well."
    peak = formats.rate(best.counts.acks, figures.slot)
    return (
        f"On average {formats.rate(acks, wide)}; at best {peak}, in the {formats.duration(figures.slot)} "
        f"from {formats.moment(best.at)}."
    )


def backlog(figures: Figures) -> str:
    """How many tasks of each state there were."""
    points = figures.timeline
    stack = [Series(state, [getattr(point, state) for point in points]) for state in STATES]
    heights = [sum(values) for values in zip(*(_known(series) for series in stack), strict=True)]
    y = axes.numbers(max(heights, default=0))
    looks = [
        ("fill", state, words) for state, words in STATES.items() if figures.open.get(state) or _seen(stack, state)
    ]
    return Graph(
        "backlog",
        "Backlog",
        _fullest(figures, heights),
        "Tasks that have not ended, by state",
        looks,
        charts.areas(stack, _slots(figures), y, steps=len(heights) <= SMOOTH or max(heights) <= SMOOTH),
        y,
        list(STATES.values()),
        [[formats.count(value) for value in _known(series)] for series in stack],
    ).markup(figures)


def _seen(stack: Sequence[Series], state: str) -> bool:
    return any(any(series.values) for series in stack if series.look == state)


def _known(series: Series) -> list[float]:
    return [value or 0.0 for value in series.values]


def _fullest(figures: Figures, heights: Sequence[float]) -> str:
    now = sum(figures.open.values())
    if not any(heights) and not now:
        return "Nothing was left waiting."
    left = [
        f"{formats.count(figures.open[state])} {words}" for state, words in STATES.items() if figures.open.get(state)
    ]
    end = f"At the end {formats.counted(now, 'task')}: {', '.join(left)}." if now else "At the end nothing is left."
    if len(heights) < LEAST:
        return end
    top = max(heights)
    at = figures.timeline[list(heights).index(top)].at + figures.slot
    return f"At most {formats.counted(round(top), 'task')}, at {formats.moment(min(at, figures.end))}. {end}"


def lengths(figures: Figures, what: Literal["wait", "run"]) -> str:
    """How long tasks waited for a worker, or how long their runs took."""
    spreads: list[Spread | None] = [getattr(point, what) for point in figures.timeline]
    middle, most, nearly = (
        Series(f"{what} {name}", [None if spread is None else getattr(spread, name) for spread in spreads])
        for name in ("p50", "p90", "p99")
    )
    seen = [value for series in (middle, most, nearly) for value in series.values if value is not None]
    y = axes.lengths(seen)
    slots = _slots(figures)
    scale = ", each line several times the one below" if y.logarithmic else ""
    return Graph(
        what,
        "Waiting" if what == "wait" else "Running",
        _typical(getattr(figures, what), what),
        f"{'From ready to taken' if what == 'wait' else 'From taken to the end of the run'}{scale}",
        (
            ("line", f"{what} p50", "half took less"),
            ("band", f"{what} p90", "from there to 90 of 100"),
            ("line", f"{what} p99", "99 of 100 took less"),
        ),
        [*charts.band(middle, most, slots, y), *charts.line(nearly, slots, y), *charts.line(middle, slots, y)],
        y,
        ("half took less", "90 of 100", "99 of 100", "longest"),
        [
            [formats.duration(None if spread is None else getattr(spread, name)) for spread in spreads]
            for name in ("p50", "p90", "p99", "max")
        ],
        drawn=sum(spread.count for spread in spreads if spread) >= FEW,
    ).markup(figures)


def _typical(spread: Spread | None, what: str) -> str:
    if spread is None or not spread.count:
        return "No task was taken yet." if what == "wait" else "No run has ended yet."
    if spread.count == 1:
        return f"The only one took {formats.duration(spread.max)}."
    half, most, nearly, mean, longest = map(
        formats.duration, (spread.p50, spread.p90, spread.p99, spread.mean, spread.max)
    )
    return (
        f"Of {formats.count(spread.count)} times half took less than {half}, 90 of 100 less than {most}, "
        f"99 of 100 less than {nearly}; the average is {mean}, the longest {longest}."
    )


def _slots(figures: Figures) -> Slots:
    number = max(1, len(figures.timeline))
    return Slots([(place + 0.5) / number for place in range(len(figures.timeline))], 1 / number)


def _extent(figures: Figures) -> tuple[float, float]:
    return figures.timeline[0].at, figures.timeline[-1].at + figures.slot
