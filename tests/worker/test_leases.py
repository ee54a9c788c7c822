"""Handlers and the leases of their tasks: limits, cancelling, leases that are lost, and keeping them alive."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.blocking import unwrap
from tests.worker.bench import PATIENCE, Bench, Later, Still, Working, until, until_state, work
from tests.worker.conftest import on_both, on_each

import penstock
from penstock import testing
from penstock.handlers import DEFAULTS
from penstock.model.duration import SECOND
from penstock.model.session import DEFAULT_TTL
from penstock.testing import ManualClock
from penstock.worker import slots

LIMIT = 600.0
"""Seconds that a run may last; over when a test says so."""
SESSION = DEFAULT_TTL / SECOND


@pytest.fixture
def q(still: Still) -> Any:
    """A queue whose time stands still: no lease and no session ends because the machine is slow."""
    return still.connect()


@pytest.fixture
def looked(later: Later, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Wait until workers have looked at what runs: all that they then know they have told."""
    look = slots.Slots._look
    looks = 0

    def seen_look(*args: Any) -> None:
        nonlocal looks
        look(*args)
        looks += 1

    monkeypatch.setattr(slots.Slots, "_look", seen_look)

    def wait() -> None:
        before = looks
        until(lambda: looks >= before + 2)

    return wait


class Told:
    """What runs were told, in their order."""

    def __init__(self) -> None:
        self.why: list[str | None] = []
        self.started = threading.Event()

    def until_told(self, run: penstock.Run) -> None:
        self.started.set()
        assert run.wait(PATIENCE)
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
def test_a_run_over_its_limit_is_told_and_tried_again_until_it_is_lost(
    q: Any, still: Still, later: Later, colour: str
) -> None:  # case 288
    told = Told()
    job = defined(q, colour, told, attempt_limit=LIMIT, max_attempts=2)
    task = job.put(1)
    with Working(q) as working:
        for number in (1, 2):
            assert told.started.wait(PATIENCE)
            told.started.clear()
            later(LIMIT)
            until(lambda number=number: working.tally.trouble == number)
            still.clock.advance(LIMIT)
    assert told.why == ["late", "late"]
    found = q.tube("jobs").peek(task.id)
    assert (found.state, found.reason, found.attempt) == ("buried", "lost", 2)
    assert (working.tally.ok, working.tally.trouble, working.tally.lost) == (0, 2, 2)


@on_both
def test_what_an_attempt_over_its_limit_returns_is_refused(
    q: Any, still: Still, later: Later, caplog: pytest.LogCaptureFixture
) -> None:  # case 290
    first, second = threading.Event(), threading.Event()

    @q.handler("jobs", attempt_limit=LIMIT, keep=True)
    def job(n: int, run: penstock.Run) -> str:
        if run.attempt == 1:
            first.set()
            assert run.wait(PATIENCE)
            assert second.wait(PATIENCE)
            return "late"
        second.set()
        until(lambda: "came too late" in caplog.text)
        return "in time"

    task = job.put(1)
    with Working(q) as working:
        assert first.wait(PATIENCE)
        later(LIMIT)
        until(lambda: working.tally.lost)
        still.clock.advance(LIMIT)
        assert until_state(q.tube("jobs"), task.id, "done").result == "in time"


def test_a_handler_that_says_nothing_about_time_has_a_limit(still_memory: Any) -> None:  # case 291
    @still_memory.handler("jobs", attempt_limit=0)
    async def job(n: int) -> None: ...

    @still_memory.handler("others")
    async def other(n: int) -> None: ...

    job.put(1), other.put(1)
    assert work(still_memory).ok == 2
    assert still_memory.tube("jobs").options["ttr"] == still_memory.tube("others").options["ttr"] == DEFAULTS["ttr"]


@both
def test_a_handler_that_asks_for_more_time_has_it(q: Any, later: Later, looked: Any, colour: str) -> None:
    touched, go_on = threading.Event(), threading.Event()

    def touch(run: penstock.Run) -> None:
        first = run.deadline
        run.task.touch(10 * LIMIT)
        assert first is not None and run.deadline is not None and run.time_left is not None
        assert run.deadline >= first + 10 * LIMIT - 1
        assert run.time_left > 9 * LIMIT
        touched.set()

    @q.handler("thread", attempt_limit=LIMIT, max_attempts=1)
    def job(n: int, run: penstock.Run) -> None:
        touch(run)
        assert go_on.wait(PATIENCE)

    @q.handler("async", attempt_limit=LIMIT, max_attempts=1)
    async def in_loop(n: int, run: penstock.Run) -> None:
        touch(run)
        await asyncio.to_thread(go_on.wait, PATIENCE)

    (job if colour == "thread" else in_loop).put(1)
    with Working(q) as working:
        assert touched.wait(PATIENCE)
        later(2 * LIMIT)
        looked()
        go_on.set()
        until(lambda: working.tally.ok or working.tally.trouble)
    assert (working.tally.ok, working.tally.lost) == (1, 0)


