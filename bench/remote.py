"""A server of our own as a process, and asyncio tasks that use it over penstock://."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import penstock
from bench.cell import Bound, Cell, Figures, Subject
from bench.scale import Scale

SERVER = """
import asyncio, signal, sys
import uvloop
from penstock.server.server import Server
from penstock.server.settings import Settings

async def main():
    server = Server(Settings(sys.argv[1], port=0, durability="relaxed"))
    await server.start()
    print(server.port(), flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await server.stop()

uvloop.run(main())
"""


@contextmanager
def served(file: Path) -> Iterator[tuple[str, int]]:
    """The URL of a server of a file, and its process."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"penstock://127.0.0.1:{int(process.stdout.readline())}", process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    with tempfile.TemporaryDirectory(dir=folder) as own, served(Path(own) / "remote.db") as (url, pid):
        asyncio.run(cycles(url, callers, callers * 20))
        began, mine, theirs = time.perf_counter(), time.process_time(), cpu_seconds(pid)
        asyncio.run(cycles(url, callers, count))
        return {
            "cycle/s": count / (time.perf_counter() - began),
            "client us": (time.process_time() - mine) / count * 1e6,
            "server us": (cpu_seconds(pid) - theirs) / count * 1e6,
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
