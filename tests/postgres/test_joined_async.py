"""transaction= on the async facade: connections that are awaited in the loop, and those that block, beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.support import postgres
from tests.support.invariants import check

import penstock
from penstock import (
    DuplicateKey,
    EngineUnavailable,
    LeaseLost,
    NotTaken,
    NotWritable,
    TubeFull,
    TubeNotFound,
    UsageError,
)
from penstock.engines.postgres.place import Place

Connection = psycopg.AsyncConnection[Any]
Scene = Callable[[penstock.AsyncQueue, Connection], Awaitable[None]]


@pytest.fixture
def url(warm: str) -> str:
    return warm


@pytest.fixture
def play(url: str) -> Callable[[Scene], None]:
    """Run a scene with a queue and a connection of the caller's."""

    async def run(scene: Scene) -> None:
        async with await penstock.aconnect(url) as q:
            own = await psycopg.AsyncConnection.connect(Place.parse(url).conninfo)
            try:
                await own.execute("create temporary table orders (id integer)")
                await own.commit()
                await scene(q, own)
            finally:
                await own.close()
            check(url)

    return lambda scene: asyncio.run(run(scene))


async def data(tube: penstock.AsyncTube) -> list[Any]:
    return [task.data for task in await tube.tasks()]


def test_puts_and_acks_become_true_together(play):
    async def scene(q, own):
        jobs = await q.create_tube("jobs", "utube")
        await jobs.put_many(["a", "b"], lane="x")
        task = await jobs.take()
        await own.execute("insert into orders values (1)")
        await jobs.put("c", lane="y", transaction=own)
        await jobs.put_many(["d", "e"], transaction=own)
        await task.ack(transaction=own)
        assert await data(jobs) == ["a", "b"]
        await own.rollback()
        assert (await jobs.peek(task.id)).state == "taken"
        await jobs.put("c", lane="y", transaction=own)
        await jobs.ack_many([task], transaction=own)
        await own.commit()
        assert await data(jobs) == ["b", "c"]
        statistics = await jobs.statistics()
        assert (statistics.tasks["ready"], statistics.calls["ack"], statistics.calls["put"]) == (2, 1, 3)

    play(scene)


def test_a_task_object_whose_ack_was_rolled_back_holds_the_task(play):
    async def scene(q, own):
        jobs = await q.create_tube("jobs")
        await jobs.put("x")
        task = await jobs.take()
        await task.ack(transaction=own)
        await own.rollback()
        await task.release()
        assert own.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        task = await jobs.take()
        await task.ack(transaction=own)
        await own.commit()
        with pytest.raises(LeaseLost):
            await task.release()

    play(scene)


def test_a_refusal_leaves_the_transaction_usable(play):
    async def scene(q, own):
        jobs = await q.create_tube("jobs", capacity=2)
        gone = await q.create_tube("gone")
        await gone.drop()
        await jobs.put_many([penstock.Entry(1, key="k"), 2])
        own.row_factory = dict_row
        await own.execute("insert into orders values (1)")
        for refused, error in (
            (lambda: jobs.put(3, key="k", transaction=own), DuplicateKey),
            (lambda: jobs.put(3, transaction=own), TubeFull),
            (lambda: jobs.ack(1, transaction=own), NotTaken),
            (lambda: gone.put(1, transaction=own), TubeNotFound),
            (lambda: jobs.put(1, timeout=1, transaction=own), UsageError),
        ):
            with pytest.raises(error):
                await refused()
        cursor = await own.execute("select count(*) as n from orders")
        assert await cursor.fetchone() == {"n": 1}
        await own.commit()

    play(scene)


