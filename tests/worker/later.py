"""Time for tests that do not wait."""

from __future__ import annotations

import time


class Later:
    """The time of workers, which goes on as ever and can be put forward: nobody has to wait for a limit.

    Limits of tests are so long that they are over when a test says so, and not when the machine is slow.
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self, seconds: float) -> None:
        """It is so many seconds later now."""
        self._ahead += seconds

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead
