"""The server's time."""

from __future__ import annotations

from penstock.model.clock import SystemClock


class ServerClock(SystemClock):
    """This machine's clock, set by the one of the server: moments of a queue are the server's. [rule 1]"""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0

    def set(self, moment: int) -> None:
        """The server said what time it is, a moment ago."""
        self._ahead = moment - super().now()

    def now(self) -> int:
        return super().now() + self._ahead
