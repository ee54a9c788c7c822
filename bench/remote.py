"""A server of our own as a process, and asyncio tasks that use it over penstock://."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import penstock
from bench.cell import Bound, Cell, Figures, Subject
from bench.scale import Scale
from bench.served import cpu_us, served


async def cycles(url: str, callers: int, count: int) -> None:
    """put, take and ack, by so many tasks at once."""
    async with await penstock.aconnect(url) as q:
        tube = await q.create_tube("jobs", "fifo", if_not_exists=True)

        async def caller() -> None:
            for _ in range(count // callers):
                await tube.put("x")
                task = await tube.take(timeout=5)
                assert task is not None
                await task.ack()

        await asyncio.gather(*(caller() for _ in range(callers)))


def measure(folder: Path, callers: int, count: int) -> Figures:
    """One round, on a new file."""
    with served(folder) as server:
        url = f"penstock://{server.address}"
        asyncio.run(cycles(url, callers, callers * 20))
        began, mine, theirs = time.perf_counter(), time.process_time(), cpu_us(server.pid)
        asyncio.run(cycles(url, callers, count))
        return {
            "cycle/s": count / (time.perf_counter() - began),
            "client us": (time.process_time() - mine) / count * 1e6,
            "server us": (cpu_us(server.pid) - theirs) / count,
        }


def subjects(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    """A client and a server, each a process."""
    run = partial(measure, folder, scale.callers, scale.concurrent)
    return [Subject(f"penstock:// {scale.callers} tasks", run)]


SECTION = "penstock://, 50 asyncio tasks of one process, a server of SQLite, relaxed"
FIGURES = ("cycle/s", "client us", "server us")
CELLS = (Cell("remote-cycles", SECTION, subjects, FIGURES, (Bound("cycle/s", 15_000),), "alone"),)

if __name__ == "__main__":
    print({name: round(value, 1) for name, value in measure(Path(tempfile.gettempdir()), 50, 30_000).items()})
