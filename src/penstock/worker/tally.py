"""What a worker has done, in numbers: for metrics, for the log, for the person who watches."""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds, in seconds, of the groups that durations are counted in."""


class Hooks(Protocol):
    """What a worker tells a collector of metrics about each task, in this order.

    `name` is the worker's, `tube` the task's.
    """

    def inc_busy(self, name: str, tube: str) -> None:
        """A handler starts."""

    def measure(self, name: str, tube: str, ok: bool, seconds: float) -> None:
        """A handler has ended; ok is False when it raised, aborted, had bad data, or lost its task."""

    def dec_busy(self, name: str, tube: str) -> None:
        """The handler's slot is free again. Always comes after inc_busy."""


class TubeTally:
    """The runs of one tube."""

    __slots__ = ("buckets", "busy", "ok", "outcomes", "seconds", "trouble")

    def __init__(self) -> None:
        self.busy = 0
        self.ok = 0
        self.trouble = 0
        """Runs that failed, aborted, had bad data, lost their task, or had no handler."""
        self.outcomes: dict[str, int] = {}
        """The same runs by how they ended: ack, fail, abort, bury, release, refund, by_hand, lost, late or
        unknown_handler."""
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS) + 1)

    def add(self, ok: bool, seconds: float | None, outcome: str | None = None) -> None:
        """Count a run; one without seconds never began, and is not among the durations."""
        if outcome == "refund":  # it counts as not run; Tally.given_back has it
            pass
        elif ok:
            self.ok += 1
        else:
            self.trouble += 1
        outcome = outcome or ("ack" if ok else "fail")
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if seconds is not None:
            self.seconds += seconds
            self.buckets[bisect_left(BUCKETS, seconds)] += 1


class Tally:
    """The runs of a worker, by tube."""

    def __init__(self) -> None:
        self.tubes: dict[str, TubeTally] = {}
        self.given_back = 0
        """Tasks that were taken and not begun, or not ended, when the worker stopped."""
        self.lost = 0
        """Runs that were told that their task is no longer theirs."""

    def of(self, tube: str) -> TubeTally:
        found = self.tubes.get(tube)
        if found is None:
            found = self.tubes[tube] = TubeTally()
        return found

    @property
    def ok(self) -> int:
        return sum(tube.ok for tube in list(self.tubes.values()))

    @property
    def trouble(self) -> int:
        return sum(tube.trouble for tube in list(self.tubes.values()))

    @property
    def busy(self) -> int:
        return sum(tube.busy for tube in list(self.tubes.values()))

    def __repr__(self) -> str:
        return f"<Tally ok {self.ok}, trouble {self.trouble}, given back {self.given_back}, lost {self.lost}>"
