"""Measure a cell: its subjects in turns, round after round, so that noise hits all alike."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

from bench.cell import BUSY, Cell, Figures, Row, rows
from bench.cores import awake, busy, times
from bench.scale import FULL, Scale


def steps(cell: Cell, scale: Scale) -> int:
    """How many rounds a cell has."""
    return min(cell.rounds or scale.rounds, 3 if scale.rounds <= 3 else 99)


def measure(cell: Cell, scale: Scale, folder: Path | None, say: Callable[[str], None]) -> list[Row]:
    """One cell. What goes wrong with a subject is its note; the others go on."""
    taken: dict[str, list[Figures]] = {}
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=folder)))
        say("opening")
        subjects = cell.open(stack, home, scale)
        if cell.awake:
            stack.enter_context(awake())
        start = monotonic()
        for number in range(steps(cell, scale)):
            if number and monotonic() - start > scale.cell_limit:
                break
            turn = number % len(subjects)
            for subject in subjects[turn:] + subjects[:turn]:
                if subject.run is None or subject.name in failed:
                    continue
                say(f"round {number + 1}: {subject.name}")
                gc.collect()
                try:
                    before = times()
                    figures = subject.run()
                    taken.setdefault(subject.name, []).append({**figures, BUSY: busy(before, times())})
                except Exception as error:
                    failed[subject.name] = f"failed: {type(error).__name__}: {error}"[:300]
        return rows(cell, subjects, taken, failed, judged=scale == FULL or not cell.sized)
