"""Group commit: what several threads ask for at one time is performed together.

Whoever finds the lock free performs everything that waits, its own op and those of others, as one group, and
tells the others; they sleep meanwhile, each at a gate of its own, so nobody is woken for nothing.

A signal may raise an exception anywhere. What a caller was granted that is gone by then goes back. [rule 15]
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from penstock.engines.line import Answer
from penstock.model import ops
from penstock.model.errors import EngineUnavailable

ROUNDS = 32
"""How many groups one thread performs for others before another one has to."""


class Slot:
    """The ops of one caller on their way."""

    __slots__ = ("answers", "gate", "left", "ops", "strict")

    def __init__(self, requests: Sequence[ops.Op[Any]], strict: bool) -> None:
        self.ops = requests
        self.strict = strict
        self.answers: list[Answer] | None = None
        self.gate: SimpleQueue[None] = SimpleQueue()
        """The caller sleeps on it; everything put here wakes it once."""
        self.left = False
        """True once the caller has gone."""


class Group:
    def __init__(
        self,
        perform: Callable[[Sequence[ops.Op[Any]], bool], list[Answer]],
        give_back: Callable[[Sequence[ops.Op[Any]], Sequence[Answer]], None],
    ) -> None:
        self.mutex = threading.Lock()
        self.late: BaseException | None = None
        """What a signal has raised after a commit; it is raised as soon as everybody's answers are known."""
        self._perform = perform
        self._give_back = give_back
        self._pending: deque[Slot] = deque()

    def perform(self, requests: Sequence[ops.Op[Any]], strict: bool) -> list[Answer]:
        """Answers of these ops, performed by this thread or by another."""
        # The lock is only ever taken by `with`: a Ctrl-C between acquire() and try would leave it held for ever.
        # Who finds it free a moment too late waits for it, which is right too.
        if not self._pending and not self.mutex.locked():
            return self._at_once(requests, strict)
        slot = Slot(requests, strict)
        try:
            self._pending.append(slot)
            self._catch_up()
            slot.gate.get()
            while slot.answers is None:  # woken to lead, because the one who led has done enough
                self._catch_up()
                slot.gate.get()
            return slot.answers
        except BaseException:
            slot.left = True
            self._catch_up()  # it may have been this thread's turn to lead
            if slot.answers is not None:
                self._give_back(requests, slot.answers)
            raise

    def _at_once(self, requests: Sequence[ops.Op[Any]], strict: bool) -> list[Answer]:
        answers: list[Answer] | None = None
        try:
            with self.mutex:
                answers = self._perform(requests, strict)
                if self.late is not None:
                    self._raise_late()
            if self._pending:
                self._catch_up()
            return answers
        except BaseException:
            if self._pending:
                self._catch_up()
            if answers is not None:
                self._give_back(requests, answers)
            raise

    def _raise_late(self) -> None:
        late, self.late = self.late, None
        assert late is not None
        raise late

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep everybody out for a while."""
        try:
            with self.mutex:
                yield
                if self.late is not None:
                    self._raise_late()
        finally:
            if self._pending:
                self._catch_up()

    def resume(self) -> None:
        """Give the lock back and see to those who came meanwhile."""
        self.mutex.release()
        if self._pending:
            self._catch_up()

    def _catch_up(self) -> None:
        # A thread puts its slot in line before it looks at the lock, and this looks at the line after it gave
        # the lock back: so either the one or the other sees to the slot.
        try:
            for _ in range(ROUNDS):
                if not self._pending or self.mutex.locked():
                    return
                with self.mutex:
                    slots = self._lead()
                for slot in slots:
                    if slot.left and slot.answers is not None:
                        self._give_back(slot.ops, slot.answers)
        finally:
            if self._pending and not self.mutex.locked():
                with suppress(IndexError):
                    self._pending[0].gate.put(None)

    def _lead(self) -> list[Slot]:
        """Perform everything that is in line. Called with the lock."""
        slots = self._gather()
        answers: list[Answer] = []
        try:
            slots = [slot for slot in slots if not slot.left]
            requests = slots[0].ops if len(slots) == 1 else [op for slot in slots for op in slot.ops]
            if requests:
                answers = self._perform(requests, any(slot.strict for slot in slots))
            _tell(slots, answers)
        except BaseException as error:
            _tell(slots, answers, error)
            if not isinstance(error, Exception):
                raise
        if self.late is not None:
            self._raise_late()
        return slots

    def _gather(self) -> list[Slot]:
        """Everybody who stands in line now. Called with the lock, so nobody else takes anybody out of it."""
        slots: list[Slot] = []
        try:
            while self._pending:
                slots.append(self._pending[0])
                self._pending.popleft()
            return slots
        except BaseException:  # of a signal
            self._pending.extendleft(slot for slot in reversed(slots) if slot not in self._pending)
            raise


def _tell(slots: Sequence[Slot], answers: list[Answer], error: BaseException | None = None) -> None:
    """Wake callers, with their answers or with an error. Done twice it does no harm."""
    if error is not None and not isinstance(error, Exception):  # of a signal to this thread, not to theirs
        why = "the thread that performed this with its own was interrupted; it may have been done"
        error = EngineUnavailable(why, "unknown")
    start = 0
    for slot in slots:
        end = start + len(slot.ops)
        slot.answers = answers[start:end] if answers else [error] * len(slot.ops)
        slot.gate.put(None)
        start = end
