"""The awaiting twin: cancelled calls, tasks inside transactions, callbacks in the loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import threading

import pytest
from tests.support import postgres
from tests.support.engines import engine_parameters

import penstock
from penstock import State, UsageError
from penstock.engines import bridge
from penstock.testing import ManualClock, waiting

PATIENCE = 90
"""Seconds after which something hangs."""


@pytest.fixture(params=engine_parameters())
def url(request, tmp_path, clock):
    with postgres.warmth():
        url = request.param.url(tmp_path, clock)
    yield url
    request.param.clean(url)


@pytest.fixture
def connect(url, clock):
    return lambda: penstock.aconnect(url, clock=clock, durability="relaxed")


@pytest.fixture
def loop(connect):
    """Run a coroutine function with a queue and an empty tube."""

    async def main(work):
        async with await connect() as q:
            await asyncio.wait_for(work(q, await q.create_tube("jobs")), PATIENCE)

    return lambda work: asyncio.run(main(work))


async def steps(number):
    for _ in range(number):
        await asyncio.sleep(0)


async def settled(q):
    """Nothing that cancelled calls had asked for is on its way any more."""
    await q.state()
    while q._engine._give_backs:
        await asyncio.sleep(0)


# -- a transaction whose caller is cancelled ------------------------------------------------------------


async def enter(q, body=None):
    async with q.transaction() as tx:
        if body is not None:
            await body(tx)


@pytest.mark.parametrize("number", [1, 2, 50])
def test_a_task_that_waits_for_a_transaction_can_be_cancelled(loop, number):
    async def work(q, jobs):
        async with q.transaction() as tx:
            entering = asyncio.create_task(enter(q), context=contextvars.Context())
            await steps(number)
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            await jobs.put(1, transaction=tx)
        await enter(q, lambda tx: jobs.put(2, transaction=tx))
        assert [task.data for task in await jobs.tasks()] == [1, 2]

    loop(work)


@pytest.mark.parametrize("number", range(12))
def test_a_transaction_that_is_cancelled_at_any_step_is_over(loop, number):
    async def work(q, jobs):
        task = asyncio.create_task(enter(q, lambda tx: jobs.put_many([1, 2], transaction=tx)))
        await steps(number)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await jobs.statistics()).tasks["total"] in (0, 2)

    loop(work)


def test_a_transaction_cancelled_when_it_was_just_entered_is_left(loop, monkeypatch):
    wrap = asyncio.wrap_future

    def cancelling(future):
        wrapped = wrap(future)
        wrapped.add_done_callback(lambda _: task.cancel())
        return wrapped

    async def work(q, jobs):
        nonlocal task
        monkeypatch.setattr(bridge.asyncio, "wrap_future", cancelling)
        task = asyncio.create_task(enter(q, lambda tx: jobs.put(1, transaction=tx)))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await jobs.tasks() == []

    task = None
    loop(work)


def test_a_cancelled_commit_is_awaited(loop):
    async def work(q, jobs):
        async def body(tx):
            await jobs.put(1, transaction=tx)
            asyncio.get_running_loop().call_soon(task.cancel)  # when the commit is on its way

        task = asyncio.create_task(enter(q, body))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [task.data for task in await jobs.tasks()] == [1]

    loop(work)


# -- calls inside a transaction -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda q, jobs: jobs.put(1),
        lambda q, jobs: jobs.put(1, timeout=5),
        lambda q, jobs: jobs.put_many([1], timeout=None),
        lambda q, jobs: jobs.take(timeout=1),
        lambda q, jobs: jobs.take_many(2, timeout=None),
        lambda q, jobs: jobs.wait(1, timeout=1),
        lambda q, jobs: jobs.result(1),
        lambda q, jobs: enter(q),
        lambda q, jobs: q.close(),
    ],
    ids=["put", "put-timeout", "put_many", "take", "take_many", "wait", "result", "transaction", "close"],
)
def test_a_call_that_would_wait_for_its_own_transaction_is_refused(loop, call):
    async def work(q, jobs):
        await jobs.put(0)
        async with q.transaction() as tx:
            with pytest.raises(UsageError, match="transaction="):
                await call(q, jobs)
            await jobs.put(2, transaction=tx)
        assert [task.data for task in await jobs.tasks()] == [0, 2]

    loop(work)


def test_transactions_of_two_stores_bar_both(loop):
    async def work(q, jobs):
        async with await penstock.aconnect("memory:") as other, q.transaction():
            async with other.transaction():
                for queue in (q, other):
                    with pytest.raises(UsageError, match="transaction="):
                        await queue.tubes()
            assert await other.tubes() == []
            with pytest.raises(UsageError, match="transaction="):
                await q.tubes()

    loop(work)


def test_a_task_started_inside_a_transaction_may_use_the_queue_after_it(loop):
    async def work(q, jobs):
        over = asyncio.Event()

        async def child():
            with pytest.raises(UsageError, match="transaction="):
                await jobs.put(1)
            await over.wait()
            await enter(q)
            return await jobs.put(2)

        async with q.transaction():
            task = asyncio.create_task(child())
            await steps(3)
        over.set()
        assert (await task).id == 1

    loop(work)


def test_a_call_that_comes_while_its_transaction_ends_is_too_late(loop):
    async def work(q, jobs):
        gate = threading.Event()

        async def late(tx):
            try:
                with pytest.raises(UsageError, match="ended"):
                    await jobs.put(2, transaction=tx)
            finally:
                gate.set()

        async with q.transaction() as tx:
            await jobs.put(1, transaction=tx)
            tx._thread.submit(gate.wait)  # the commit has to wait for this
            task = asyncio.create_task(late(tx))  # starts when this one waits for the commit
        await task
        assert [task.data for task in await jobs.tasks()] == [1]

    loop(work)


# -- takes that are cancelled ---------------------------------------------------------------------------


def cancel_at_delivery(monkeypatch, q, task):
    """Cancel a task when its answer is there and it has not run since."""
    deliver = q._engine._deliver

    def delivering(group, answers):
        deliver(group, answers)
        monkeypatch.undo()
        task.cancel()

    monkeypatch.setattr(q._engine, "_deliver", delivering)


def test_a_take_cancelled_when_its_answer_is_there_is_released_with_refund(loop, monkeypatch):  # case 341
    async def work(q, jobs):
        await jobs.put_many([1, 2])
        take = asyncio.create_task(jobs.take_many(2))
        cancel_at_delivery(monkeypatch, q, take)
        with pytest.raises(asyncio.CancelledError):
            await take
        await settled(q)
        assert [(task.state, task.attempt) for task in await jobs.tasks()] == [(State.READY, 0)] * 2

    loop(work)


def test_a_put_cancelled_when_its_answer_is_there_stays(loop, monkeypatch):
    async def work(q, jobs):
        put = asyncio.create_task(jobs.put(1))
        cancel_at_delivery(monkeypatch, q, put)
        with pytest.raises(asyncio.CancelledError):
            await put
        assert [task.data for task in await jobs.tasks()] == [1]

    loop(work)


def test_a_call_cancelled_when_its_refusal_is_there_is_cancelled(loop, monkeypatch):
    async def work(q, jobs):
        peek = asyncio.create_task(jobs.peek(1))
        cancel_at_delivery(monkeypatch, q, peek)
        with pytest.raises(asyncio.CancelledError):
            await peek

    loop(work)


@pytest.mark.parametrize("number", range(8))
def test_a_cancelled_take_is_refunded_by_a_close_that_follows(connect, number):
    async def work():
        async with await connect() as kept:
            jobs = await kept.create_tube("jobs")
            await jobs.put(1)
            async with await connect() as q:
                take = asyncio.create_task((await q.tube("jobs")).take())
                await steps(number)
                take.cancel()
                (granted,) = await asyncio.gather(take, return_exceptions=True)
            task = await jobs.peek(1)
            lost = isinstance(granted, asyncio.CancelledError)
            assert (task.state, task.attempt) == (State.READY, 0 if lost else 1)

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_cancellations_leaves_nothing_taken(loop, seed):  # case 341
    async def work(q, jobs):
        dice, cancelled = random.Random(seed), 0
        while cancelled < 300:
            calls = [jobs.take(), jobs.take(None), jobs.take_many(3), jobs.take_many(2, None), jobs.put(1)]
            calls += [jobs.put(1, timeout=None), jobs.put_many([1, 2])]
            running = [asyncio.create_task(call) for call in dice.sample(calls, len(calls))]
            for task in running:
                await steps(dice.randrange(4))
                task.cancel()
            for answer in await asyncio.gather(*running, return_exceptions=True):
                cancelled += isinstance(answer, asyncio.CancelledError)
                await acked(answer)
        await settled(q)
        assert waiting(q) == 0
        left = await jobs.tasks(limit=10_000)
        assert {(task.state, task.attempt) for task in left} <= {(State.READY, 0)}

    async def acked(answer):
        for task in answer if isinstance(answer, list) else [answer]:
            if isinstance(task, penstock.AsyncTask) and task.state == State.TAKEN:
                await task.ack()

    loop(work)


def test_a_cancelled_connect_leaves_nothing_open(connect, monkeypatch):
    entered, gate, engines, opening = threading.Event(), threading.Event(), [], bridge.open_engine

    def slow(*args):
        engines.append(opening(*args))
        entered.set()
        gate.wait()
        return engines[0]

    monkeypatch.setattr(bridge, "open_engine", slow)

    async def work():
        task = asyncio.ensure_future(connect())
        await asyncio.to_thread(entered.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        while engines[0].store.users:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


# -- callbacks ------------------------------------------------------------------------------------------


def test_a_callback_runs_in_the_loop_before_its_call_returns(loop):
    async def work(q, jobs):
        await jobs.on_task_change(lambda task, event: seen.append((event, threading.get_ident())))
        await jobs.put(1)
        assert events() == ["put"]
        await (await jobs.take(None)).ack()
        async with q.transaction() as tx:
            await jobs.put(2, transaction=tx)
        assert events() == ["put", "take", "ack", "put"]
        assert {thread for _, thread in seen} == {threading.get_ident()}

    def events():
        return [event for event, _ in seen]

    seen = []
    loop(work)


def test_a_callback_may_be_an_async_function_that_uses_the_queue(loop):
    async def work(q, jobs):
        async def log_it(task, event):
            await log.put([task.id, event])

        log = await q.create_tube("log")
        await jobs.on_task_change(log_it)
        await jobs.put("x")
        heard = await log.take(None)
        assert heard.data == [1, "put"]
        assert await jobs.on_task_change(None) is log_it

    loop(work)


def test_a_callback_may_start_tasks(loop):
    async def work(q, jobs):
        log = await q.create_tube("log")
        started = []
        await jobs.on_task_change(lambda task, event: started.append(asyncio.create_task(log.put(event))))
        await jobs.put("x")
        assert [task.data for task in await asyncio.gather(*started)] == ["put"]

    loop(work)


def test_an_error_in_an_async_callback_is_logged(loop, caplog):  # case 127
    async def work(q, jobs):
        async def broken(task, event):
            raise ValueError(f"cannot stand {event}")

        await jobs.on_task_change(broken)
        assert (await jobs.put("x")).state == State.READY
        while not said():
            await asyncio.sleep(0)

    def said():
        return [record for record in caplog.records if record.name == "penstock" and "'jobs'" in record.message]

    loop(work)
    (entry,) = said()
    assert (entry.levelno, entry.exc_info[0]) == (logging.ERROR, ValueError)


def test_a_callback_of_a_loop_that_is_gone_harms_nobody(url):
    clock = ManualClock()

    async def listen():
        async with await penstock.aconnect(url, clock=clock) as q:
            await (await q.create_tube("jobs")).on_task_change(print)

    with penstock.connect(url, clock=clock) as kept:
        asyncio.run(listen())
        assert kept.tube("jobs").put(1).state == State.READY
