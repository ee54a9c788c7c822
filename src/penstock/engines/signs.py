"""Signs of life of sessions far away, which count before they are written down."""

from __future__ import annotations

from penstock.model.duration import SECOND

LONGEST = 24 * 3600 * SECOND
"""A sign of life counts for a day at most."""
MOST = 10_000
"""So many sessions can be heard of at a time; the others live by what is written down."""
FEW = 100


class Signs:
    """Until when each session that was heard of lives."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}
        self._full_at = FEW
        """How many there are when those that are over are looked for: seldom, so that hearing costs little."""
        self._first = 0
        """No sign is over before this moment; known as of the last look."""

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._until)

    def hear(self, uuid: str, ttl: int, now: int) -> None:
        """A session has given a sign of life."""
        if uuid not in self._until and len(self._until) >= self._full_at:
            if len(self._until) >= MOST and now < self._first:
                return
            self._until = {other: until for other, until in self._until.items() if until > now}
            self._first = min(self._until.values(), default=0)
            self._full_at = min(MOST, max(FEW, 2 * len(self._until)))
            if len(self._until) >= MOST:
                return
        self._until[uuid] = now + min(ttl, LONGEST)

    def until(self, uuid: str) -> int:
        """When the last sign of a session is over; 0 if none was heard."""
        return self._until.get(uuid, 0)

    def alive(self, now: int) -> set[str]:
        """Sessions whose last sign still counts. Called in any thread."""
        return {uuid for uuid, until in list(self._until.items()) if until > now}
