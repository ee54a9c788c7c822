"""Random histories by a real engine, and what they mean, worked out in plain Python."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import penstock
from penstock.history import HistoryEvent
from penstock.model.errors import PenstockError
from penstock.testing import ManualClock

LANES = ("a", "b", "c", None)
ERRORS = ("TimeoutError: no answer in {} s", "ValueError: '{}' is no number", "no class, number {}", None)


class Past:
    """A queue in a file with two tubes, the second with ids of its own, and things that happen to them."""

    def __init__(self, path: Path, seed: int) -> None:
        self.url = str(path / "past.db")
        self.clock = ManualClock()
        self.queue = penstock.connect(self.url, clock=self.clock, durability="relaxed")
        options: dict[str, Any] = {"history": True, "history_data": True, "max_attempts": 3, "retry": [2.0, 5.0]}
        self.tubes = [
            self.queue.create_tube("jobs", keep=60, ttl=40, ttr=15, **options),
            self.queue.create_tube("named", id="required", **options),
        ]
        self.random = random.Random(seed)
        self._held: list[Any] = []

    def happen(self, number: int) -> None:
        """So many calls, one after another, of which some are refused."""
        for _ in range(number):
            self.clock.advance(self.random.choice([0, 0.001, 0.5, 3, 20]))
            with suppress(PenstockError):
                self._one()

    def _one(self) -> None:
        pick, tube = self.random, self.random.choice(self.tubes)
        call = pick.choice(["put", "put", "put", "take", "take", "take", "end", "end", "end", "other"])
        if call == "put":
            more = {"id": f"n{pick.randrange(6)}"} if tube.name == "named" else {"key": pick.choice(["k1", None])}
            delay = pick.choice([0, 0, 0, 4])
            tube.put({"n": pick.random()}, lane=pick.choice(LANES), delay=delay, on_conflict="replace", **more)
        elif call == "take":
            self._held += tube.take_many(2)
        elif call == "end" and self._held:
            self._end(self._held.pop(pick.randrange(len(self._held))))
        elif call == "other":
            tasks = tube.tasks()
            verb = pick.choice([tube.delete, tube.restart, tube.bury, tube.cancel, tube.dig])
            verb(pick.choice(tasks).id) if tasks else tube.kick(2)
            if pick.random() < 0.05:
                tube.truncate()

    def _end(self, task: Any) -> None:
        error = self.random.choice(ERRORS)
        how = self.random.choice(["ack", "ack", "fail", "fail", "release", "bury"])
        if how == "fail":
            task.fail(error and error.format(self.random.randrange(100)))
        else:
            getattr(task, how)()

    def events(self) -> list[HistoryEvent]:
        """All of them."""
        return self.queue.history(limit=100_000)


def lives_of(events: list[HistoryEvent]) -> list[dict[str, Any]]:
    """Every life, by its first event."""
    known: dict[tuple[str, str], dict[str, Any]] = {}
    found = list[dict[str, Any]]()
    for event in events:
        if event.from_state == "done" and event.to_state == "done":
            continue
        name = (event.tube, str(event.task_id))
        life = known.get(name)
        if life is None or event.from_state in (None, "done"):
            if life is not None and life["state"] != "done":
                life.update(state="done", reason="unseen", ended_at=life["at"])
            life = known[name] = _born(event)
            found.append(life)
        _live(life, event)
    for life in found:
        del life["at"]
    return found


def _born(event: HistoryEvent) -> dict[str, Any]:
    times = {"waited": None, "ran": None, "taken_at": None, "ended_at": None}
    counts = {"takes": 0, "fails": 0, "lost": 0, "error_class": None, "error": None}
    names = {"tube": event.tube, "task_id": str(event.task_id), "first": event.seq}
    return {**names, "began_at": event.at, **times, **counts}


def _live(life: dict[str, Any], event: HistoryEvent) -> None:
    life.update(last=event.seq, state=event.to_state, reason=event.reason, lane=event.lane, key=event.key, at=event.at)
    life.update(pri=event.pri, data_seq=event.seq)
    if event.event == "take":
        life["takes"] += 1
        life["taken_at"] = life["taken_at"] or event.at
        life["waited"] = (life["waited"] or 0) + (event.at - event.ready_at).total_seconds()
    if event.from_state == "taken" and event.to_state != "taken":
        life["ran"] = (life["ran"] or 0) + (event.at - event.taken_at).total_seconds()
    life["fails"] += event.event == "fail"
    life["lost"] += event.event == "ttr" or (event.event == "release" and event.reason == "lost")
    if event.error is not None:
        life.update(error_class=event.error_class, error=event.error)
    if event.to_state == "done":
        life["ended_at"] = event.at


def attempts_of(events: list[HistoryEvent]) -> list[tuple[Any, ...]]:
    """Every lease that has ended: the seq of its end, tube, id, when it was ready, taken, over, and how."""
    ready: dict[tuple[str, Any], Any] = {}
    found = list[tuple[Any, ...]]()
    for event in events:
        name = (event.tube, event.task_id)
        if event.event == "take":
            ready[name] = event.ready_at
        if event.from_state == "taken" and event.to_state != "taken":
            times = (ready[name], event.taken_at, event.at)
            found.append((event.seq, event.tube, str(event.task_id), *times, event.event, event.to_state))
    return found