def test_the_limit_is_enforced_while_the_worker_drains(still_memory: Any, later: Later) -> None:
    told = Told()
    job = defined(still_memory, "thread", told, attempt_limit=LIMIT)
    job.put(1)
    with Working(still_memory) as working:
        assert told.started.wait(PATIENCE)
        working.worker.stop()
        until(lambda: working.worker._slots._stopped)  # type: ignore[union-attr]
        later(LIMIT)
        working.ended()
    assert told.why == ["late"]
    assert working.tally.ok == 0


def test_a_task_that_waited_for_a_slot_beyond_its_limit_is_not_started(
    still_memory: Any, clock: ManualClock, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "AHEAD", 1e6)
    monkeypatch.setattr(slots, "LOOK", 1e6)
    started: list[int] = []
    waited: list[int] = []

    @still_memory.handler("jobs", attempt_limit=LIMIT, max_attempts=1)
    async def job(n: int) -> None:
        started.append(n)
        buffer = working.worker._slots._buffer  # type: ignore[union-attr]
        if not waited and len(buffer) >= 2:  # a bad one: nothing else happens in the loop for a while
            waited.extend(task.data for task, _, _ in buffer)
            later(LIMIT)

    with Working(still_memory, concurrency=1, prefetch=4) as working:
        job.put_many(range(30))  # not before: the handler uses `working`
        until(lambda: waited and working.tally.ok == 30 - len(waited))
        until(lambda: still_memory.tube("jobs").statistics().tasks["total"] == len(waited))
        clock.advance(LIMIT)
    assert not set(waited) & set(started)
    assert working.tally.lost == len(waited) >= 2
    assert [task.data for task in still_memory.tube("jobs").tasks() if task.reason == "lost"] == waited


# -- leases that are lost --------------------------------------------------------------------------------


@on_both
@both
@pytest.mark.parametrize("loss", ["snatch", "delete"])
def test_a_handler_whose_lease_is_taken_away_is_told(q: Any, later: Later, colour: str, loss: str) -> None:  # case 337
    told = Told()
    job = defined(q, colour, told)
    task = job.put(1)
    tube = q.tube("jobs")
    with Working(q) as working:
        assert told.started.wait(PATIENCE)
        if loss == "snatch":
            tube.snatch(task.id, delay=60)
        else:
            tube.delete(task.id)
        later(SESSION)
        until(lambda: told.why == ["lost"])
        until(lambda: working.tally.busy == 0)
    assert (working.tally.lost, working.tally.ok) == (1, 0)


@on_each
@both
def test_a_worker_whose_session_died_tells_its_handlers_and_works_on(
    q: Any, still: Still, later: Later, colour: str
) -> None:
    told = Told()
    job = defined(q, colour, told)
    job.put(1)
    with Working(q) as working:
        assert told.started.wait(PATIENCE)
        told.started.clear()
        queue = working.worker._queue
        assert queue is not None
        testing.lose(queue)
        still.clock.advance(SESSION + 1)
        later(SESSION)
        until(lambda: told.why[:1] == ["lost"])
        assert told.started.wait(PATIENCE)  # the same task, once more
        working.stop(now=True)


def test_a_task_that_its_handler_has_ended_is_not_taken_for_lost(q: Any, later: Later, looked: Any) -> None:
    ended, go_on = threading.Event(), threading.Event()

    @q.handler("jobs", attempt_limit=LIMIT)
    def job(n: int, run: penstock.Run) -> None:
        run.task.ack()
        ended.set()
        assert go_on.wait(PATIENCE)
        assert not run.cancelled

    job.put(1)
    with Working(q) as working:
        assert ended.wait(PATIENCE)
        assert q.tube("jobs").statistics().tasks["taken"] == 0
        for seconds in (SESSION, LIMIT):
            later(seconds)
            looked()
        go_on.set()
        until(lambda: working.tally.busy == 0)
    assert (working.tally.ok, working.tally.lost) == (1, 0)


# -- cancelling ------------------------------------------------------------------------------------------


