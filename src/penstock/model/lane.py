"""Lanes: sub-queues with a concurrency limit, a rate limit, or both."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from penstock.model.duration import SECOND


class LaneLimits(NamedTuple):
    """What holds for one lane; None means no limit."""

    concurrency: int | None = None
    rate: float | None = None
    burst: int = 1
    paused: bool = False

    @property
    def interval(self) -> int:
        """Microseconds between two grants at the steady rate."""
        assert self.rate
        return -int(-SECOND // self.rate)


def opens_at(limits: LaneLimits, tat: int) -> int:
    """The moment from which the rate lets one more task through.

    `tat` is the theoretical arrival time of the generic cell rate algorithm: when the next grant would be
    due if grants came exactly at the rate.
    """
    return tat - (limits.burst - 1) * limits.interval


def tat_after_grant(limits: LaneLimits, tat: int, now: int) -> int:
    """The theoretical arrival time after a grant at `now`."""
    return max(now, tat) + limits.interval


class LaneInfo(NamedTuple):
    """A lane as lanes() shows it."""

    name: str
    ready: int
    taken: int
    limits: LaneLimits
    next_at: datetime | None
    """When the rate lets the next task through; None when it would now."""
