"""A store that does not answer for a moment, or has nothing new: neither may end or flood a query."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.model.errors import EngineUnavailable
from penstock.model.staging import Lost

LONGEST = 60.0
"""Seconds after which a store that does not answer fails the query."""
PAUSE = 0.2
R = TypeVar("R")


def patiently(call: Callable[[], R], before_again: Callable[[], object] = lambda: None, longest: float = LONGEST) -> R:
    """Ask again while the store does not answer. For what may be asked twice."""
    deadline = time.monotonic() + longest
    first = True
    while True:
        try:
            if not first:
                before_again()
            return call()
        except EngineUnavailable as error:
            if time.monotonic() > deadline or isinstance(error, Lost):
                raise
            first = False
            threading.Event().wait(PAUSE)


class Idle:
    """Spark looks for new rows many times a second; a store that had none is left alone for a while."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._empty_at = float("-inf")

    @property
    def is_resting(self) -> bool:
        return time.monotonic() - self._empty_at < self._pause

    def found(self, anything: bool) -> None:
        """Say what came of a look."""
        self._empty_at = float("-inf") if anything else time.monotonic()