def test_connections_that_are_not_fit_are_refused(play, url):
    async def scene(q, own):
        jobs = await q.create_tube("jobs")
        await own.set_autocommit(True)
        with pytest.raises(UsageError, match=r"async with connection.transaction\(\)"):
            await jobs.put("x", transaction=own)
        async with own.transaction() as block:
            await jobs.put("in a block", transaction=block)
        await own.set_autocommit(False)
        with pytest.raises(psycopg.errors.DivisionByZero):
            await own.execute("select 1 / 0")
        with pytest.raises(UsageError, match="roll it back"):
            await jobs.put("x", transaction=own)
        await own.rollback()
        await own.set_read_only(True)
        with pytest.raises(NotWritable):
            await jobs.put("x", transaction=own)
        await own.rollback()
        async with await psycopg.AsyncConnection.connect(postgres.shared_server().url()) as stranger:
            with pytest.raises(UsageError, match="another server or database"):
                await jobs.put("x", transaction=stranger)
        await own.close()
        with pytest.raises(UsageError, match="closed"):
            await jobs.put("x", transaction=own)
        assert await data(jobs) == ["in a block"]

    play(scene)


def test_a_connection_that_the_server_has_ended_is_unavailable(play, url):
    async def scene(q, own):
        jobs = await q.create_tube("jobs")
        await jobs.put("x", transaction=own)
        with psycopg.connect(Place.parse(url).conninfo) as other:
            other.execute("select pg_terminate_backend(%s, 60000)", [own.info.backend_pid])
        with pytest.raises(EngineUnavailable):
            await jobs.put("y", transaction=own)
        assert await data(jobs) == []

    play(scene)


def test_an_awaited_connection_belongs_to_an_async_queue(play, url):
    async def scene(q, own):
        await q.create_tube("jobs")
        with penstock.connect(url) as blocking, pytest.raises(UsageError, match="aconnect"):
            blocking.tube("jobs").put(1, transaction=own)

    play(scene)


def test_a_connection_that_blocks_is_used_beside_the_loop(play, url):
    async def scene(q, own):
        jobs = await q.create_tube("jobs")
        with psycopg.connect(Place.parse(url).conninfo) as blocking:
            await jobs.put("x", transaction=blocking)
            assert await data(jobs) == []
        assert await data(jobs) == ["x"]

    play(scene)


def test_connections_that_wait_for_each_other_do_not_share_a_thread(play, url):
    """The one that has the key must get on for the one that waits for it to end."""

    async def scene(q, own):
        jobs = await q.create_tube("jobs")
        conninfo = Place.parse(url).conninfo
        with psycopg.connect(conninfo) as first, psycopg.connect(conninfo) as second:
            await jobs.put("first", key="k", transaction=first)
            waiting = asyncio.create_task(jobs.put("second", key="k", transaction=second))
            await until_blocked(own, second.info.backend_pid)
            await jobs.put("more", transaction=first)
            await jobs.put("awaited", transaction=own)
            first.commit()
            with pytest.raises(DuplicateKey):
                await waiting
        await own.commit()
        assert sorted(await data(jobs)) == ["awaited", "first", "more"]

    play(scene)


async def until_blocked(watcher: Connection, pid: int) -> None:
    async with asyncio.timeout(postgres.PATIENCE):
        while True:
            cursor = await watcher.execute("select cardinality(pg_blocking_pids(%s))", [pid])
            if await cursor.fetchone() != (0,):
                return


def test_a_waiting_taker_is_woken_by_the_commit(play):
    async def scene(q, own):
        jobs = await q.create_tube("jobs")
        taker = asyncio.create_task(jobs.take(timeout=60))
        await jobs.put("wake up", transaction=own)
        await own.commit()
        assert (await taker).data == "wake up"

    play(scene)


def test_a_cancelled_put_leaves_the_transaction_to_its_owner(play, url):
    async def scene(q, own):
        jobs = await q.create_tube("jobs")
        async with await psycopg.AsyncConnection.connect(Place.parse(url).conninfo) as other:
            await jobs.put("theirs", key="k", transaction=other)
            mine = asyncio.create_task(jobs.put("mine", key="k", transaction=own))
            async with await psycopg.AsyncConnection.connect(Place.parse(url).conninfo) as watcher:
                await until_blocked(watcher, own.info.backend_pid)
            mine.cancel()
            with pytest.raises(asyncio.CancelledError):
                await mine
            await own.rollback()
        await jobs.put("mine", transaction=own)
        await own.commit()
        assert await data(jobs) == ["theirs", "mine"]

    play(scene)
