"""What is measured of a queue on PostgreSQL: how fast it does one thing, and how much WAL that writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from bench.pg_server import Place

SIZE = 200
Phases = dict[str, "Phase"]
"""put, take and ack of single tasks; work: take and ack one after the other; bulk: many puts in a call."""


@dataclass(frozen=True)
class Phase:
    """Tasks a second, and bytes of WAL for a task."""

    rate: float
    wal: float


class Line(Protocol):
    """A queue that can be called step by step."""

    def put(self, n: int) -> object: ...
    def take(self) -> Any: ...
    def ack(self, task: Any) -> object: ...
    def put_many(self, numbers: range) -> object: ...
    def take_many(self, size: int) -> list[Any]: ...
    def ack_many(self, tasks: list[Any]) -> object: ...


def payload(n: int) -> dict[str, int]:
    """What every task on PostgreSQL carries: a number of five digits."""
    return {"n": 10_000 + n % 90_000}


def parts(count: int, size: int) -> list[range]:
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


class Clock:
    """Runs steps until all are done or the time is up."""

    def __init__(self, wal: Callable[[], int], limit: float) -> None:
        self._wal = wal
        self._limit = limit

    def run(self, count: int, step: Callable[[int], int]) -> tuple[int, Phase]:
        """`step` gets how many are done and answers how many it did; how many were done in all, and how fast."""
        before, done, start = self._wal(), 0, perf_counter()
        while done < count and perf_counter() - start < self._limit:
            did = step(done)
            if not did:
                raise AssertionError(f"only {done:,} of {count:,} tasks were there")
            done += did
        spent = perf_counter() - start
        return done, Phase(done / spent, (self._wal() - before) / done)


def finish(line: Line) -> int:
    """Take one task and ack it."""
    task = line.take()
    if task is None:
        raise AssertionError("a task that was put could not be taken")
    line.ack(task)
    return 1


def warm_up(line: Line, count: int = 50) -> None:
    """Statements are prepared and plans made before anything is measured."""
    for n in range(count):
        line.put(n)
    for _ in range(count):
        finish(line)
    for _ in range(8):
        line.put_many(range(SIZE))
        line.ack_many(line.take_many(SIZE))


def fill(place: Place, line: Line, count: int) -> None:
    for part in parts(count, 5 * SIZE):
        line.put_many(part)
    place.analyze()


def put(line: Line, clock: Clock, count: int) -> Phases:
    def step(n: int) -> int:
        line.put(n)
        return 1

    return {"put": clock.run(count, step)[1]}


def take_and_ack(line: Line, clock: Clock, count: int) -> Phases:
    """All are taken before the first is acked, so that each is seen alone."""
    held = []

    def take(n: int) -> int:
        held.append(line.take())
        return 1

    def ack(n: int) -> int:
        line.ack(held[n])
        return 1

    taken, takes = clock.run(count, take)
    return {"take": takes, "ack": clock.run(taken, ack)[1]}


def work(line: Line, clock: Clock, count: int) -> Phases:
    return {"work": clock.run(count, lambda done: finish(line))[1]}


def bulk(line: Line, clock: Clock, count: int, size: int) -> Phases:
    def step(n: int) -> int:
        line.put_many(range(n, n + size))
        return size

    return {"bulk": clock.run(count, step)[1]}


def batches(line: Line, clock: Clock, count: int, size: int) -> Phases:
    """Puts by many, then takes and acks by many."""

    def put(n: int) -> int:
        line.put_many(range(n, n + size))
        return size

    def work(n: int) -> int:
        tasks = line.take_many(size)
        line.ack_many(tasks)
        return len(tasks)

    done, puts = clock.run(count, put)
    return {"put": puts, "work": clock.run(done, work)[1]}
