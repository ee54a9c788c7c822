"""Handlers and the leases of their tasks: limits, cancelling, leases that are lost, and keeping them alive."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.blocking import unwrap
from tests.worker.bench import Bench, Working, until, until_state, work

import penstock
from penstock import testing
from penstock.handlers import DEFAULTS
from penstock.worker import slots


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look at what runs many times a second."""
    monkeypatch.setattr(slots, "LOOK", 0.05)


@pytest.fixture
def q(bench: Bench) -> Any:
    """A queue whose sessions are kept alive every tenth of a second."""
    return bench.connect(session_ttl=0.3)


@pytest.fixture
def quick_q() -> Iterator[Any]:
    """The same in memory, for what the engine has no part in."""
    with penstock.connect("memory:", session_ttl=0.3) as queue:
        yield queue


class Told:
    """What runs were told, in their order."""

    def __init__(self) -> None:
        self.why: list[str | None] = []
        self.started = threading.Event()

    def until_told(self, run: penstock.Run) -> None:
        self.started.set()
        assert run.wait(30)
        self.why.append(run.why)

    async def until_cancelled(self, run: penstock.Run) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.why.append(run.why)
            raise


def defined(q: Any, colour: str, told: Told, **options: Any) -> Any:
    """A handler that runs until it is told to stop, in the loop or in a thread."""
    if colour == "async":

        @q.handler("jobs", **options)
        async def job(n: int, run: penstock.Run) -> None:
            await told.until_cancelled(run)
    else:

        @q.handler("jobs", **options)
        def job(n: int, run: penstock.Run) -> None:
            told.until_told(run)

    return job


both = pytest.mark.parametrize("colour", ["async", "thread"])

# -- limits ----------------------------------------------------------------------------------------------


@both
def test_a_run_over_its_limit_is_told_and_tried_again_until_it_is_lost(q: Any, colour: str) -> None:  # case 288
    told = Told()
    job = defined(q, colour, told, attempt_limit=0.1, max_attempts=2)
    task = job.put(1)
    tally = work(q)
    assert told.why == ["late", "late"]
    found = q.tube("jobs").peek(task.id)
    assert (found.state, found.reason, found.attempt) == ("buried", "lost", 2)
    assert (tally.ok, tally.trouble, tally.lost) == (0, 2, 2)


def test_what_an_attempt_over_its_limit_returns_is_refused(
    q: Any, caplog: pytest.LogCaptureFixture
) -> None:  # case 290
    go_on = threading.Event()
    second = threading.Event()

    @q.handler("jobs", attempt_limit=0.2, keep=True)
    def job(n: int, run: penstock.Run) -> str:
        if run.attempt == 1:
            assert run.wait(30)
            assert second.wait(30)
            return "late"
        second.set()
        until(lambda: "came too late" in caplog.text)
        go_on.set()
        return "in time"

    task = job.put(1)
    with Working(q):
        assert q.tube("jobs").result(task.id, timeout=30) == "in time"
    assert go_on.is_set()


def test_a_handler_that_says_nothing_about_time_has_a_limit(quick_q: Any) -> None:  # case 291
    @quick_q.handler("jobs", attempt_limit=0)
    async def job(n: int) -> None: ...

    @quick_q.handler("others")
    async def other(n: int) -> None: ...

    job.put(1), other.put(1)
    assert work(quick_q).ok == 2
    assert quick_q.tube("jobs").options["ttr"] == quick_q.tube("others").options["ttr"] == DEFAULTS["ttr"]


def test_a_handler_that_asks_for_more_time_has_it(q: Any) -> None:
    @q.handler("jobs", attempt_limit=0.4, max_attempts=1, keep=True)
    def job(n: int, run: penstock.Run) -> bool:
        first = run.deadline
        run.task.touch(60)
        assert first is not None and run.deadline is not None and run.time_left is not None
        assert run.deadline > first + 59
        assert run.time_left > 50
        told = run.wait(first - time.monotonic() + 0.2)
        assert not told
        return run.cancelled

    task = job.put(1)
    with Working(q):
        assert q.tube("jobs").result(task.id, timeout=30) is False