@on_each
@both
def test_cancelling_a_running_task_by_its_key_ends_it(q: Any, still: Still, later: Later, colour: str) -> None:
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
        assert told.started.wait(PATIENCE)
        assert q.tube("jobs").cancel(key="k").cancel_asked
        still.clock.advance(1)  # sessions are kept alive, and told
        until(lambda: told.why == ["cancelled"])
        found = until_state(q.tube("jobs"), task.id, "done")
    assert found.reason == "cancelled"


def test_a_handler_may_finish_although_it_was_cancelled(still_memory: Any, clock: ManualClock, later: Later) -> None:
    told = Told()
    job = defined(still_memory, "thread", told, keep=True)
    task = job.put(1)
    with Working(still_memory):
        assert told.started.wait(PATIENCE)
        still_memory.tube("jobs").cancel(task.id)
        clock.advance(1)
        found = until_state(still_memory.tube("jobs"), task.id, "done")
    assert (told.why, found.reason) == (["cancelled"], "success")


# -- keeping alive ---------------------------------------------------------------------------------------


@pytest.fixture
def moving(bench: Bench) -> Any:
    """A queue in whose store time goes on: sessions are kept alive by a thread."""
    return bench.connect()


@pytest.fixture
def kept(moving: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a session be due to be kept alive, again and again, and wait until it has been."""
    engine = unwrap(moving)._engine
    store = getattr(engine, "engine", engine).store
    counts: Counter[str] = Counter()
    keep = store._keep_alive

    def counted(sessions: Any) -> None:
        keep(sessions)
        counts.update(session.uuid for session in sessions)

    monkeypatch.setattr(store, "_keep_alive", counted)

    def wait(uuid: str) -> None:
        for number in range(1, 4):
            store._alive_at[uuid] = 0
            store._next_alive = 0
            store._keeper.poke()
            until(lambda number=number: counts[uuid] >= number)

    return wait


def still_taken(moving: Any, working: Working, kept: Any) -> int:
    """How many tasks are taken after the session of the worker had to be kept alive."""
    queue = working.worker._queue
    assert queue is not None
    kept(queue._session.uuid)
    return int(queue.tube("jobs").statistics().tasks["taken"])


@on_both
def test_leases_live_while_a_bad_handler_blocks_the_loop(moving: Any, kept: Any) -> None:
    inside, go_on = threading.Event(), threading.Event()

    @moving.handler("jobs")
    async def job(n: int) -> None:
        inside.set()
        go_on.wait(PATIENCE)

    job.put(1)
    with Working(moving) as working:
        assert inside.wait(PATIENCE)
        assert still_taken(moving, working, kept) == 1
        go_on.set()
        until(lambda: working.tally.ok == 1)


@on_both
@pytest.mark.parametrize("where", ["C", "Python"])
def test_leases_live_while_a_handler_computes(moving: Any, kept: Any, where: str) -> None:
    inside, done = threading.Event(), threading.Event()

    @moving.handler("jobs")
    def job(n: int) -> None:
        inside.set()
        while not done.is_set():
            if where == "C":
                hashlib.pbkdf2_hmac("sha256", b"x", b"y", 100_000)
            else:
                sum(range(1000))

    job.put(1)
    with Working(moving) as working:
        assert inside.wait(PATIENCE)
        assert still_taken(moving, working, kept) == 1
        done.set()
        until(lambda: working.tally.ok == 1)


# -- how handlers end ------------------------------------------------------------------------------------


class Fatal(BaseException):
    """What is no Exception."""


@both
@pytest.mark.parametrize("error", [Fatal, SystemExit, GeneratorExit])
def test_whatever_a_handler_raises_fails_its_task(still_memory: Any, colour: str, error: type[BaseException]) -> None:
    if colour == "async":

        @still_memory.handler("jobs", max_attempts=1)
        async def job(n: int) -> None:
            raise error
    else:

        @still_memory.handler("jobs", max_attempts=1)
        def job(n: int) -> None:
            raise error

    task = job.put(1)
    with Working(still_memory) as working:
        found = until_state(still_memory.tube("jobs"), task.id, "buried")
        assert error.__name__ in found.error
        until(lambda: not working.tally.busy)
    assert working.tally.trouble == 1


def test_a_handler_that_lets_its_own_cancelled_error_out_fails(still_memory: Any) -> None:
    @still_memory.handler("jobs", max_attempts=1)
    async def job(n: int) -> None:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner

    task = job.put(1)
    work(still_memory)
    found = still_memory.tube("jobs").peek(task.id)
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


@on_both
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
