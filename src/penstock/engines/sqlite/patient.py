"""Lanes of an adopted table, of which many rows may change at once."""

from __future__ import annotations

from penstock.engines.sqlite.lanes import Lanes


class PatientLanes(Lanes):
    """Lanes that wait with putting the right task in the line until many rows were changed."""

    _pending: set[str] | None = None

    def gather(self) -> None:
        self._pending = set()

    def catch_up(self, now: int) -> None:
        pending, self._pending = self._pending, None
        for lane in sorted(pending or ()):
            self.refresh(lane, now)

    def refresh(self, lane: str, now: int) -> None:
        if self._pending is None:
            super().refresh(lane, now)
        else:
            self._pending.add(lane)
