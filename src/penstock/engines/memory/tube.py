"""A tube in memory: dicts and heaps.

A heap may hold entries that are no longer true (heap.py); `_is_...` says which are.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.engines.memory.heap import Heap
from penstock.engines.transaction import TubeStore
from penstock.model import lane as lanes
from penstock.model import rules
from penstock.model.duration import date
from penstock.model.errors import TaskNotFound
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.rules import Due
from penstock.model.state import Reason, State
from penstock.model.stats import Counters
from penstock.model.task import HistoryRow, Record, TaskId
from penstock.model.tube import TubeConfig

if TYPE_CHECKING:
    from penstock.engines.memory.store import MemoryTransaction

READY, TAKEN, DELAYED, BURIED, DONE = State
LAST = (math.inf, 0)


@dataclass
class Lane:
    """A lane that holds tasks, has settings, or still remembers its rate."""

    settings: dict[str, Any] = field(default_factory=dict)
    waiting: Heap[tuple[int, int]] = field(default_factory=Heap)
    """(pri, seq) of the tasks that stand in the lane."""
    ready: int = 0
    taken: int = 0
    tat: int = 0
    wake_at: int | None = None
    place: int | None = None
    """Its place in the tube's line; None while it is shut or has nothing to give."""
    head: int | None = None
    """The task that stands in the line for it."""


