"""Workers with a handler that does nothing, and workers that have nothing to do."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import penstock
from bench import ours, pg_queuer
from bench import pg_subjects as subjects
from bench.cell import Bound, Cell, Figures, Subject
from bench.pg_order import WARM, Order, Tally
from bench.pg_phase import parts, payload
from bench.pg_server import place
from bench.scale import Scale

SLOTS = 32
WORK = "workers with a handler that does nothing"
IDLE = "a worker that waits, three tubes"
RATE = ("tasks/s",)
SETTLE, WATCHED = 1.5, 8.0
"""Seconds that an idle worker has to come to rest, and that it is then watched."""


def work(url: str, kind: str, count: int, limit: float, analyze: Any = None) -> Figures:
    """One worker process, its handlers in the loop. The clock is that of the others' workers."""
    order = Order(("work",), count, limit)
    tally = Tally(order)
    with penstock.connect(url) as q:

        @q.handler("bench", kind=kind)
        async def handle(data: Any) -> None:
            if tally():
                worker.stop()

        for part in parts(count + WARM, 1000):
            handle.put_many([payload(n) for n in part])
        if analyze is not None:
            analyze()
        worker = penstock.Worker(q, concurrency=SLOTS)
        worker.run(signals=False)
    return {"tasks/s": tally.rate()}


def on_file(folder: Path, durability: ours.Durability, kind: str, count: int, limit: float) -> Figures:
    url = ours.file(folder)
    with penstock.connect(url, durability=durability):
        return work(url, kind, count, limit)


def files(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    count = 4 * scale.batched
    return [
        Subject(f"{ours.NAME} {kind}, strict", partial(on_file, folder, ours.STRICT, kind, count, scale.limit))
        for kind in ("fifo", "standard")
    ]


def on_postgres(folder: Path, kind: str, count: int, limit: float) -> Figures:
    with place(folder) as where:
        return work(where.url, kind, count, limit, where.analyze)


def servers(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    count = 2 * scale.batched
    order = Order(("work",), count, scale.limit, batch=subjects.BATCH)
    mine = [
        Subject(f"{ours.NAME} {kind}", partial(on_postgres, folder, kind, count, scale.limit))
        for kind in ("fifo", "standard")
    ]
    summary = subjects.rates(tasks="work")
    return mine + [subjects.peer(name, folder, order, summary, f"by {subjects.BATCH}") for name in subjects.PEERS]


def idle(url: str) -> Figures:
    """The share of one core that a worker uses which has nothing to do."""
    with penstock.connect(url) as q:
        for n in range(3):

            @q.handler(f"bench{n}")
            async def handle(data: Any) -> None: ...

        worker = penstock.Worker(q, concurrency=SLOTS)
        thread = threading.Thread(target=partial(worker.run, signals=False))
        thread.start()
        time.sleep(SETTLE)
        before, start = time.process_time(), time.perf_counter()
        time.sleep(WATCHED)
        used = 100 * (time.process_time() - before) / (time.perf_counter() - start)
        worker.stop()
        thread.join()
    return {"cpu %": used}


def idle_on_postgres(folder: Path) -> Figures:
    with place(folder) as where:
        return idle(where.url)


def idlers(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    return [
        Subject("memory", partial(idle, "memory:")),
        Subject("SQLite", lambda: idle(ours.file(folder))),
        Subject("PostgreSQL", partial(idle_on_postgres, folder)),
    ]


CELLS = (
    Cell("worker", WORK, files, RATE, (Bound("tasks/s", 20_000),), "alone"),
    Cell("pg-worker", f"PostgreSQL, {WORK}", servers, RATE, (Bound("tasks/s", 3, of=pg_queuer.NAME),)),
    Cell("worker-idle", IDLE, idlers, ("cpu %",), (Bound("cpu %", most=1),), "alone", 1),
)
NOTES = {
    "slots": f"Penstock's workers have {SLOTS} async slots and fetch ahead as they do by themselves",
    "idle": "of one core, by the process of the worker; what the database server uses is not counted",
}
