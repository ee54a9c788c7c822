"""A worker that has run for long holds no more than one that has just begun."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.engines import ENGINES
from tests.worker.bench import Working, until

import penstock

BATCH = 500
SLOTS = 8
OBJECTS = 500
"""How many objects more there may be at the end than after the first part."""
BYTES = 100 * BATCH
"""How many bytes the tasks of a batch may leave behind: noise, and far less than one of them holds."""


# A server of the tests is in this process, and what it remembers for its clients comes and goes.
@pytest.fixture(
    params=[
        pytest.param(engine, id=engine.name, marks=() if engine.name == "sqlite" else pytest.mark.exhaustive)
        for engine in ENGINES
        if engine.name not in ("remote", "grpc")
    ]
)
def q(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    url = request.param.url(tmp_path)
    with penstock.connect(url, durability="relaxed") as queue:
        yield queue
    request.param.clean(url)


class Holdings:
    """What this process holds."""

    def __init__(self, working: Working) -> None:
        gc.collect()
        self.objects = len(gc.get_objects())
        self.files = len(os.listdir("/proc/self/fd"))
        names = [thread.name for thread in threading.enumerate()]
        self.handlers = sum(name.startswith("penstock handler") for name in names)
        self.threads = len(names) - self.handlers
        worker = working.worker
        assert worker._loop is not None and worker._slots is not None
        self.tasks = len(asyncio.all_tasks(worker._loop))
        self.runs = len(worker._slots.running)


class Program:
    """Handlers in the loop and in threads, with results, failures and lanes, and a worker that runs them."""

    def __init__(self, q: Any) -> None:
        self.q = q
        self.done = 0
        self.put = 0
        self._lock = threading.Lock()
        self.in_loop = q.handler("loop", result=True)(self.loop)
        self.in_thread = q.handler("thread", lane_concurrency=5, max_attempts=1)(self.thread)

    async def loop(self, n: int) -> int:
        self.count()
        return n

    def thread(self, n: int) -> None:
        self.count()
        if n % 10 == 0:
            raise ValueError(n)

    def count(self) -> None:
        with self._lock:
            self.done += 1

    def batch(self) -> None:
        """Put tasks, and wait until they are done and gone."""
        few = BATCH // 20
        self.in_loop.put_many(range(BATCH - few))
        self.in_thread.put_many([penstock.Entry(n, lane=f"lane {self.put + n}") for n in range(few)])
        self.put += BATCH
        until(lambda: self.done == self.put)
        until(lambda: not self.q.tube("loop").statistics().tasks["total"])
        until(lambda: not self.q.tube("thread").statistics().tasks["taken"])
        self.q.tube("thread").truncate()


def left_behind(program: Program) -> int:
    """How many bytes more are held after a batch."""
    before = tracemalloc.get_traced_memory()[0]
    program.batch()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


# What grows with every task shows after the first batches; what grows seldom needs many.
@pytest.mark.parametrize("batches", [2, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_a_worker_holds_no_more_after_very_many_tasks(q: Any, batches: int) -> None:
    program = Program(q)
    logging.getLogger("penstock.worker").setLevel(logging.CRITICAL)  # who captures logs holds what they are about
    try:
        with Working(q, concurrency=SLOTS) as working:
            for _ in range(2):
                program.batch()
            first = Holdings(working)
            for _ in range(batches - 1):
                program.batch()
            tracemalloc.start()
            program.batch()
            last = Holdings(working)
            # What happens once, anywhere, is no leak.
            grown = next((n for _ in range(3) if (n := left_behind(program)) < BYTES), None)
    finally:
        tracemalloc.stop()
        logging.getLogger("penstock.worker").setLevel(logging.NOTSET)
    assert last.objects <= first.objects + OBJECTS
    assert grown is not None
    assert last.files <= first.files + 1
    assert last.threads <= first.threads + 1
    assert last.handlers <= SLOTS
    assert last.tasks <= first.tasks + 1
    assert (first.runs, last.runs) == (0, 0)
