"""The only module that knows the time."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Protocol

from penstock.model.duration import SECOND, Seconds, micros


class Clock(Protocol):
    """Tells moments (microseconds since 1970) that never go back inside one engine."""

    manual: bool

    def now(self) -> int: ...


class SystemClock:
    """The machine's wall clock, held still while it is set back."""

    manual = False

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> int:
        value = time.time_ns() // 1000
        if value < self._last:
            return self._last
        self._last = value
        return value


class Follower(Protocol):
    """What a manual clock moves along: an open engine."""

    def next_stop(self) -> int | None:
        """The first moment at which somebody who waits gives up."""

    def before_advance(self, moment: int) -> None: ...

    def after_advance(self) -> None: ...


class ManualClock:
    """A clock for tests: it stands still until advance().

    >>> clock = ManualClock()
    >>> start = clock.now(); clock.advance(2.5); clock.now() - start
    2500000
    """

    manual = True

    def __init__(self, start: int = 1_800_000_000 * SECOND) -> None:
        self._now = start
        self._lock = threading.RLock()
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()

    def now(self) -> int:
        return self._now

    def follow(self, follower: Follower) -> None:
        """Let an engine be kept alive and woken by advance()."""
        self._followers.add(follower)

    def unfollow(self, follower: Follower) -> None:
        self._followers.discard(follower)

    def advance(self, seconds: Seconds) -> None:
        """Move the time on. Sessions of open queues stay alive, waiting calls notice what became due."""
        with self._lock:
            target = self._now + max(0, micros(seconds, "seconds"))
            while True:
                followers = list(self._followers)
                stops = [stop for follower in followers if (stop := follower.next_stop()) is not None]
                moment = min([target, *(stop for stop in stops if stop > self._now)])
                for follower in followers:
                    follower.before_advance(moment)
                self._now = moment
                for follower in followers:
                    follower.after_advance()
                if moment == target:
                    return


_START_OF_2024 = 1_704_067_200


def next_epoch(last: int) -> int:
    """The epoch of a run that begins now: token = epoch * 2**32 + n. [rule 4]

    Seconds by the real clock, so a store restored from a copy cannot meet the numbers of its lost future.
    """
    return max(last + 1, int(time.time()) - _START_OF_2024)


def epoch_began(epoch: int) -> int:
    """When the run of an epoch began, in seconds since 1970.

    >>> epoch_began(60) - epoch_began(0)
    60
    """
    return _START_OF_2024 + epoch
