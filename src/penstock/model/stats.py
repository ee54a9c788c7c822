"""Counters of a tube. Reading them costs the same whatever the backlog."""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.state import Event, State

TASKS = ("ready", "taken", "delayed", "buried", "kept", "done")
CALLS = tuple(Event)
_KEPT, _DONE = TASKS.index("kept"), TASKS.index("done")
_STATES = {State.READY: 0, State.TAKEN: 1, State.DELAYED: 2, State.BURIED: 3, State.DONE: _KEPT}
_CALLS = {event: len(TASKS) + i for i, event in enumerate(CALLS)}


class Statistics(NamedTuple):
    """What statistics() answers.

    `tasks`: ready, taken, delayed, buried (rows now), total (their sum), kept (DONE rows), done (became DONE
    in this run). `calls`: events of this run by name.
    """

    tasks: dict[str, int]
    calls: dict[str, int]


class Counters(list[int]):
    """The numbers behind Statistics, in the order of TASKS then CALLS."""

    @classmethod
    def zero(cls) -> Counters:
        return cls([0] * (len(TASKS) + len(CALLS)))

    def move(self, source: str | None, target: str | None, number: int = 1) -> None:
        """Rows went from one state to another; None is "not stored"."""
        if source is not None:
            self[_STATES[source]] -= number  # type: ignore[index]
        if target is not None:
            self[_STATES[target]] += number  # type: ignore[index]

    def call(self, event: Event, number: int = 1) -> None:
        self[_CALLS[event]] += number

    def finished(self, number: int = 1) -> None:
        self[_DONE] += number

    def rows(self, state: State) -> int:
        return self[_STATES[state]]

    def live(self) -> int:
        """READY, TAKEN, DELAYED and BURIED together: what capacity counts."""
        return self[0] + self[1] + self[2] + self[3]

    def new_run(self) -> None:
        """Calls and done count from the start of the run; rows stay."""
        for i in range(_DONE, len(self)):
            self[i] = 0

    def statistics(self) -> Statistics:
        tasks = dict(zip(TASKS, self, strict=False))
        tasks["total"] = self.live()
        return Statistics(tasks, {event.value: self[_CALLS[event]] for event in CALLS})
