"""What was counted by lane: the slowest, the most retried, and how evenly they were served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from penstock.pipeline.figures import Counts, Figures, LaneFigures, Spread, TubeFigures
from penstock.pipeline.report import axes, charts, health, markup
from penstock.pipeline.report.axes import Tick
from penstock.pipeline.report.charts import Series, Slots
from penstock.pipeline.report.formats import count, counted, duration, percent

TOP = 8
"""Rows of a list of the worst."""
ALL = 200
"""Rows of the list of all."""
TUBES = 4
"""Tubes whose lanes are drawn."""
DRAWN = 3
"""Lanes that make a chart. Fewer are a table."""


def lanes(figures: Figures) -> str:
    """The section about lanes; nothing where there is but one."""
    if len(figures.lanes) < 2:
        return ""
    many = len(figures.tubes) > 1
    timed = [lane for lane in figures.lanes if lane.run is not None and lane.run.count]
    tried = [lane for lane in figures.lanes if lane.counts.retries]
    total = max(figures.lane_total, len(figures.lanes))
    return markup.section(
        "lanes",
        "Lanes",
        f"<p>{counted(total, 'lane')}. A lane is a line of its own inside a tube: a site, a customer, a host.</p>",
        '<div class="pair">',
        _worst("Slowest lanes", "90 of 100 runs took less than this", "time", timed, _slowness, duration, many),
        _worst("Most retried lanes", "runs that were not a task's first", "retries", tried, _retries, count, many)
        if tried
        else "<div><h3>Most retried lanes</h3><p>No task was taken more than once.</p></div>",
        "</div>",
        *_evenness(figures),
    )


def _slowness(lane: LaneFigures) -> float:
    return lane.run.p90 if lane.run else 0.0


def _retries(lane: LaneFigures) -> float:
    return lane.counts.retries


def _worst(
    title: str,
    measure: str,
    head: str,
    found: Sequence[LaneFigures],
    size: Callable[[LaneFigures], float],
    form: Callable[[float], str],
    many: bool,
) -> str:
    """The lanes with the most of something."""
    worst = sorted(found, key=lambda lane: (-size(lane), lane.tube, lane.lane or ""))[:TOP]
    most = max(map(size, worst), default=0.0) or 1.0
    rows = [
        (name(lane, many), charts.meter(size(lane) / most, form(size(lane))), failed(lane.counts, lane.run))
        for lane in worst
    ]
    return f"<div><h3>{title}</h3>{markup.table(measure, ('lane', head, 'failed'), rows)}</div>"


def name(lane: LaneFigures, many: bool) -> str:
    """What a lane is called; with its tube where there are several."""
    tube = f'<span class="tube">{markup.written(lane.tube, 30)}: </span>' if many else ""
    return tube + markup.written(lane.lane)


def failed(counts: Counts, spread: Spread | None) -> str:
    """The share of runs that failed or were lost."""
    return percent(*health.runs(counts, spread))


def _evenness(figures: Figures) -> list[str]:
    """For the tubes with the most lanes: how their lanes shared what was done."""
    shared = sorted(
        (tube for tube in figures.tubes if tube.fairness is not None), key=lambda tube: (-tube.lanes, tube.tube)
    )
    parts = []
    for place, tube in enumerate(shared[:TUBES], 1):
        own = [lane for lane in figures.lanes if lane.tube == tube.tube]
        title = "Fairness" + (f" in {markup.written(tube.tube, 30)}" if len(figures.tubes) > 1 else "")
        if len(own) > 1:
            parts.append(_shares(f"fairness-{place}", title, tube, own))
    more = len(shared) - TUBES
    if more > 0:
        parts.append(f"<p>The fairness of {counted(more, 'other tube')} is in the table of tubes.</p>")
    return parts


def _shares(place: str, title: str, tube: TubeFigures, own: Sequence[LaneFigures]) -> str:
    own = sorted(own, key=lambda lane: (-lane.counts.acks, lane.lane or ""))
    rows = [_row(lane) for lane in own[:ALL]]
    rest = tube.lanes - len(rows)
    left = f"<p>And {counted(rest, 'other lane')}, with fewer runs.</p>" if rest > 0 else ""
    heads = ("lane", "ended well", "share", "failed", "retries", "waited: half", "90 of 100", "ran: half", "90 of 100")
    numbers = markup.table("Lanes, the busiest first", heads, rows) + left
    said = _said(tube, own)
    if len(own) < DRAWN:
        return markup.figure(place, title, said, numbers)
    y = axes.numbers(own[0].counts.acks)
    x = axes.Axis(0, 1, (Tick(0, "busiest lane"), Tick(1, "quietest lane")))
    slots = Slots([(at + 0.5) / len(own) for at in range(len(own))], 1 / len(own))
    even = sum(lane.counts.acks for lane in own) / len(own)
    drawing = charts.chart(
        "Runs that ended well in each lane, the busiest first. The table below has the numbers.",
        [
            *charts.bars([Series("done", [lane.counts.acks for lane in own])], slots, y),
            *charts.stairs(Series("even", [even] * len(own)), slots, y),
        ],
        slots,
        x,
        y,
    )
    looks = [
        ("fill", "done", "runs that ended well, a bar for each lane"),
        ("line", "even", f"an even share: {count(even) if even >= 10 else format(even, '.2g')}"),
    ]
    return markup.figure(place, title, said, markup.legend(looks), drawing, markup.folded("All lanes", numbers))


def _said(tube: TubeFigures, own: Sequence[LaneFigures]) -> str:
    """Fairness in one sentence, and whether anybody paid for it in another."""
    fairness = tube.fairness or 0.0
    text = (
        f"<strong>{fairness:.2f}</strong> (Jain's index): 1 would be as many runs for each lane, {1 / tube.lanes:.2g} "
        f"all for one of the {tube.lanes:,}. A low number is unfair only if the others had to wait."
    )
    waits = [(lane.wait.p50, lane) for lane in own if lane.wait is not None and lane.wait.count]
    if len(waits) < 2:
        return text
    longest = max(waits, key=lambda pair: (pair[0], pair[1].lane or ""))
    middle = median(wait for wait, _ in waits)
    return (
        f"{text} In the typical lane a task waited {duration(middle)}; longest in {markup.written(longest[1].lane)}, "
        f"{duration(longest[0])}."
    )


def _row(lane: LaneFigures) -> tuple[str, ...]:
    counts = lane.counts
    return (
        markup.written(lane.lane),
        count(counts.acks),
        charts.meter(lane.share, percent(lane.share, 1)),
        failed(counts, lane.run),
        count(counts.retries),
        *spread(lane.wait),
        *spread(lane.run),
    )


def spread(found: Spread | None) -> tuple[str, str]:
    """How long something took: half of the times, and 90 of 100."""
    return duration(found.p50 if found else None), duration(found.p90 if found else None)
