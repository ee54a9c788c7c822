"""Callers that wait: for a task, for room in a full tube, for a task's end.

A waiter is an op that is tried again whenever its tube has changed, by whoever changed it. So waiters are
served in the order they came, nobody overtakes, and a waiter that gives up can be told exactly whether it
was served. Takers that want one lane stand before those that take anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from penstock.model import ops
from penstock.model.errors import TubeFull
from penstock.model.state import State

Answer = Any
"""What an op answered, or the exception it raised."""


class Waiter:
    """One caller that waits. Subclasses say when the waiting is over."""

    def __init__(self, op: ops.Op[Any], deadline: int | None) -> None:
        self.op = op
        self.deadline = deadline
        self.answer: Answer = None
        self.done = False
        self._event = threading.Event()
        self._wake: Callable[[], None] = self._event.set

    tube: str

    def on_wake(self, wake: Callable[[], None]) -> None:
        """Use another way to wake the caller than a thread's event."""
        self._wake = wake

    def wait(self, seconds: float | None) -> None:
        self._event.wait(seconds)

    def offer(self, answer: Answer) -> bool:
        """Take an answer into account; True if the waiting is over."""
        if self.done:
            return True
        if isinstance(answer, Exception) or self.accepts(answer):
            self.resolve(answer)
        return self.done

    def accepts(self, answer: Answer) -> bool:
        raise AssertionError("a waiter knows what it waits for")

    def give_up(self) -> None:
        """Time is over, or the queue is closed."""
        if not self.done:
            self.resolve(self.empty())

    def empty(self) -> Answer:
        return None

    def resolve(self, answer: Answer) -> None:
        self.answer = answer
        self.done = True
        self._wake()


class Taker(Waiter):
    """Waits for tasks; None once a drained tube has nothing left."""

    def __init__(self, op: ops.Take, deadline: int | None) -> None:
        super().__init__(op, deadline)
        self.tube = op.tube
        self.lane = op.lane

    def accepts(self, answer: Answer) -> bool:
        return answer is None or bool(answer)

    def empty(self) -> Answer:
        return []


class Producer(Waiter):
    """Waits for room; keeps what was stored already and tries the rest again."""

    def __init__(self, op: ops.Put, deadline: int | None) -> None:
        super().__init__(op, deadline)
        self.tube = op.tube
        self._drafts = op.drafts
        self._results: list[Any] = [None] * len(op.drafts)
        self._open = list(range(len(op.drafts)))

    def accepts(self, answer: Answer) -> bool:
        for index, result in zip(self._open, answer, strict=True):
            self._results[index] = result
        self._open = [i for i in self._open if isinstance(self._results[i], TubeFull)]
        if self._open:
            self.op = ops.Put(self.tube, tuple(self._drafts[i] for i in self._open))
        return not self._open

    def resolve(self, answer: Answer) -> None:
        super().resolve(answer if isinstance(answer, Exception) else self._results)


class Watcher(Waiter):
    """Waits until a task has ended: DONE, BURIED or gone."""

    def __init__(self, op: ops.Watch, deadline: int | None) -> None:
        super().__init__(op, deadline)
        self.tube = op.tube

    def accepts(self, answer: Answer) -> bool:
        self.last = answer
        return answer.state in (State.DONE, State.BURIED)


class Lines:
    """All waiters of a store in this process, by tube."""

    def __init__(self) -> None:
        self._producers: dict[str, list[Waiter]] = {}
        self._takers: dict[str, list[Waiter]] = {}
        self._watchers: dict[str, list[Waiter]] = {}
        self.count = 0

    def _line(self, waiter: Waiter) -> dict[str, list[Waiter]]:
        if isinstance(waiter, Producer):
            return self._producers
        return self._takers if isinstance(waiter, Taker) else self._watchers

    def add(self, waiter: Waiter) -> None:
        self._line(waiter).setdefault(waiter.tube, []).append(waiter)
        self.count += 1

    def remove(self, waiter: Waiter) -> None:
        line = self._line(waiter)
        if waiter in line.get(waiter.tube, ()):
            line[waiter.tube].remove(waiter)
            self.count -= 1
            if not line[waiter.tube]:
                del line[waiter.tube]

    def takers(self, tube: str) -> int:
        return len(self._takers.get(tube, ()))

    def others(self, tube: str) -> int:
        """How many wait for anything but a task."""
        return len(self._producers.get(tube, ())) + len(self._watchers.get(tube, ()))

    def tubes(self) -> set[str]:
        return {*self._producers, *self._takers, *self._watchers}

    def all(self) -> Iterator[Waiter]:
        for line in (self._producers, self._takers, self._watchers):
            for waiters in list(line.values()):
                yield from list(waiters)

    def serve(self, tube: str, attempt: Callable[[ops.Op[Any]], Answer]) -> None:
        """Try the waiters of a tube in their order: producers, takers, watchers."""
        self._serve(self._producers.get(tube, ()), attempt, stop_at_refusal=True)
        takers = self._takers.get(tube, ())
        self._serve([t for t in takers if t.lane is not None], attempt, False)  # type: ignore[attr-defined]
        self._serve([t for t in takers if t.lane is None], attempt, True)  # type: ignore[attr-defined]
        self._serve(self._watchers.get(tube, ()), attempt, False)

    def _serve(
        self, waiters: list[Waiter] | tuple[()], attempt: Callable[[ops.Op[Any]], Answer], stop_at_refusal: bool
    ) -> None:
        refused = False
        for waiter in list(waiters):
            if refused and not getattr(waiter.op, "drain", False):
                continue
            if waiter.offer(attempt(waiter.op)):
                self.remove(waiter)
            elif stop_at_refusal:
                refused = True


def raised(answer: Answer) -> Answer:
    """The answer, or the exception that it is."""
    if isinstance(answer, BaseException):
        raise answer
    return answer


__all__ = ["Answer", "Lines", "Producer", "Taker", "Waiter", "Watcher", "raised"]
