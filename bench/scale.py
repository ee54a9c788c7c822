"""How much is measured: the whole table, or a quick look."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Counts of tasks, and the seconds after which a phase is cut short and no further round begun."""

    rounds: int = 5
    single: int = 5_000
    lanes: int = 30_000
    callers: int = 50
    concurrent: int = 10_000
    batched: int = 30_000
    busy: tuple[int, int] = (5_000, 15_000)
    wakes: int = 400
    growth: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    growth_cycles: int = 300
    stored: int = 1_000_000
    limit: float = 30.0
    cell_limit: float = 60.0
    fill_limit: float = 240.0


FULL = Scale()
QUICK = Scale(
    rounds=3,
    single=1_000,
    lanes=2_000,
    concurrent=2_000,
    batched=5_000,
    busy=(100, 300),
    wakes=40,
    growth=(2_000, 20_000),
    growth_cycles=100,
    stored=50_000,
    limit=5.0,
    cell_limit=4.0,
    fill_limit=10.0,
)