def test_the_limit_is_enforced_while_the_worker_drains(quick_q: Any) -> None:
    told = Told()
    job = defined(quick_q, "thread", told, attempt_limit=0.3)
    job.put(1)
    with Working(quick_q, grace=30) as working:
        assert told.started.wait(30)
        working.stop()
    assert told.why == ["late"]
    assert working.tally.ok == 0


def test_a_task_that_waited_for_a_slot_beyond_its_limit_is_not_started(quick_q: Any) -> None:
    started: list[int] = []

    @quick_q.handler("jobs", attempt_limit=0.2, max_attempts=1)
    async def job(n: int) -> None:
        started.append(n)
        if n == 1:  # a bad one: nothing else happens in the loop
            threading.Event().wait(0.5)

    job.put(0)
    with Working(quick_q, concurrency=1) as working:
        until(lambda: working.tally.ok == 1)
        job.put_many([1, 2, 3])
        until(lambda: quick_q.tube("jobs").statistics().tasks["taken"] == 0)
    assert 1 in started


# -- leases that are lost --------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("loss", ["snatch", "delete"])
def test_a_handler_whose_lease_is_taken_away_is_told(q: Any, colour: str, loss: str) -> None:  # case 337
    told = Told()
    job = defined(q, colour, told)
    task = job.put(1)
    tube = q.tube("jobs")
    with Working(q) as working:
        assert told.started.wait(30)
        if loss == "snatch":
            tube.snatch(task.id, delay=60)
        else:
            tube.delete(task.id)
        until(lambda: told.why == ["lost"])
        until(lambda: working.tally.busy == 0)
    assert (working.tally.lost, working.tally.ok) == (1, 0)


@both
def test_a_worker_whose_session_died_tells_its_handlers_and_works_on(q: Any, colour: str) -> None:
    told = Told()
    job = defined(q, colour, told)
    job.put(1)
    with Working(q) as working:
        assert told.started.wait(30)
        told.started.clear()
        queue = working.worker._queue
        assert queue is not None
        testing.lose(queue)
        until(lambda: told.why == ["lost"])
        assert told.started.wait(30)  # the same task, once more
    assert told.why[0] == "lost"


def test_a_task_that_its_handler_has_ended_is_not_taken_for_lost(q: Any, kept: Any) -> None:
    ended = threading.Event()
    looked = threading.Event()

    @q.handler("jobs", attempt_limit=0.3)
    def job(n: int, run: penstock.Run) -> None:
        run.task.ack()
        ended.set()
        assert looked.wait(30)
        assert not run.cancelled

    job.put(1)
    with Working(q) as working:
        assert ended.wait(30)
        assert kept() == 0
        (run,) = working.worker._slots.running  # type: ignore[union-attr]
        until(lambda: not run.time_left)
        kept()
        looked.set()
        until(lambda: working.tally.busy == 0)
    assert (working.tally.ok, working.tally.lost) == (1, 0)


# -- cancelling ------------------------------------------------------------------------------------------


@both
def test_cancelling_a_running_task_by_its_key_ends_it(q: Any, colour: str) -> None:
    told = Told()

    @q.middleware
    async def refuse(run: penstock.Run, go_on: Any) -> Any:
        try:
            return await go_on()
        finally:
            run.check()

    job = defined(q, colour, told, keep_failed=True)
    task = job.put(1, key="k")
    with Working(q):
        assert told.started.wait(30)
        assert q.tube("jobs").cancel(key="k").cancel_asked
        until(lambda: told.why == ["cancelled"])
        found = until_state(q.tube("jobs"), task.id, "done")
    assert found.reason == "cancelled"


def test_a_handler_may_finish_although_it_was_cancelled(quick_q: Any) -> None:
    told = Told()
    job = defined(quick_q, "thread", told, keep=True)
    task = job.put(1)
    with Working(quick_q):
        assert told.started.wait(30)
        quick_q.tube("jobs").cancel(task.id)
        found = until_state(quick_q.tube("jobs"), task.id, "done")
    assert (told.why, found.reason) == (["cancelled"], "success")


# -- keeping alive ---------------------------------------------------------------------------------------


