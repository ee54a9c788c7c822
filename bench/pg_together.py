"""Many takers at once on PostgreSQL: threads of one process, or processes of their own.

`python -m bench.pg_together WHO URL SCHEMA` is one of the processes: it works until nothing is left.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter

import psycopg

import penstock
from bench import pg_ours, pg_phase, pg_plain, phases
from bench.cell import Figures
from bench.pg_phase import Line, finish
from bench.pg_server import Place, place

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ("put/s", "take+ack/s")


class EachTheirOwn:
    """Plain statements for threads: a connection for each, as it is asked for."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self._place, self._stack = place, stack
        self._mine = threading.local()
        self._opening = threading.Lock()

    def line(self) -> pg_plain.Plain:
        if not hasattr(self._mine, "line"):
            with self._opening:
                self._mine.line = pg_plain.Plain(self._stack.enter_context(self._place.connect()))
        line: pg_plain.Plain = self._mine.line
        return line


def our_threads(folder: Path, callers: int, count: int, limit: float) -> Figures:
    """Threads that share one queue, as users have it."""
    with place(folder) as where, pg_ours.line(where) as line:
        return phases.by_threads(line.put, lambda: finish(line), callers, count, limit)


def plain_threads(folder: Path, callers: int, count: int, limit: float) -> Figures:
    with place(folder) as where, ExitStack() as stack:
        pg_plain.create(where)
        each = EachTheirOwn(where, stack)
        return phases.by_threads(lambda n: each.line().put(n), lambda: finish(each.line()), callers, count, limit)


@contextmanager
def reopened(who: str, url: str, schema: str) -> Iterator[Line]:
    """What another process has made, seen from this one."""
    if who == pg_ours.NAME:
        with penstock.connect(f"{url}?schema={schema}") as queue:
            yield pg_ours.Ours(queue.tube("bench"))
    else:
        with psycopg.connect(url, autocommit=True, options=f"-c search_path={schema}") as connection:
            yield pg_plain.Plain(connection)


def processes(folder: Path, who: str, callers: int, count: int, limit: float) -> Figures:
    """The clock runs from the word to begin until the last process has found nothing more."""
    opened = pg_ours.line if who == pg_ours.NAME else pg_plain.line
    with place(folder) as where, opened(where) as line, ExitStack() as stack:
        pg_phase.fill(where, line, count)
        command = [sys.executable, "-m", "bench.pg_together", who, where.server.url, where.name]
        takers = [stack.enter_context(taker(command)) for _ in range(callers)]
        for each in takers:
            assert each.stdout is not None
            each.stdout.readline()
        start = perf_counter()
        for each in takers:
            assert each.stdin is not None
            each.stdin.write("begin\n")
            each.stdin.flush()
        done = sum(json.loads(each.communicate(timeout=limit)[0]) for each in takers)
        if done != count:
            raise AssertionError(f"{done:,} of {count:,} tasks were taken")
        return {"take+ack/s": count / (perf_counter() - start)}


@contextmanager
def taker(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(5)


def work(who: str, url: str, schema: str) -> None:
    with reopened(who, url, schema) as line:
        print("ready", flush=True)
        sys.stdin.readline()
        done = 0
        while (task := line.take()) is not None:
            line.ack(task)
            done += 1
        print(done, flush=True)


if __name__ == "__main__":
    work(*sys.argv[1:])
