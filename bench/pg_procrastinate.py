"""procrastinate on psycopg: its blocking connector for puts, which is the faster one, and its worker."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import perf_counter
from typing import Any

from bench.pg_order import BULK, WARM, Order, Tally
from bench.pg_phase import Clock, Phase, Phases, parts, payload
from bench.pg_server import Place

NAME = "procrastinate"
NOTE = (
    "3.10.0 with psycopg, its worker deletes jobs that succeeded; it fetches one job at a time whatever its "
    "concurrency. One at a time by locks; no rates, fencing or ttl"
)
TASK = "bench"


def measure(place: Place, order: Order) -> Phases:
    # It warns that an application in the main module is not found by its command, which is not used here.
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    place.create()
    return _Run(place, order).all()


class _Run:
    def __init__(self, place: Place, order: Order) -> None:
        from procrastinate import App, SyncPsycopgConnector

        self._place, self._order = place, order
        self._clock = Clock(place.wal, order.limit)
        self._app = App(connector=SyncPsycopgConnector(**self._options(1)))
        self._task = self._app.task(name=TASK, queue=TASK)(_nothing)

    def _options(self, size: int) -> dict[str, Any]:
        options = {"options": f"-c search_path={self._place.name}"}
        return {"conninfo": self._place.server.url, "kwargs": options, "min_size": size, "max_size": size}

    def all(self) -> Phases:
        found: Phases = {}
        with self._app.open():
            self._app.schema_manager.apply_schema()
            for n in range(WARM):
                self._put(n)
            for phase in self._order.phases:
                found |= getattr(self, phase)()
        return found

    def _put(self, n: int) -> int:
        self._task.defer(**payload(n))
        return 1

    def _put_many(self, numbers: range) -> int:
        jobs: list[Any] = [payload(n) for n in numbers]
        self._task.batch_defer(*jobs)
        return len(numbers)

    def _fill(self, count: int) -> None:
        for part in parts(count, BULK):
            self._put_many(part)
        self._place.analyze()

    def put(self) -> Phases:
        return {"put": self._clock.run(self._order.count, self._put)[1]}

    def bulk(self) -> Phases:
        return {"bulk": self._clock.run(self._order.count, lambda n: self._put_many(range(n, n + BULK)))[1]}

    def take(self) -> Phases:
        """Both halves at once, since the jobs are held by one loop."""
        self._fill(self._order.count)
        return asyncio.run(self._take_and_ack())

    def ack(self) -> Phases:
        return {}

    def work(self) -> Phases:
        self._fill(self._order.count + WARM)
        return {"work": asyncio.run(self._work())}

    async def _take_and_ack(self) -> Phases:
        from procrastinate import App, PsycopgConnector
        from procrastinate.jobs import Status

        app = App(connector=PsycopgConnector(**self._options(1)))
        held: list[Any] = []
        count, limit = self._order.count, self._order.limit
        async with app.open_async():
            worker = await app.job_manager.register_worker()
            before, start = self._place.wal(), perf_counter()
            while len(held) < count and perf_counter() - start < limit:
                held.append(await app.job_manager.fetch_job(None, worker))
            middle, half = perf_counter(), self._place.wal()
            for job in held:
                await app.job_manager.finish_job(job, Status.SUCCEEDED, delete_job=True)
            end, after = perf_counter(), self._place.wal()
        number = len(held)
        return {
            "take": Phase(number / (middle - start), (half - before) / number),
            "ack": Phase(number / (end - middle), (after - half) / number),
        }

    async def _work(self) -> Phase:
        from procrastinate import App, PsycopgConnector

        before, tally, enough = self._place.wal(), Tally(self._order), asyncio.Event()
        app = App(connector=PsycopgConnector(**self._options(self._order.callers + 2)))

        @app.task(name=TASK, queue=TASK)
        async def handle(n: int) -> None:
            if tally():
                enough.set()

        async with app.open_async():
            running = app.run_worker_async(
                concurrency=self._order.callers, delete_jobs="successful", install_signal_handlers=False
            )
            worker = asyncio.create_task(running)
            await asyncio.wait({worker, asyncio.create_task(enough.wait())}, return_when=asyncio.FIRST_COMPLETED)
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker
        return Phase(tally.rate(), (self._place.wal() - before) / tally.handled)


def _nothing(n: int) -> None:
    """What the blocking application calls its task; only the worker's one is run."""
