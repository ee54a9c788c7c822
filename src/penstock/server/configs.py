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
        self.changes = 0
        """How often they were forgotten."""
        self._read_at = 0.0

    def add(self, config: TubeConfig, asked: int) -> None:
        """It was read; `asked`: the changes when it was asked for. If there were some since, it may be an old one."""
        if asked == self.changes:
            self.known[config.name] = config

    def forget(self) -> None:
        """Tubes may have changed."""
        self.changes += 1
        self.known.clear()

    def doubt(self, tube: str) -> None:
        """A call was refused that would have been right by what is known of the tube."""
        self.known.pop(tube, None)

    def age(self, now: float) -> None:
        """Called ever and again: forget all of them when the time is over, which costs less than a look at each."""
        if now - self._read_at >= FRESH:
            self._read_at = now
            self.forget()
