"""Configurations of tubes, as a server last saw them."""

from __future__ import annotations

from penstock.model.tube import TubeConfig

FRESH = 1.0
"""Seconds for which a configuration is believed, for another process may change it."""


class Configs:
    """All doors share them. What is done through this server to tubes is known at once."""

    def __init__(self) -> None:
        self.known: dict[str, TubeConfig] = {}
        """Fresh ones; those who ask often look here."""
        self._read_at = 0.0

    def add(self, config: TubeConfig) -> None:
        """It was read just now."""
        self.known[config.name] = config

    def forget(self) -> None:
        """Tubes may have changed."""
        self.known.clear()

    def age(self, now: float) -> None:
        """Called ever and again: forget all of them when the time is over, which costs less than a look at each."""
        if now - self._read_at >= FRESH:
            self._read_at = now
            self.known.clear()
