"""Group commit: what several threads ask for at one time is performed together.

Whoever finds the lock free performs everything that waits, its own op and those of others, as one group, and
tells the others; they sleep meanwhile, each at a gate of its own, so nobody is woken for nothing.
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

ROUNDS = 32
"""How many groups one thread performs for others before another one has to."""


class Slot:
    """The ops of one caller on their way."""

    __slots__ = ("answers", "gate", "ops", "strict")

    def __init__(self, requests: Sequence[ops.Op[Any]], strict: bool) -> None:
        self.ops = requests
        self.strict = strict
        self.answers: list[Answer] | None = None
        self.gate: SimpleQueue[None] = SimpleQueue()
        """The caller sleeps on it; everything put here wakes it once."""


class Group:
    def __init__(self, perform: Callable[[Sequence[ops.Op[Any]], bool], list[Answer]]) -> None:
        self.mutex = threading.Lock()
        self._perform = perform
        self._pending: deque[Slot] = deque()

    def perform(self, requests: Sequence[ops.Op[Any]], strict: bool) -> list[Answer]:
        """Answers of these ops, performed by this thread or by another."""
        # The lock is only ever taken by `with`: a Ctrl-C between acquire() and try would leave it held for ever.
        # Who finds it free a moment too late waits for it, which is right too.
        if not self._pending and not self.mutex.locked():
            try:
                with self.mutex:
                    return self._perform(requests, strict)
            finally:
                if self._pending:
                    self._catch_up()
        slot = Slot(requests, strict)
        self._pending.append(slot)
        self._catch_up()
        slot.gate.get()
        while slot.answers is None:  # woken to lead, because the one who led has done enough
            self._catch_up()
            slot.gate.get()
        return slot.answers

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep everybody out for a while."""
        try:
            with self.mutex:
                yield
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
        for _ in range(ROUNDS):
            if not self._pending or self.mutex.locked():
                return
            with self.mutex:
                self._lead()
        with suppress(IndexError):
            self._pending[0].gate.put(None)

    def _lead(self) -> None:
        """Perform everything that is in line. Called with the lock."""
        slots: list[Slot] = []
        while self._pending:
            slots.append(self._pending.popleft())
        if not slots:
            return
        requests = slots[0].ops if len(slots) == 1 else [op for slot in slots for op in slot.ops]
        try:
            answers = self._perform(requests, any(slot.strict for slot in slots))
        except BaseException as error:
            answers = [error] * len(requests)
            if not isinstance(error, Exception):
                raise
        finally:
            start = 0
            for slot in slots:
                end = start + len(slot.ops)
                slot.answers = answers[start:end]
                slot.gate.put(None)
                start = end
