"""A task as a context manager, and takes that are interrupted."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.support import postgres
from tests.support.engines import ENGINES, Bench, engine_parameters
from tests.support.watching import Events

import penstock
from penstock import LeaseLost, Reason, State
from penstock.engines import Engine
from penstock.engines.line import Taker
from penstock.testing import ManualClock, waiting


class Boom(Exception):
    """What the work of these tests raises."""


@pytest.fixture
def jobs(q):
    tube = q.create_tube("jobs", max_attempts=3)
    tube.put("x")
    return tube


def run(task, work):
    with task as held:
        work(held)


def raising(error):
    def work(task):
        raise error

    return work


def test_leaving_the_block_acks(jobs):
    with jobs.take() as task:
        assert (task.data, task.state) == ("x", State.TAKEN)
    assert (task.state, task.reason) == (State.DONE, Reason.SUCCESS)
    assert jobs.tasks() == []


@pytest.mark.parametrize("error", [Boom("boom"), SystemExit(3), AssertionError("no")])
def test_an_exception_fails_the_task_and_goes_on(jobs, error):
    with pytest.raises(type(error)) as caught:
        run(jobs.take(), raising(error))
    assert caught.value is error
    task = jobs.peek(1)
    assert (task.state, task.attempt, jobs.statistics().calls["fail"]) == (State.READY, 1, 1)
    assert task.error.startswith(f"{type(error).__name__}: {error}")
    assert "raise error" in task.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()])
def test_an_interruption_gives_the_task_back_with_its_attempt(jobs, error):
    with pytest.raises(type(error)):
        run(jobs.take(), raising(error))
    task = jobs.peek(1)
    assert (task.state, task.attempt, task.error) == (State.READY, 0, None)
    assert jobs.statistics().calls["release"] == 1


def test_the_last_failure_buries(q):
    jobs = q.create_tube("once")
    jobs.put(1)
    with pytest.raises(Boom):
        run(jobs.take(), raising(Boom("boom")))
    assert jobs.peek(1).reason == Reason.NO_ATTEMPTS


ENDS = {
    "ack": lambda task: task.ack(),
    "release": lambda task: task.release(),
    "bury": lambda task: task.bury(),
    "fail": lambda task: task.fail("no"),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_task_ended_inside_the_block_is_left_alone(jobs, end):
    events = Events(jobs)
    run(jobs.take(), ENDS[end])
    assert events.names == ["take", end]


@pytest.mark.parametrize("end", ENDS)
def test_an_exception_after_the_end_goes_on_alone(jobs, end):
    def work(task):
        ENDS[end](task)
        raise Boom

    with pytest.raises(Boom):
        run(jobs.take(), work)
    calls = jobs.statistics().calls
    assert sum(calls[name] for name in ENDS) == 1


def test_a_lease_lost_meanwhile_is_told_at_the_end(jobs):
    with pytest.raises(LeaseLost) as caught:
        run(jobs.take(), lambda task: jobs.snatch(1))
    assert caught.value.now == "waiting"
    assert jobs.peek(1).state == State.READY


def test_a_lease_lost_meanwhile_does_not_hide_the_exception(jobs):
    def work(task):
        jobs.delete(1)
        raise Boom("boom")

    with pytest.raises(Boom) as caught:
        run(jobs.take(), work)
    assert any("lease" in note for note in caught.value.__notes__)


def test_a_touch_inside_the_block_does_not_end_it(jobs):
    run(jobs.take(ttr=60), lambda task: task.touch(5))
    assert jobs.statistics().calls["ack"] == 1


def test_a_queue_is_a_context_manager(bench):
    with bench.connect() as q:
        jobs = q.create_tube("jobs")
        jobs.put(1)
        jobs.take()
    again = bench.connect().tube("jobs")
    assert again.peek(1).state == State.READY


def test_a_closed_queue_says_so(bench):
    q = bench.connect()
    jobs = q.create_tube("jobs")
    q.close()
    q.close()
    for call in (lambda: jobs.put(1), lambda: jobs.take(), lambda: jobs.take(None), lambda: q.tubes()):
        with pytest.raises(penstock.PenstockError, match="closed"):
            call()


# -- interrupted takes ---------------------------------------------------------------------------------


@pytest.fixture(params=engine_parameters())
def blocking(request, tmp_path):
    """A queue in the blocking colour, with an empty tube."""
    with postgres.warmth():
        bench = Bench(request.param, "blocking", tmp_path, ManualClock())
    q = bench.connect()
    q.create_tube("jobs")
    yield q
    bench.close()


@pytest.mark.parametrize("granted", [True, False])
def test_ctrl_c_in_a_waiting_take_loses_nothing(blocking, monkeypatch, granted):  # case 341
    jobs = blocking.tube("jobs")

    def interrupted(self, seconds):
        if granted:
            jobs.put("x")
            assert jobs.peek(1).state == State.TAKEN
        raise KeyboardInterrupt

    monkeypatch.setattr(Taker, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jobs.take(None)
    assert waiting(blocking) == 0
    assert [(task.state, task.attempt) for task in jobs.tasks()] == ([(State.READY, 0)] if granted else [])


@pytest.fixture(params=engine_parameters())
def loop(request, tmp_path):
    """Run a coroutine function with a queue in the async colour."""
    engine, clock = request.param, ManualClock()

    async def main(work):
        with postgres.warmth():
            url = engine.url(tmp_path, clock)
        async with await penstock.aconnect(url, clock=clock, durability="relaxed") as q:
            await work(q, await q.create_tube("jobs"))
        engine.clean(url)

    return lambda work: asyncio.run(main(work))


async def in_line(q, coroutine):
    """The task of a call that stands in line."""
    task = asyncio.ensure_future(coroutine)
    while waiting(q) == 0:
        await asyncio.sleep(0)
    return task


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_take_takes_nothing(loop):  # case 341
    async def work(q, jobs):
        await cancelled(await in_line(q, jobs.take(None)))
        await jobs.put("x")
        assert ((await jobs.peek(1)).state, waiting(q)) == (State.READY, 0)

    loop(work)


def blocking_twin(jobs):
    """The same tube for calls that do not let the loop run."""
    queue = jobs._queue
    return penstock.Tube(penstock.Queue(queue._engine.engine, queue._session), jobs._config)


@pytest.mark.parametrize("steps", range(8))
def test_a_cancelled_take_that_was_granted_is_released_with_refund(loop, steps):  # case 341
    async def work(q, jobs):
        taker = await in_line(q, jobs.take(None))
        blocking_twin(jobs).put("x")
        for _ in range(steps):
            await asyncio.sleep(0)
        taker.cancel()
        (granted,) = await asyncio.gather(taker, return_exceptions=True)
        task = await jobs.peek(1)
        if steps == 0:
            assert isinstance(granted, asyncio.CancelledError)
        if isinstance(granted, asyncio.CancelledError):
            assert (task.state, task.attempt) == (State.READY, 0)
        else:
            assert (await granted.ack()).attempt == 1

    loop(work)


# A remote engine needs no thread on the way into a line, so nobody can be cancelled there.
@pytest.mark.parametrize(
    "loop", engine_parameters(engine for engine in ENGINES if engine.name not in ("remote", "grpc")), indirect=True
)
def test_a_take_cancelled_on_its_way_into_the_line_keeps_nothing(loop, monkeypatch):  # case 341
    entered, gate, left, enlist = threading.Event(), threading.Event(), threading.Event(), Engine.enlist

    def slow(engine, waiter):
        entered.set()
        gate.wait()
        enlist(engine, waiter)
        left.set()

    monkeypatch.setattr(Engine, "enlist", slow)

    async def work(q, jobs):
        taker = asyncio.ensure_future(jobs.take(None))
        await asyncio.to_thread(entered.wait)
        taker.cancel()
        for _ in range(20):
            await jobs.put("x", put_id="p")
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await taker
        await asyncio.to_thread(left.wait)
        task = await jobs.peek(1)
        assert (waiting(q), task.state, task.attempt) == (0, State.READY, 0)

    loop(work)
