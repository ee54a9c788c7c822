"""The lanes of one tube.

A task stands in the line while its `place` is set. Tasks without a lane always have one. Of each lane that is
open and has a READY task, exactly the first one has one; where concurrency is limited the taken tasks keep
theirs as slots, so that counting slots is counting rows. `refresh` makes this true again for one lane after
any change; the statements of fast.py keep it true by themselves for lanes without settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.engines.sqlite.database import Row
from penstock.engines.sqlite.statements import named
from penstock.model import lane as lanes
from penstock.model.duration import date
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.state import State

if TYPE_CHECKING:
    from penstock.engines.sqlite.tube import SqliteTube

_SQL = named("store.sql")


class LaneRow(NamedTuple):
    """What is stored of a lane: settings (None: the tube's), and where its rate stands."""

    concurrency: int | None = None
    rate: float | None = None
    burst: int | None = None
    paused: int | None = None
    tat: int = 0
    wake_at: int | None = None

    @property
    def has_settings(self) -> bool:
        return any(value is not None for value in self[:4])

    def over(self, limits: LaneLimits) -> LaneLimits:
        """The tube's limits with the lane's own in their place."""
        return LaneLimits(
            limits.concurrency if self.concurrency is None else self.concurrency,
            limits.rate if self.rate is None else self.rate,
            limits.burst if self.burst is None else self.burst,
            bool(self.paused),
        )


class Lanes:
    def __init__(self, tube: SqliteTube) -> None:
        self._tube = tube

    @property
    def plain(self) -> bool:
        """True while no lane has settings or a rate, and at most one or any number may be taken of each."""
        config = self._tube.config
        return (
            config.lane_rate is None
            and config.lane_order == "skip"
            and config.lane_concurrency in (None, 1)
            and not self._tube.head.lane_rows
        )

    def row(self, lane: str) -> LaneRow | None:
        tube = self._tube
        if not tube.head.lane_rows:
            return None
        found = tube.database.row(_SQL["load_lane"], (tube.number, lane))
        return None if found is None else LaneRow(*found)

    def limits(self, lane: str, row: LaneRow | None = None) -> LaneLimits:
        """The tube's limits with the lane's own in their place."""
        row = row or self.row(lane)
        limits = self._tube.config.limits
        return limits if row is None else row.over(limits)

    def _save(self, lane: str, old: LaneRow | None, new: LaneRow, now: int) -> None:
        """Store a lane's row, or drop it when the lane is as good as new."""
        tube = self._tube
        if new.has_settings or new.tat > now:
            if new != old:
                tube.database.execute(_SQL["save_lane"], (tube.number, lane, *new))
                tube.head.lane_rows += old is None
        elif old is not None:
            tube.database.execute(_SQL["delete_lane"], (tube.number, lane))
            tube.head.lane_rows -= 1
        if new.wake_at is not None and (tube.next_due is None or new.wake_at < tube.next_due):
            tube.next_due = new.wake_at

    def granted(self, lane: str, now: int) -> None:
        """A task of the lane was taken: it used one cell of the rate."""
        row = self.row(lane)
        limits = self.limits(lane, row)
        if limits.rate:
            old = row or LaneRow()
            self._save(lane, row, old._replace(tat=lanes.tat_after_grant(limits, old.tat, now)), now)

    def refresh(self, lane: str, now: int) -> None:
        """Let the right task of the lane stand in the line, or none."""
        tube = self._tube
        row = self.row(lane)
        limits = self.limits(lane, row)
        tat = row.tat if row else 0
        opens_at = lanes.opens_at(limits, tat) if limits.rate else now
        standing = tube.database.row(tube.sql["standing"], (lane,))
        waiting = tube.database.row(tube.sql["first_waiting"], (lane,))
        head = None if standing is None else standing[0]
        if waiting is not None and (standing is None or waiting[2:] < standing[2:]):
            head = waiting[0] if waiting[1] == State.READY else None
        shut = limits.paused or self._is_full(lane, limits.concurrency)
        late = now < opens_at
        self._stand(None if shut or late else head, standing)
        if row is not None or limits.rate:
            old = row or LaneRow()
            wake_at = opens_at if late and head is not None else tat
            self._save(lane, row, old._replace(wake_at=wake_at if wake_at > now else None), now)

    def _is_full(self, lane: str, concurrency: int | None) -> bool:
        """Slots are looked for only where the whole tube has as many taken tasks as the lane may have."""
        tube = self._tube
        if concurrency is None or tube.counters.rows(State.TAKEN) < concurrency:
            return False
        return tube.database.row(tube.sql["taken_slot"], (lane, concurrency - 1)) is not None

    def _stand(self, head: int | None, standing: Row | None) -> None:
        """Put the head in the line; a lane that stands there already keeps its place."""
        tube = self._tube
        if standing is not None:
            if head == standing[0]:
                return
            tube.database.execute(tube.sql["set_place"], (None, standing[0]))
        if head is not None:
            turns = tube.config.lane_pick == "turns"
            place = standing[1] if standing is not None and turns else tube.next_place(head)
            tube.database.execute(tube.sql["set_place"], (place, head))

    def configure(self, lane: str, options: Mapping[str, Any], now: int) -> LaneLimits:
        row = self.row(lane)
        changed: dict[str, Any] = {name: None if value is False else value for name, value in options.items()}
        new = (row or LaneRow())._replace(**changed)
        self._save(lane, row, new, now)
        limits = self.limits(lane, new)
        self._recount(lane, limits)
        self.refresh(lane, now)
        return limits

    def _recount(self, lane: str, limits: LaneLimits) -> None:
        """Give the lane's taken tasks slots, or take them away, after its limit has changed."""
        tube = self._tube
        for (seq,) in tube.database.rows(tube.sql["taken_in_lane"], (lane,)):
            place = seq if limits.concurrency is not None else None
            tube.database.execute(tube.sql["set_place"], (place, seq))

    def refresh_all(self, now: int) -> None:
        """Options of the lanes have changed: those that open join the line by their first READY tasks."""
        tube = self._tube
        rows = tube.database.rows(tube.sql["all_lanes"])
        rows += tube.database.rows(_SQL["configured_lanes"], (tube.number,))
        for lane in dict.fromkeys(lane for (lane,) in rows):
            self._recount(lane, self.limits(lane))
            self.refresh(lane, now)

    def page(self, limit: int, after: str | None, now: int) -> list[LaneInfo]:
        tube = self._tube
        found: list[LaneInfo] = []
        name = after
        while len(found) < limit:
            name = self._next_name(name)
            if name is None:
                break
            row = self.row(name)
            limits = self.limits(name, row)
            ready, taken = tube.database.rows(tube.sql["count_lane"], (name, name, name))[0]
            if ready or taken or (row and row.has_settings):
                next_at = lanes.opens_at(limits, row.tat) if row and limits.rate else now
                found.append(LaneInfo(name, ready, taken, limits, date(next_at) if next_at > now else None))
        return found

    def _next_name(self, after: str | None) -> str | None:
        tube = self._tube
        if after is None:
            # "" is a lane too: the one that tasks of utube kinds without a lane share.
            ready, taken = tube.database.rows(tube.sql["count_lane"], ("", "", ""))[0]
            if ready or taken or self.row("") is not None:
                return ""
            after = ""
        name: str | None = tube.database.value(tube.sql["next_lane"], (after, after, after, tube.number, after))
        return name