@pytest.fixture
def kept(q: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Wait until sessions have been kept alive some times more: longer than they live otherwise."""
    engine = unwrap(q)._engine
    store = getattr(engine, "engine", engine).store
    count = 0
    keep = store._keep_alive

    def counted(session: Any) -> None:
        nonlocal count
        keep(session)
        count += 1

    monkeypatch.setattr(store, "_keep_alive", counted)

    def wait() -> int:
        before = count
        until(lambda: count >= before + 10)  # three sessions, each three times a life
        return int(aside.tube("jobs").statistics().tasks["taken"])

    with penstock.connect(bench.url, session_ttl=0.3) as aside:
        yield wait


def test_leases_live_while_a_bad_handler_blocks_the_loop(q: Any, kept: Any) -> None:
    inside, go_on = threading.Event(), threading.Event()

    @q.handler("jobs")
    async def job(n: int) -> None:
        inside.set()
        go_on.wait(30)

    job.put(1)
    with Working(q) as working:
        assert inside.wait(30)
        assert kept() == 1
        go_on.set()
        until(lambda: working.tally.ok == 1)


@pytest.mark.parametrize("where", ["C", "Python"])
def test_leases_live_while_a_handler_computes(q: Any, kept: Any, where: str) -> None:
    inside, done = threading.Event(), threading.Event()

    @q.handler("jobs")
    def job(n: int) -> None:
        inside.set()
        while not done.is_set():
            if where == "C":
                hashlib.pbkdf2_hmac("sha256", b"x", b"y", 100_000)
            else:
                sum(range(1000))

    job.put(1)
    with Working(q) as working:
        assert inside.wait(30)
        assert kept() == 1
        done.set()
        until(lambda: working.tally.ok == 1)


# -- how handlers end ------------------------------------------------------------------------------------


class Fatal(BaseException):
    """What is no Exception."""


@both
@pytest.mark.parametrize("error", [Fatal, SystemExit, GeneratorExit])
def test_whatever_a_handler_raises_fails_its_task(quick_q: Any, colour: str, error: type[BaseException]) -> None:
    if colour == "async":

        @quick_q.handler("jobs", max_attempts=1)
        async def job(n: int) -> None:
            raise error
    else:

        @quick_q.handler("jobs", max_attempts=1)
        def job(n: int) -> None:
            raise error

    task = job.put(1)
    with Working(quick_q) as working:
        found = until_state(quick_q.tube("jobs"), task.id, "buried")
        assert error.__name__ in found.error
        until(lambda: not working.tally.busy)
    assert working.tally.trouble == 1


def test_a_handler_that_lets_its_own_cancelled_error_out_fails(quick_q: Any) -> None:
    @quick_q.handler("jobs", max_attempts=1)
    async def job(n: int) -> None:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner

    task = job.put(1)
    work(quick_q)
    found = quick_q.tube("jobs").peek(task.id)
    assert (found.state, found.reason) == ("buried", "no_attempts")


def test_a_handler_that_cancels_itself_fails(memory: Any) -> None:
    @memory.handler("jobs", max_attempts=2, retry=0)
    async def job(n: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    task = job.put(1)
    with Working(memory) as working:
        until(lambda: working.tally.trouble + working.tally.given_back >= 2)
    found = memory.tube("jobs").peek(task.id)
    assert (found.state, found.reason, working.tally.given_back) == ("buried", "no_attempts", 0)


def test_errors_and_reasons_of_any_text_are_stored(q: Any) -> None:
    @q.handler("jobs", max_attempts=1)
    async def job(n: int) -> None:
        if n == 0:
            raise ValueError("\0 \ud800 " + "x" * 100_000)
        if n == 1:
            raise penstock.Bury(5)  # type: ignore[arg-type]
        if n == 2:
            raise penstock.Release("soon")  # type: ignore[arg-type]
        raise penstock.Abort("\0 \ud800")

    tasks = job.put_many(range(4))
    work(q)
    found = [q.tube("jobs").peek(task.id) for task in tasks]
    assert [task.state for task in found] == ["buried"] * 4
    assert all(task.error for task in found)
