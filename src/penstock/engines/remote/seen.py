"""Tokens that answers have brought: what is above them was granted in an answer that never came."""

from __future__ import annotations

TUBES = 1000
"""So many tubes are remembered, those in which something was granted last."""


class Seen:
    """The highest token that this process has ever seen, by tube."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._floor = 0
        """The highest of tubes that were forgotten; what is below it there counts as seen."""

    def __len__(self) -> int:
        """How many tubes are remembered."""
        return len(self._tokens)

    def note(self, tube: str, token: int) -> None:
        """A task was granted."""
        before = self._tokens.pop(tube, 0)
        self._tokens[tube] = max(before, token)
        if len(self._tokens) > TUBES:
            oldest = next(iter(self._tokens))
            self._floor = max(self._floor, self._tokens.pop(oldest))

    def is_new(self, tube: str, token: int) -> bool:
        """Whether no answer can have brought it."""
        return token > self._tokens.get(tube, self._floor)
