"""pgqueuer on asyncpg and uvloop, as its own command runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from time import perf_counter
from typing import Any
from uuid import uuid4

import msgspec

from bench.pg_order import BULK, WARM, Order, Tally
from bench.pg_phase import Phase, Phases, parts, payload
from bench.pg_server import Place

NAME = "pgqueuer"
NOTE = (
    "1.6.0 with asyncpg and uvloop, all tables logged: its worker's batch size is also that of its acks; an acked job "
    "leaves a row in its log. No lanes, rates, fencing or ttl"
)
ENTRYPOINT = "bench"


def measure(place: Place, order: Order) -> Phases:
    import uvloop

    place.create()
    return uvloop.run(_Run(place, order).all())


class _Run:
    def __init__(self, place: Place, order: Order) -> None:
        self._place, self._order = place, order
        self._queries: Any = None
        self._held: list[Any] = []

    async def all(self) -> Phases:
        from pgqueuer import Queries

        async with self._pool(1) as driver:
            self._queries = Queries(driver)
            await self._queries.install()
            for n in range(WARM):
                await self._put(n)
            return {phase: await getattr(self, phase)() for phase in self._order.phases}

    @asynccontextmanager
    async def _pool(self, size: int) -> AsyncIterator[Any]:
        import asyncpg  # type: ignore[import-untyped]
        from pgqueuer import AsyncpgPoolDriver

        settings = {"search_path": self._place.name}
        async with asyncpg.create_pool(
            self._place.server.url, min_size=size, max_size=size, server_settings=settings
        ) as pool:
            yield AsyncpgPoolDriver(pool)

    async def _put(self, n: int) -> int:
        await self._queries.enqueue(ENTRYPOINT, msgspec.json.encode(payload(n)), 0)
        return 1

    async def _put_many(self, numbers: range) -> int:
        payloads = [msgspec.json.encode(payload(n)) for n in numbers]
        await self._queries.enqueue([ENTRYPOINT] * len(payloads), payloads, [0] * len(payloads))
        return len(payloads)

    async def _fill(self, count: int) -> None:
        for part in parts(count, BULK):
            await self._put_many(part)
        self._place.analyze()

    async def _timed(self, count: int, step: Callable[[int], Any]) -> Phase:
        before, done, start = self._place.wal(), 0, perf_counter()
        while done < count and perf_counter() - start < self._order.limit:
            done += await step(done)
        spent = perf_counter() - start
        return Phase(done / spent, (self._place.wal() - before) / done)

    async def put(self) -> Phase:
        return await self._timed(self._order.count, self._put)

    async def bulk(self) -> Phase:
        return await self._timed(self._order.count, lambda done: self._put_many(range(done, done + BULK)))

    async def take(self) -> Phase:
        from pgqueuer.ports.repository import EntrypointExecutionParameter

        await self._fill(self._order.count)
        wanted = {ENTRYPOINT: EntrypointExecutionParameter(concurrency_limit=0)}
        worker, patience = uuid4(), timedelta(seconds=30)

        async def step(done: int) -> int:
            self._held += await self._queries.dequeue(1, wanted, worker, None, patience)
            return 1

        return await self._timed(self._order.count, step)

    async def ack(self) -> Phase:
        async def step(done: int) -> int:
            await self._queries.log_jobs([(self._held[done], "successful", None)])
            return 1

        return await self._timed(len(self._held), step)

    async def work(self) -> Phase:
        """As many workers as callers, in one loop."""
        await self._fill(self._order.count + WARM)
        before, tally = self._place.wal(), Tally(self._order)
        stop = asyncio.Event()

        async def handle(job: Any) -> None:
            msgspec.json.decode(job.payload)
            if tally():
                stop.set()

        await asyncio.gather(*(self._worker(handle, stop) for _ in range(self._order.callers)))
        return Phase(tally.rate(), (self._place.wal() - before) / tally.handled)

    async def _worker(self, handle: Callable[[Any], Any], stop: asyncio.Event) -> None:
        from pgqueuer import Queries, QueueManager

        # A connection to fetch on, one for acks and one that listens.
        async with self._pool(3 if self._order.callers == 1 else 2) as driver:
            manager = QueueManager(Queries(driver))
            manager.entrypoint(ENTRYPOINT)(handle)
            manager.shutdown = stop
            await manager.run(batch_size=self._order.batch)
