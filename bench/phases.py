"""Two phases, timed: put so many tasks, then take and ack them all. By one caller, threads or asyncio tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from bench.cell import Figures

FIGURES = ("put/s", "take+ack/s", "cycle/s")


def payload(n: int) -> dict[str, object]:
    """What every task carries, ours and the peers'."""
    return {"url": "http://example.com/page", "n": n}


def figures(put: float, take: float) -> Figures:
    """From two rates; a cycle is a put, a take and an ack."""
    return {"put/s": put, "take+ack/s": take, "cycle/s": 1 / (1 / put + 1 / take)}


def alone(put: Callable[[int], object], take: Callable[[], object], count: int, limit: float) -> Figures:
    """One caller. A phase that takes longer than `limit` seconds ends early; rates are of what was done."""
    for n in range(warm := max(1, min(200, count // 10))):
        put(n)
    for _ in range(warm):
        take()
    done, start = 0, perf_counter()
    while done < count and perf_counter() - start < limit:
        put(done)
        done += 1
    middle = perf_counter()
    taken = 0
    while taken < done and perf_counter() - middle < limit:
        take()
        taken += 1
    return figures(done / (middle - start), taken / (perf_counter() - middle))


def by_threads(
    put: Callable[[int], object], take: Callable[[], object], callers: int, count: int, limit: float
) -> Figures:
    """The same work shared by threads that begin together."""
    stop = threading.Event()

    def share(work: Callable[[int], object], gate: threading.Barrier) -> None:
        gate.wait(limit)
        for n in range(count // callers):
            if stop.is_set():
                raise TimeoutError(f"not done within {limit:g} seconds")
            work(n)

    with ThreadPoolExecutor(callers) as pool:

        def together(work: Callable[[int], object]) -> float:
            gate = threading.Barrier(callers + 1)
            futures = [pool.submit(share, work, gate) for _ in range(callers)]
            gate.wait(limit)
            start = perf_counter()
            try:
                for future in futures:
                    future.result(max(0.1, limit - (perf_counter() - start)))
            except BaseException:
                stop.set()
                raise
            return count // callers * callers / (perf_counter() - start)

        return figures(together(put), together(lambda _: take()))


async def by_tasks(
    put: Callable[[int], Awaitable[object]],
    take: Callable[[], Awaitable[object]],
    callers: int,
    count: int,
    limit: float,
) -> Figures:
    """The same work shared by asyncio tasks of one loop."""

    async def share(work: Callable[[int], Awaitable[object]]) -> None:
        for n in range(count // callers):
            await work(n)

    async def together(work: Callable[[int], Awaitable[object]]) -> float:
        start = perf_counter()
        async with asyncio.timeout(limit):
            await asyncio.gather(*(share(work) for _ in range(callers)))
        return count // callers * callers / (perf_counter() - start)

    return figures(await together(put), await together(lambda _: take()))
