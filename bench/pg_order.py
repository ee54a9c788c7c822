"""What a queue of others is asked to do on PostgreSQL, and the clock for its worker."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

WARM = 50
BULK = 1000


@dataclass(frozen=True)
class Order:
    """Phases to measure, in this order.

    put: single puts. bulk: BULK puts in a call. work: a worker with an empty handler that gets its tasks `batch` at a
    time and runs `callers` at once. take, ack: the two halves of work, where they can be called.
    """

    phases: tuple[str, ...]
    count: int
    limit: float
    batch: int = 1
    callers: int = 1


class Tally:
    """The clock of a worker: it starts when the first tasks have been handled and ends at the last.

    So neither the start of the worker nor its end is counted; the acks still on their way make up for those before.
    """

    def __init__(self, order: Order) -> None:
        self._all, self._limit = WARM + order.count, order.limit
        self.handled = 0
        self._start = self._end = 0.0

    def __call__(self) -> bool:
        """One more was handled; True once that is enough."""
        self.handled += 1
        if self.handled == WARM:
            self._start = perf_counter()
        elif self.handled > WARM:
            self._end = perf_counter()
            return self.handled >= self._all or self._end - self._start > self._limit
        return False

    def rate(self) -> float:
        if self.handled <= WARM:
            raise AssertionError(f"the worker handled only {self.handled} tasks")
        return (self.handled - WARM) / (self._end - self._start)
