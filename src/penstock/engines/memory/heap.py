"""A heap whose entries may cease to be true."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

E = TypeVar("E", bound=tuple[Any, ...])
ROOM = 64


class Heap(list[E]):
    """Nothing is ever searched for in it. What is no longer true is thrown away when it comes to the top, and
    all of it when the heap has become twice as long as it was: so it is never much longer than what is true,
    and a push costs the same whatever was pushed before.
    """

    def __init__(self, entries: Iterable[E] = ()) -> None:
        super().__init__(entries)
        heapq.heapify(self)
        self._grow()

    def __copy__(self) -> Heap[E]:
        twin: Heap[E] = Heap()
        twin.extend(self)
        twin._grow()
        return twin

    def _grow(self) -> None:
        self._limit = 2 * len(self) + ROOM

    def push(self, entry: E, is_true: Callable[[E], bool]) -> None:
        heapq.heappush(self, entry)
        if len(self) > self._limit:
            self[:] = {entry for entry in self if is_true(entry)}
            heapq.heapify(self)
            self._grow()

    def first(self, is_true: Callable[[E], bool]) -> E | None:
        """The least entry that is true; it stays."""
        while self:
            if is_true(self[0]):
                return self[0]
            heapq.heappop(self)
        return None

    def take(self) -> E:
        return heapq.heappop(self)
