"""Penstock, measured through the API its users call."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import penstock
from bench import phases
from bench.cell import Figures
from bench.phases import payload

NAME = "penstock"
Durability = Literal["strict", "relaxed"]
RELAXED: Durability = "relaxed"
STRICT: Durability = "strict"
_numbers = itertools.count(1)


def options(kind: str, count: int) -> dict[str, Any]:
    """Options of a tube, the same that bench/tarantool.lua gives: tasks have a life and a time to run."""
    found: dict[str, Any] = {"ttl": 3600, "ttr": 600} if kind.endswith("ttl") else {}
    if kind == "limfifottl":
        found["capacity"] = 2 * count + 1000
    return found


def file(folder: Path) -> str:
    """A new store every round."""
    return str(folder / f"penstock-{next(_numbers)}.db")


@contextmanager
def tube(folder: Path, kind: str, count: int, durability: Durability = "relaxed") -> Iterator[penstock.Tube]:
    """A fresh tube in a store of its own."""
    with penstock.connect(file(folder), durability=durability) as queue:
        yield queue.create_tube("bench", kind, **options(kind, count))


def finish(tube: penstock.Tube) -> None:
    """Take one task and ack it."""
    task = tube.take()
    if task is None:
        raise AssertionError("a task that was put could not be taken")
    task.ack()


def one_caller(folder: Path, kind: str, count: int, lanes: int, limit: float) -> Figures:
    """Cycles of one thread; on lanes, each task in the lane whose turn it is."""
    with tube(folder, kind, count) as line:
        if lanes:
            return phases.alone(
                lambda n: line.put(payload(n), lane=f"lane{n * lanes // count}"), lambda: finish(line), count, limit
            )
        return phases.alone(lambda n: line.put(payload(n)), lambda: finish(line), count, limit)


def threads(folder: Path, kind: str, callers: int, count: int, limit: float) -> Figures:
    """Threads that share one queue."""
    with tube(folder, kind, count) as line:
        return phases.by_threads(lambda n: line.put(payload(n)), lambda: finish(line), callers, count, limit)


def tasks(folder: Path, kind: str, callers: int, count: int, limit: float) -> Figures:
    """asyncio tasks that share one queue."""

    async def measure() -> Figures:
        async with await penstock.aconnect(file(folder), durability="relaxed") as queue:
            line = await queue.create_tube("bench", kind, **options(kind, count))

            async def finish() -> None:
                task = await line.take()
                assert task is not None, "a task that was put could not be taken"
                await task.ack()

            return await phases.by_tasks(lambda n: line.put(payload(n)), finish, callers, count, limit)

    return asyncio.run(measure())


def batches(folder: Path, durability: Durability, size: int, count: int, limit: float) -> Figures:
    """put_many, take_many, ack_many of `size` tasks each."""
    with tube(folder, "fifo", count, durability) as line:
        line.ack_many(line.take_many(len(line.put_many([payload(n) for n in range(size)]))))
        done, start = 0, perf_counter()
        while done < count and perf_counter() - start < limit:
            done += len(line.put_many([payload(n) for n in range(size)]))
        middle = perf_counter()
        taken = 0
        while taken < done and perf_counter() - middle < limit:
            taken += len(line.ack_many(line.take_many(size)))
        return phases.figures(done / (middle - start), taken / (perf_counter() - middle))


def busy_lanes(folder: Path, lanes: int, each: int, limit: float) -> Figures:
    """As many asyncio tasks as lanes, a lane's tasks put in one block; a taker lets others run before it acks."""
    total = lanes * each

    async def measure() -> Figures:
        async with await penstock.aconnect(file(folder), durability="relaxed") as queue:
            line = await queue.create_tube("bench", "utube")
            for lane in range(lanes):
                for part in range(0, each, 1000):
                    items = [payload(n) for n in range(part, min(part + 1000, each))]
                    await line.put_many(items, lane=f"lane{lane}")

            async def worker() -> None:
                for _ in range(each):
                    task = await line.take(timeout=limit)
                    assert task is not None, "a taker waited in vain"
                    await asyncio.sleep(0)
                    await task.ack()

            start = perf_counter()
            async with asyncio.timeout(limit):
                await asyncio.gather(*(worker() for _ in range(lanes)))
            seconds = perf_counter() - start
            return {"us/task": seconds / total * 1e6, "take+ack/s": total / seconds}

    return asyncio.run(measure())
