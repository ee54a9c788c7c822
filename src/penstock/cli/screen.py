"""How a frame of `penstock top` looks: tubes, then lanes and workers, below each other or side by side."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.frame import RATES, REMEMBERED, Frame, TubeLine
from penstock.cli.output import STYLES, shown
from penstock.engines.holdings import COUNTED
from penstock.model.lane import LaneInfo

WIDE = 120
"""Columns from which numbers are written out, lanes stand beside workers, and there are curves."""
STATES = ("ready", "taken", "delayed", "buried", "done")
SMALL = 64
"""Columns below which the limits of lanes are left out."""
BARS = " ▁▂▃▄▅▆▇█"
KEYS = "q quits   ↑ ↓ other tube's lanes"


def render(
    frame: Frame, width: int, height: int | None = None, trouble: str = "", keys: bool = False
) -> RenderableType:
    """A frame for a screen. Without a height everything is shown."""
    wide = width >= WIDE
    room = _room(frame, None if height is None else height - bool(trouble) - 2 * keys, wide)
    lanes, workers = _lanes(frame, room[1], width), _workers(frame, room[-1])
    parts: list[RenderableType] = [_headline(frame), _totals(frame, wide)]
    if trouble:
        parts.append(Text(trouble, style="bold red", overflow="ellipsis", no_wrap=True))
    parts += [Text(), _tubes(frame, room[0], width)]
    if wide:
        pair = Table.grid(padding=(0, 4), expand=True)
        pair.add_column(ratio=1)
        pair.add_column(ratio=1)
        pair.add_row(lanes, workers)
        parts += [Text(), pair]
    else:
        parts += [Text(), lanes, Text(), workers]
    if keys:
        parts += [Text(), Text(KEYS, style="dim")]
    return Group(*parts)


def _room(frame: Frame, height: int | None, wide: bool) -> list[int]:
    """How many lines tubes, lanes and workers have; lanes stand beside workers on a wide screen."""
    tubes, lanes, workers = max(1, len(frame.tubes)), max(1, len(frame.lanes)), len(frame.workers)
    needs = [tubes, max(lanes, workers)] if wide else [tubes, lanes, workers]
    if height is None:
        return needs
    # Taken are: headline, totals, a heading for each section with an empty line before it, and the count of sessions.
    free = height - 3 - 2 * len(needs)
    given = [0] * len(needs)
    while free > 0 and given != needs:
        for i, need in enumerate(needs):
            more = min(2 if i == 0 else 1, need - given[i], free)
            given[i] += more
            free -= more
    return given


def _headline(frame: Frame) -> Table:
    line = Table.grid(expand=True)
    line.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    line.add_column(justify="right", no_wrap=True)
    left = Text.assemble(("penstock top", "bold"), "  ", (frame.place, "cyan"))
    state = Text.assemble((f" {frame.state} ", "bold black on green" if frame.state == "RUNNING" else "bold on red"))
    line.add_row(left, Text.assemble(state, "  ", (f"{frame.at.astimezone():%H:%M:%S}", "dim")))
    return line


def _totals(frame: Frame, wide: bool) -> Table:
    """All tubes in one line."""
    words = [Text(_counted(len(frame.tubes), "tube"))]
    for state in STATES[:-1]:
        number = sum(tube.tasks[state] for tube in frame.tubes)
        words.append(Text(f"{_count(number, wide)} {state}", style=STYLES[state] if number else "dim"))
    known = [tube.rates for tube in frame.tubes if tube.rates is not None]
    rates = []
    for name, what, style in (("put", "in", "bold"), ("ack", "done", "bold"), ("fail", "failed", "bold red")):
        total = sum(rate[name] for rate in known)
        if total or (known and name != "fail"):
            rates.append(Text(f"{_rate(total)}/s {what}", style=style if total else "dim"))
    line = Table.grid(expand=True)
    line.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    line.add_column(justify="right", no_wrap=True)
    line.add_row(Text("  ").join(words), Text("  ").join(rates))
    return line


# -- tubes -------------------------------------------------------------------------------------------


def _tubes(frame: Frame, room: int, width: int) -> RenderableType:
    if not frame.tubes:
        return Text("no tubes yet: `penstock create NAME` makes one", style="dim")
    tubes = _busiest(frame.tubes, room)
    columns = _columns(tubes, width)
    left = width - sum(columns.values())
    known = max(len(tube.curve) for tube in frame.tubes) > 1
    curves = min(REMEMBERED, left - WIDE // 3) if width >= WIDE and known else 0
    table = _table()
    table.add_column("tube", width=left - 1 - (curves and curves + 3), no_wrap=True)
    for name, size in columns.items():
        table.add_column(name, justify="right", header_style=STYLES.get(name, "dim"), width=size - 1, no_wrap=True)
    if curves:
        table.add_column("  acks, lately", width=curves + 2, no_wrap=True)
    highest = max((max(tube.curve, default=0) for tube in frame.tubes), default=0)
    for tube in tubes:
        cells = [_tube_name(tube, tube.name == frame.chosen, left - 1 - (curves and curves + 3))]
        cells += [_tube_cell(tube, name, width >= WIDE) for name in columns]
        cells.append(Text("  " + curve(tube.curve, highest, curves), style="green"))
        table.add_row(*cells[: len(table.columns)])
    if len(tubes) == len(frame.tubes):
        return table
    return Group(table, _left_out([tube for tube in frame.tubes if tube not in tubes]))


def _columns(tubes: Sequence[TubeLine], width: int) -> dict[str, int]:
    """The numbers there is room for, with their widths: rather fewer of them than names that nobody can tell apart."""
    large, small = (12, 9) if width >= WIDE else (8, 7)
    columns = {**dict.fromkeys(STATES, large), **{f"{name}/s": small for name in RATES}}
    names = max(12, *(len(tube.name) + 3 + 7 * tube.config.paused for tube in tubes))
    for name in ("take/s", "delayed", "done", "fail/s"):
        if width - sum(columns.values()) < names:
            del columns[name]
    return columns


def _busiest(tubes: Sequence[TubeLine], room: int) -> list[TubeLine]:
    """Those with most going on, in the order of names so that no line jumps."""
    if len(tubes) <= room:
        return list(tubes)
    chosen = {tube.name for tube in sorted(tubes, key=lambda tube: tube.stir, reverse=True)[: room - 1]}
    return [tube for tube in tubes if tube.name in chosen]


def _left_out(tubes: Sequence[TubeLine]) -> Text:
    what = [f"{sum(tube.tasks[state] for tube in tubes):,} {state}" for state in STATES[:-1]]
    told = ", ".join(text for text in what if not text.startswith("0 "))
    return Text(f"and {_counted(len(tubes), 'quieter tube')}{f': {told}' if told else ''}", style="dim")


def _tube_name(tube: TubeLine, chosen: bool, room: int) -> Text:
    mark = Text("▸ " if chosen else "  ", style="cyan")
    paused = Text(" paused" if tube.config.paused else "", style="yellow")
    name = Text(_fit(tube.name, room - len(mark) - len(paused)), style="bold" if any(tube.stir) else "dim")
    return Text.assemble(mark, name, paused)


def _fit(text: str, room: int) -> str:
    """Both ends of a name that is too long: many begin alike.

    >>> _fit("tenant-017.reports", 11)
    'tenan…ports'
    """
    if len(text) <= room:
        return text
    end = max(1, room) // 2
    return f"{text[: max(1, room) - 1 - end]}…{text[len(text) - end :]}"


def _tube_cell(tube: TubeLine, column: str, wide: bool) -> Text:
    if column in tube.tasks:
        return _cell(_count(tube.tasks[column], wide), tube.tasks[column], STYLES[column])
    if tube.rates is None:
        return Text("-", style="dim")
    rate = tube.rates[column.removesuffix("/s")]
    return _cell(_rate(rate), rate, "red" if column == "fail/s" else "")


def curve(values: Sequence[float], highest: float, length: int) -> str:
    """Numbers as a line of bars, the newest at the right.

    >>> curve([0, 1, 4, 8], 8, 6)
    '   ▁▄█'
    """
    bars = [BARS[0 if value <= 0 else max(1, round(value / highest * 8))] for value in values[-length:]]
    return "".join(bars).rjust(length)


# -- lanes and workers -------------------------------------------------------------------------------


def _lanes(frame: Frame, room: int, width: int) -> RenderableType:
    if frame.chosen is None:
        return Text("no tube here has lanes", style="dim")
    table = _table()
    table.add_column(f"lane of {frame.chosen}", ratio=1, min_width=14, overflow="ellipsis", no_wrap=True)
    for name in ("ready", "taken"):
        table.add_column(name, justify="right", header_style=STYLES[name], min_width=6)
    if width >= SMALL:
        for name in ("limit", "rate/s"):
            table.add_column(name, justify="right", min_width=6)
    table.add_column("", min_width=7)
    for lane in frame.lanes[:room]:
        cells = _lane_cells(lane, frame.at)
        table.add_row(*cells[: len(table.columns) - 1], cells[-1])
    return table if frame.lanes else Group(table, Text("  none holds a task", style="dim"))


def _lane_cells(lane: LaneInfo, now: datetime) -> list[Text]:
    limits = lane.limits
    return [
        Text(shown(lane.name) if lane.name else '""'),
        _cell(f"{COUNTED}+" if lane.ready >= COUNTED else f"{lane.ready:,}", lane.ready, STYLES["ready"]),
        _cell(f"{lane.taken:,}", lane.taken, STYLES["taken"]),
        _cell("-" if limits.concurrency is None else str(limits.concurrency), limits.concurrency, ""),
        _cell("-" if limits.rate is None else f"{limits.rate:g}", limits.rate, ""),
        _lane_state(lane, now),
    ]


def _lane_state(lane: LaneInfo, now: datetime) -> Text:
    """Why nothing is taken from it now, if something could."""
    limits = lane.limits
    if limits.paused:
        return Text("paused", style="yellow")
    if limits.concurrency is not None and lane.taken >= limits.concurrency and lane.ready:
        return Text("full", style="cyan")
    if lane.next_at is not None and lane.ready:
        return Text(f"in {_age(max(0.0, (lane.next_at.astimezone(UTC) - now).total_seconds()))}", style="dim")
    return Text()


def _workers(frame: Frame, room: int) -> RenderableType:
    table = _table()
    table.add_column("worker", ratio=2, overflow="ellipsis", no_wrap=True)
    table.add_column("taken", justify="right", header_style=STYLES["taken"], min_width=6)
    table.add_column("oldest", justify="right", min_width=7)
    table.add_column("of", ratio=3, overflow="ellipsis", no_wrap=True)
    for worker in frame.workers[:room]:
        tubes = ", ".join(f"{name} {number:,}" for name, number in worker.tubes.items())
        table.add_row(Text(shown(worker.name)), Text(f"{worker.taken:,}", "cyan"), Text(_age(worker.age)), Text(tubes))
    rest = frame.workers[room:]
    told = f"and {len(rest)} more with {sum(worker.taken for worker in rest):,} taken; " if rest else ""
    if not frame.workers:
        told = "nobody holds a task; "
    return Group(table, Text(f"  {told}{_counted(frame.sessions, 'session')} open", style="dim"))


# -- cells -------------------------------------------------------------------------------------------


def _table() -> Table:
    return Table(box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", collapse_padding=True)


def _cell(text: str, value: float | None, style: str) -> Text:
    return Text(text, style=style if value else "dim")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _count(number: int, wide: bool) -> str:
    """A number that fits: written out on a wide screen or while it is short."""
    if wide or number < 100_000:
        return f"{number:,}"
    return _short(number)


def _short(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            value = number / size
            return f"{value:.2f}{unit}" if value < 10 else f"{value:.1f}{unit}" if value < 100 else f"{value:.0f}{unit}"
    return f"{number:.0f}"


def _rate(number: float) -> str:
    if number == 0:
        return "0"
    if number < 9.95:
        return f"{number:.1f}"
    return f"{number:,.0f}" if number < 10_000 else _short(number)


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
