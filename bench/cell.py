"""A cell of the table: who is measured, in which figures, against which target."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal

from bench.scale import Scale

Figures = dict[str, float]
BUSY = "busy"
Compare = Literal["peers", "sizes", "alone"]
Verdict = Literal["ok", "short"]


@dataclass(frozen=True)
class Subject:
    """One thing to measure: every call of `run` is one round. `missing` says why it cannot be."""

    name: str
    run: Callable[[], Figures] | None = None
    missing: str = ""


@dataclass(frozen=True)
class Bound:
    """A target: the figure itself, or the ratio to the peers whose name begins with `of`."""

    figure: str
    least: float | None = None
    most: float | None = None
    of: str | None = None

    def __str__(self) -> str:
        sign, limit = ("≥", self.least) if self.least is not None else ("≤", self.most)
        return f"{sign} {limit:,g}{'x' if self.of is not None else ''}"

    def judge(self, value: float) -> Verdict:
        short = (self.least is not None and value < self.least) or (self.most is not None and value > self.most)
        return "short" if short else "ok"


Opener = Callable[[ExitStack, Path, Scale], list[Subject]]


@dataclass(frozen=True)
class Cell:
    """`open` makes the subjects, ours or the smallest size first; what it opens it gives to the stack.

    awake: the cores are kept awake; quick: a quick run has it; sized: its targets are for the full sizes alone.
    """

    name: str
    section: str
    open: Opener
    figures: tuple[str, ...]
    bounds: tuple[Bound, ...] = ()
    compare: Compare = "peers"
    rounds: int | None = None
    awake: bool = False
    quick: bool = True
    sized: bool = False

    @property
    def main(self) -> str:
        """The figure ratios are made of."""
        return self.figures[-1]


@dataclass
class Row:
    """What one subject reached: medians of its rounds."""

    subject: str
    figures: Figures = field(default_factory=dict)
    spread: float | None = None
    busy: float | None = None
    rounds: int = 0
    ratio: float | None = None
    targets: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    note: str = ""


def rows(
    cell: Cell, subjects: list[Subject], rounds: dict[str, list[Figures]], failed: dict[str, str], judged: bool
) -> list[Row]:
    """Medians, ratios and verdicts of a cell that has been measured."""
    found = [_row(cell, subject, rounds.get(subject.name, []), failed) for subject in subjects]
    for row in found:
        row.ratio = _ratio(cell, found[0], row)
    for bound in cell.bounds if judged else ():
        _judge(bound, found)
    return found


def _row(cell: Cell, subject: Subject, rounds: list[Figures], failed: dict[str, str]) -> Row:
    note = subject.missing or failed.get(subject.name, "")
    if not rounds or subject.name in failed:
        return Row(subject.name, note=note)
    busy = median(figures.pop(BUSY) for figures in rounds)
    figures = {name: median(figures[name] for figures in rounds) for name in rounds[0]}
    values = [figures[cell.main] for figures in rounds]
    spread = (max(values) - min(values)) / figures[cell.main] if len(values) > 1 and figures[cell.main] else None
    return Row(subject.name, figures, spread, busy, len(rounds), note=note)


def _ratio(cell: Cell, first: Row, row: Row) -> float | None:
    """How many times a peer's rate ours is; or how many times its cost at the smallest size."""
    if row is first or cell.compare == "alone" or not row.figures or not first.figures:
        return None
    ours, other = first.figures[cell.main], row.figures[cell.main]
    return other / ours if cell.compare == "sizes" else ours / other


def _judge(bound: Bound, found: list[Row]) -> None:
    if bound.of is None:
        if bound.figure in found[0].figures:
            found[0].targets.append(str(bound))
            found[0].verdicts.append(bound.judge(found[0].figures[bound.figure]))
        return
    for row in found[1:]:
        if row.subject.startswith(bound.of):
            row.targets.append(str(bound))
            if row.ratio is not None:
                row.verdicts.append(bound.judge(row.ratio))