class MemoryTube(TubeStore):
    tx: MemoryTransaction

    def __init__(self, tx: MemoryTransaction, config: TubeConfig) -> None:
        self.tx = tx
        self.config = config
        self.counters = Counters.zero()
        self.next_due = None
        self._seq = 0
        self._turn = 0
        self._clear()

    def _clear(self) -> None:
        self._records: dict[int, Record] = {}
        """In the order of seq: a new task has the highest, a changed one keeps its place in the dict."""
        self._ids: dict[TaskId, int] = {}
        self._keys: dict[str, int] = {}
        self._put_ids: dict[str, int] = {}
        self._places: dict[int, int] = {}
        """Who stands in the line now, and where."""
        self._own_places: dict[int, int] = {}
        """Tasks without a lane keep their place in the line for life."""
        self._taken: set[int] = set()
        self._buried: set[int] = set()
        self._line: Heap[tuple[int, int, int]] = Heap()
        """(pri, place, seq) of who stands in the line."""
        self._timers: Heap[tuple[Due, int]] = Heap()
        self._lanes: dict[str, Lane] = {}
        self._wakes: Heap[tuple[int, str]] = Heap()

    def image(self) -> dict[str, Any]:
        """All of the tube as it is now. Records are values, so the dicts and heaps are copied and no record is."""
        image = {name: copy.copy(value) for name, value in vars(self).items() if name not in ("tx", "config")}
        lanes = {name: replace(lane, waiting=copy.copy(lane.waiting)) for name, lane in self._lanes.items()}
        return {**image, "config": self.config, "_lanes": lanes}

    def restore(self, image: Mapping[str, Any]) -> None:
        """Be as at the moment of the image."""
        vars(self).update(image)

    # -- storage -----------------------------------------------------------------------------------

    def next_seq(self, at_least: int = 0) -> int:
        self._seq = max(self._seq + 1, at_least)
        return self._seq

    def next_token(self) -> int:
        self.tx.token += 1
        return self.tx.token

    def find(self, task_id: TaskId) -> Record | None:
        seq = self._ids.get(task_id)
        return None if seq is None else self._records[seq]

    def find_key(self, key: str) -> Record | None:
        seq = self._keys.get(key)
        return None if seq is None else self._records[seq]

    def find_put_id(self, put_id: str) -> Record | None:
        seq = self._put_ids.get(put_id)
        return None if seq is None else self._records[seq]

    def insert(self, record: Record, now: int) -> None:
        self._ids[record.id] = record.seq
        if record.lane is None:
            self._own_places[record.seq] = self._next_place(record)
        self._write(None, record, now)

    def update(self, before: Record, after: Record, now: int) -> None:
        self._unindex(before)
        if before.lane != after.lane:
            self._records[after.seq] = after
            self._leave_lane(before, now)
            if after.lane is None:
                self._own_places[after.seq] = self._next_place(after)
            self._write(None, after, now)
        else:
            self._write(before, after, now)

    def remove(self, record: Record, now: int) -> None:
        self._unindex(record)
        self._ids.pop(record.id)
        self._records.pop(record.seq)
        self._own_places.pop(record.seq, None)
        self._taken.discard(record.seq)
        self._buried.discard(record.seq)
        self._leave_lane(record, now)

    def _unindex(self, record: Record) -> None:
        if record.key is not None and self._keys.get(record.key) == record.seq:
            del self._keys[record.key]
        if record.put_id is not None:
            self._put_ids.pop(record.put_id, None)

    def _write(self, before: Record | None, after: Record, now: int) -> None:
        seq = after.seq
        self._records[seq] = after
        if after.key is not None and after.state != DONE:
            self._keys[after.key] = seq
        if after.put_id is not None:
            self._put_ids[after.put_id] = seq
        for state, held in ((TAKEN, self._taken), (BURIED, self._buried)):
            if after.state == state:
                held.add(seq)
            else:
                held.discard(seq)
        if (what := rules.due(after)) is not None:
            self._timers.push((what, seq), self._is_due)
        self.note_due(after)
        if after.lane is not None:
            self._move_in_lane(before, after, now)
        elif after.state == READY:
            self._stand(after, self._own_places[seq])
        else:
            self._places.pop(seq, None)

    def record_history(self, row: HistoryRow) -> None:
        self.tx.last_event += 1
        self.tx.events.append(row._replace(seq=self.tx.last_event))

    def truncate(self) -> int:
        number = len(self._records)
        for state in State:
            self.counters.move(state, None, self.counters.rows(state))
        kept = {
            name: Lane(lane.settings, tat=lane.tat, wake_at=lane.wake_at)
            for name, lane in self._lanes.items()
            if lane.settings or lane.tat
        }
        self._clear()
        self._lanes = kept
        self._wakes = Heap((lane.wake_at, name) for name, lane in kept.items() if lane.wake_at is not None)
        self.next_due = self.first_due()
        return number

    # -- the line ----------------------------------------------------------------------------------

    def _next_place(self, record: Record) -> int:
        """Behind all others, or, where lanes are picked by order, where the task's seq puts it."""
        if self.config.lane_pick == "order" or not self.config.features.lanes:
            return record.seq
        self._turn += 1
        return self._turn

    def _stand(self, record: Record, place: int) -> None:
        self._places[record.seq] = place
        self._line.push((record.pri, place, record.seq), self._is_standing)

    def _is_standing(self, entry: tuple[int, int, int]) -> bool:
        pri, place, seq = entry
        return self._places.get(seq) == place and self._records[seq].pri == pri

    def candidate(self, lane: str | None, now: int) -> Record | None:
        config = self.config
        if config.paused or (config.concurrency is not None and self.counters.rows(TAKEN) >= config.concurrency):
            return None
        if lane is not None:
            found = self._lanes.get(lane)
            return None if found is None or found.head is None else self._records[found.head]
        first = self._line.first(self._is_standing)
        return None if first is None else self._records[first[2]]

    # -- lanes -------------------------------------------------------------------------------------

    def limits(self, lane: Lane) -> LaneLimits:
        given = {name: value for name, value in lane.settings.items() if value is not None}
        return self.config.limits._replace(**given)

    def _move_in_lane(self, before: Record | None, after: Record, now: int) -> None:
        assert after.lane is not None
        lane = self._lanes.setdefault(after.lane, Lane())
        if before is not None:
            self._count(lane, before, -1)
        self._count(lane, after, +1)
        if lane.head == after.seq and (after.state != READY or before is None or before.pri != after.pri):
            self._sit(lane)
        if after.state == TAKEN and before is not None and before.state == READY:
            limits = self.limits(lane)
            if limits.rate:
                lane.tat = lanes.tat_after_grant(limits, lane.tat, now)
        if after.state not in (TAKEN, DONE):
            lane.waiting.push((after.pri, after.seq), partial(self._is_waiting, after.lane))
        self.refresh_lane(after.lane, now)

    def _leave_lane(self, record: Record, now: int) -> None:
        if record.lane is None:
            self._places.pop(record.seq, None)
            return
        lane = self._lanes.setdefault(record.lane, Lane())  # one with nothing but delayed tasks is forgotten
        self._count(lane, record, -1)
        if lane.head == record.seq:
            self._sit(lane)
        self.refresh_lane(record.lane, now)

    @staticmethod
    def _count(lane: Lane, record: Record, by: int) -> None:
        lane.ready += by if record.state == READY else 0
        lane.taken += by if record.state == TAKEN else 0

    def _sit(self, lane: Lane) -> None:
        """Leave the line."""
        if lane.head is not None:
            self._places.pop(lane.head, None)
        lane.head = lane.place = None

    def refresh_lane(self, name: str, now: int) -> None:
        """An open lane with a READY task first stands in the line; it joins at the back."""
        lane = self._lanes[name]
        head = self._first_in(name, lane)
        limits = self.limits(lane)
        opens_at = lanes.opens_at(limits, lane.tat) if limits.rate else now
        shut = limits.paused or (limits.concurrency is not None and lane.taken >= limits.concurrency)
        if shut or head is None or now < opens_at:
            self._sit(lane)
        elif lane.head != head.seq or self._places.get(head.seq) is None:
            place = lane.place
            self._sit(lane)
            lane.head = head.seq
            lane.place = self._next_place(head) if place is None or self.config.lane_pick == "order" else place
            self._stand(head, lane.place)
        self._set_wake(name, lane, opens_at if head is not None and now < opens_at else lane.tat, now)
        if not (lane.settings or lane.ready or lane.taken or lane.waiting or lane.tat > now):
            del self._lanes[name]

    def _set_wake(self, name: str, lane: Lane, at: int, now: int) -> None:
        old, lane.wake_at = lane.wake_at, at if at > now else None
        if lane.wake_at is not None:
            if at != old:
                self._wakes.push((at, name), self._is_wake)
            if self.next_due is None or at < self.next_due:
                self.next_due = at

    def _is_wake(self, entry: tuple[int, str]) -> bool:
        at, name = entry
        return name in self._lanes and self._lanes[name].wake_at == at

    def _first_in(self, name: str, lane: Lane) -> Record | None:
        """The task a grant from this lane would be for. Strict lanes wait for delayed and buried ones."""
        first = lane.waiting.first(partial(self._is_waiting, name))
        record = None if first is None else self._records[first[1]]
        return record if record is not None and record.state == READY else None

    def _is_waiting(self, lane: str, entry: tuple[int, int]) -> bool:
        pri, seq = entry
        record = self._records.get(seq)
        if record is None or record.lane != lane or record.pri != pri:
            return False
        return record.state == READY or (self.config.lane_order == "strict" and record.state in (DELAYED, BURIED))

    def open_lane(self, lane: str, at: int) -> None:
        if lane in self._lanes:
            self.refresh_lane(lane, at)

    def configure_lane(self, lane: str, options: Mapping[str, Any], now: int) -> LaneLimits:
        found = self._lanes.setdefault(lane, Lane())
        settings = {**found.settings, **options}
        found.settings = {name: value for name, value in settings.items() if value is not None and value is not False}
        limits = self.limits(found)
        self.refresh_lane(lane, now)
        return limits

    def lanes(self, limit: int, after: str | None, now: int) -> list[LaneInfo]:
        names = sorted(
            name
            for name, lane in self._lanes.items()
            if (lane.ready or lane.taken or lane.settings) and (after is None or name > after)
        )
        return [self._lane_info(name, self._lanes[name], now) for name in names[:limit]]

    def _lane_info(self, name: str, lane: Lane, now: int) -> LaneInfo:
        limits = self.limits(lane)
        next_at = lanes.opens_at(limits, lane.tat) if limits.rate else now
        return LaneInfo(name, lane.ready, lane.taken, limits, date(next_at) if next_at > now else None)

    def place_by_seq(self) -> None:
        """Lanes are picked otherwise from now on: who stands in the line does so by age, turns begin behind."""
        self._turn = max(self._turn, self._seq)
        self._own_places = {seq: seq for seq in self._own_places}
        for lane in self._lanes.values():
            lane.place = lane.head
        for seq in list(self._places):
            self._stand(self._records[seq], seq)

    def refresh_all(self, now: int) -> None:
        """Options of the lanes have changed: those that open join the line by their first READY tasks."""
        waiting: dict[str, list[tuple[int, int]]] = defaultdict(list)
        firsts: dict[str, tuple[float, int]] = {}
        for record in self._records.values():
            if record.lane is not None and record.state not in (TAKEN, DONE):
                entry = (record.pri, record.seq)
                waiting[record.lane].append(entry)
                if record.state == READY and entry < firsts.get(record.lane, LAST):
                    firsts[record.lane] = entry
        for name in sorted({*self._lanes, *waiting}, key=lambda name: firsts.get(name, LAST)):
            self._lanes.setdefault(name, Lane()).waiting = Heap(waiting[name])
            self.refresh_lane(name, now)

    # -- reading -----------------------------------------------------------------------------------

    def due_tasks(self, until: int, limit: int) -> list[Record]:
        found: list[Record] = []
        while len(found) < limit and (first := self._timers.first(self._is_due)) and first[0].at <= until:
            self._timers.take()
            record = self._records[first[1]]
            if record not in found[-1:]:
                found.append(record)
        return found

    def _is_due(self, entry: tuple[Due, int]) -> bool:
        what, seq = entry
        record = self._records.get(seq)
        return record is not None and rules.due(record) == what

    def due_lanes(self, until: int) -> list[tuple[int, str]]:
        found = []
        while (first := self._wakes.first(self._is_wake)) and first[0] <= until:
            found.append(self._wakes.take())
            self._lanes[first[1]].wake_at = None
        return found

    def first_due(self) -> int | None:
        timer, wake = self._timers.first(self._is_due), self._wakes.first(self._is_wake)
        moments = [] if timer is None else [timer[0].at]
        return min(moments if wake is None else [*moments, wake[0]], default=None)

    def buried(self, limit: int | None) -> list[Record]:
        found = _ordered(self._records[seq] for seq in self._buried)
        return found[:limit]

    def exhausted(self) -> list[Record]:
        spent = (Reason.NO_ATTEMPTS, Reason.LOST, Reason.EXPIRED)
        return _ordered(r for r in self._records.values() if r.state in (BURIED, DONE) and r.reason in spent)

    def taken(self, session: int | None = None) -> list[Record]:
        held = (self._records[seq] for seq in sorted(self._taken))
        return [record for record in held if session in (None, record.session)]

    def page(self, state: State | None, limit: int, after: TaskId | None) -> list[Record]:
        start = 0 if after is None else self._ids.get(after, after)
        if not isinstance(start, int):
            raise TaskNotFound(f"there is no task {after!r} to list from")
        found = (r for r in self._records.values() if r.seq > start and state in (None, r.state))
        return list(islice(found, limit))

    def extent(self) -> tuple[int, int] | None:
        seqs = self._records.keys()
        return (next(iter(seqs)), next(reversed(seqs))) if seqs else None


def _ordered(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.pri, record.seq))
