"""What a lake says about a queue, as plain numbers: all that a report needs, and ready for JSON.

Moments are seconds since 1970 (UTC), lengths are seconds. `penstock.pipeline.gold.figures(spark, lake)` makes them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Spread:
    """How long something took, over many times. Percentiles are right to about two in a hundred."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Counts:
    """How often each thing happened."""

    events: int = 0
    puts: int = 0
    """Tasks that were put, or put anew in the place of another (on_conflict="replace")."""
    takes: int = 0
    retries: int = 0
    """Takes of a task that had been taken before."""
    acks: int = 0
    fails: int = 0
    """Runs that ended with fail()."""
    lost: int = 0
    """Runs that ended because their time (ttr) was over or their session was gone."""
    releases: int = 0
    buried: int = 0
    """Times a task was buried, for whatever reason."""
    kicks: int = 0
    expired: int = 0
    cancelled: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class Point:
    """One slot of the timeline: from `at` to `at + Figures.slot`."""

    at: float
    counts: Counts
    wait: Spread | None
    """From ready to taken, of tasks taken in the slot; None if there were none."""
    run: Spread | None
    """From taken to the end of the lease, of leases that ended in the slot; None if there were none."""
    ready: int
    """Tasks of each state at the end of the slot."""
    taken: int
    delayed: int
    buried: int


@dataclass(frozen=True)
class TubeFigures:
    """One tube over the whole time."""

    tube: str
    counts: Counts
    wait: Spread | None
    run: Spread | None
    lanes: int
    """How many lanes had events; tasks without a lane count as one."""
    fairness: float | None
    """Jain's index over the acks of its lanes: 1 is even, 1/lanes is one lane that gets all; None below 2 lanes."""
    ready: int
    """Tasks of each state at the end."""
    taken: int
    delayed: int
    buried: int


@dataclass(frozen=True)
class LaneFigures:
    """One lane of a tube over the whole time."""

    tube: str
    lane: str | None
    counts: Counts
    share: float
    """Of the tube's acks, 0 to 1."""
    wait: Spread | None
    run: Spread | None
    first: float
    """The moments of its first and last event."""
    last: float


@dataclass(frozen=True)
class Failure:
    """Errors that are alike: the same class, and the same text but for numbers, ids and quoted values."""

    tube: str
    error_class: str | None
    fingerprint: str
    example: str
    """One such error, in full as far as it is stored."""
    count: int
    buried: int
    """How many of them buried their task."""
    lanes: int
    """In about how many lanes it happened."""
    first: float
    last: float


@dataclass(frozen=True)
class Figures:
    """A whole lake."""

    version: int
    """Of the lake; 0 if it is empty."""
    upto: int
    """The history's position up to which events are in the lake."""
    begin: float
    """The moments of the first and last event; both 0 if there are none."""
    end: float
    slot: float
    """How long one point of the timeline is."""
    counts: Counts = field(default_factory=Counts)
    wait: Spread | None = None
    run: Spread | None = None
    timeline: list[Point] = field(default_factory=list)
    """Every slot from begin to end, also those where nothing happened; at most about 120."""
    tubes: list[TubeFigures] = field(default_factory=list)
    """By name."""
    lanes: list[LaneFigures] = field(default_factory=list)
    """Most events first, and at most 1000; `lane_total` says how many there are."""
    lane_total: int = 0
    failures: list[Failure] = field(default_factory=list)
    """Most frequent first, and at most 200; `failure_total` says how many kinds there are."""
    failure_total: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    """Tasks that ended: how many of them were taken 0, 1, 2, .. times; `attempts_limit` means "so often or more"."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """Tasks that ended, by reason (success, deleted, cancelled, expired)."""
    open: dict[str, int] = field(default_factory=dict)
    """Tasks that have not ended, by state (ready, taken, delayed, buried)."""
    attempts_limit: int = 20

    def document(self) -> dict[str, Any]:
        """The same as plain dicts and lists, for JSON."""
        return asdict(self)
