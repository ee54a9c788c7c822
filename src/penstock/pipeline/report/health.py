"""Whether things are well, in a few sentences. The limits are written down in docs/pipeline.md."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from penstock.pipeline.figures import Counts, Figures, Spread
from penstock.pipeline.report.formats import count, counted, duration, percent

FAILED_LOOK, FAILED_TROUBLE = 0.05, 0.20
"""Shares of runs that failed or were lost."""
BURIED_TROUBLE = 0.10
"""Share of all tasks that are buried now; a single one is worth a look."""
LOST_TROUBLE = 0.05
"""Share of runs that were lost; a single one is worth a look."""

GROWING = 0.1
"""Share of the tasks put in the last quarter of the time by which a backlog grows."""


class Level(IntEnum):
    """How well something is."""

    WELL = 0
    LOOK = 1
    TROUBLE = 2


class Check(NamedTuple):
    """One thing that was looked at, and what was seen."""

    level: Level
    subject: str
    text: str


def checks(figures: Figures) -> list[Check]:
    """All that was looked at, the worst first. Nothing for a lake without events."""
    if not figures.counts.events:
        return []
    found = [_backlog(figures), _runs(figures), _buried(figures), _lost(figures)]
    if figures.counts.expired:
        found.append(Check(Level.LOOK, "Too late", f"{counted(figures.counts.expired, 'task')} expired before a run."))
    return sorted(found, key=lambda check: -check.level)


def verdict(found: list[Check]) -> Level:
    """The worst of what was seen."""
    return max((check.level for check in found), default=Level.WELL)


def total(figures: Figures) -> int:
    """All tasks that the lake knows: those that ended and those that have not."""
    return sum(figures.outcomes.values()) + sum(figures.open.values())


def runs(counts: Counts, spread: Spread | None) -> tuple[int, int]:
    """How many runs failed or were lost, and how many have ended; given back and buried ones have ended too."""
    bad = counts.fails + counts.lost
    return bad, max(counts.acks + bad, spread.count if spread else 0)


def _backlog(figures: Figures) -> Check:
    ready = figures.open.get("ready", 0)
    if not ready:
        return Check(Level.WELL, "Backlog", "No task waits for a worker.")
    waiting = f"{counted(ready, 'task')} {'waits' if ready == 1 else 'wait'} for a worker"
    quiet = 0
    for point in reversed(figures.timeline):
        if point.counts.takes or not point.ready:
            break
        quiet += 1
    if quiet >= 3 and quiet >= len(figures.timeline) / 10:
        return Check(Level.TROUBLE, "Backlog", f"{waiting}, and none was taken in the last {_long(figures, quiet)}.")
    quarter = len(figures.timeline) // 4
    if quarter:
        before, ago = figures.timeline[-1 - quarter].ready, _long(figures, quarter)
        new = sum(point.counts.puts for point in figures.timeline[-quarter:])
        if ready - before > max(10, GROWING * new):
            return Check(Level.LOOK, "Backlog", f"{waiting}, {count(ready - before)} more than {ago} before: it grows.")
        if ready < before:
            return Check(Level.WELL, "Backlog", f"{waiting}, {count(before - ready)} fewer than {ago} before.")
    return Check(Level.WELL, "Backlog", f"{waiting}.")


def _long(figures: Figures, slots: int) -> str:
    return duration(slots * figures.slot)


def _runs(figures: Figures) -> Check:
    bad, ended = runs(figures.counts, figures.run)
    if not ended:
        return Check(Level.WELL, "Runs", "No run has ended yet.")
    if not bad:
        return Check(Level.WELL, "Runs", f"No run failed, of {count(ended)}.")
    share = bad / ended
    level = Level.TROUBLE if share >= FAILED_TROUBLE else Level.LOOK if share >= FAILED_LOOK else Level.WELL
    return Check(level, "Runs", f"{count(bad)} of {counted(ended, 'run')} failed ({percent(bad, ended)}).")


def _buried(figures: Figures) -> Check:
    buried = figures.open.get("buried", 0)
    if not buried:
        return Check(Level.WELL, "Buried", "No task is buried.")
    everything = total(figures)
    level = Level.TROUBLE if buried >= BURIED_TROUBLE * everything else Level.LOOK
    share = percent(buried, everything)
    text = (
        f"1 task is buried ({share}) and needs"
        if buried == 1
        else f"{count(buried)} tasks are buried ({share}) and need"
    )
    return Check(level, "Buried", f"{text} a person.")


def _lost(figures: Figures) -> Check:
    lost, takes = figures.counts.lost, figures.counts.takes
    if not lost:
        return Check(Level.WELL, "Leases", "No worker lost a task.")
    level = Level.TROUBLE if lost >= LOST_TROUBLE * max(takes, 1) else Level.LOOK
    return Check(level, "Leases", f"{counted(lost, 'run')} ended without an answer: a worker died or was too slow.")
