"""Workers inside programs: in an event loop that is theirs, beside other things, stopped from anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.worker.bench import PATIENCE, until

import penstock
from penstock import Worker


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    return "memory:" if request.param == "memory" else str(tmp_path / "tasks.db")


def forever(q: Any, told: list[str | None], inside: asyncio.Event) -> Any:
    @q.handler("jobs", max_attempts=1)
    async def job(n: int, run: penstock.Run) -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append(run.why)

    return job


async def attempts(q: Any) -> list[tuple[str, int]]:
    return [(task.state, task.attempt) for task in await (await q.tube("jobs")).tasks()]


def test_a_worker_lives_as_long_as_the_program_that_awaits_it(url: str) -> None:
    """As in the lifespan of a web application."""
    seen: list[int] = []

    async def main() -> list[tuple[str, int]]:
        async with await penstock.aconnect(url) as q:

            @q.handler("jobs", keep=True)
            async def job(n: int) -> None:
                seen.append(n)
                if n == 1:
                    done.set()

            @contextlib.asynccontextmanager
            async def lifespan() -> AsyncIterator[None]:
                working = asyncio.create_task(Worker(q).arun())
                yield
                working.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await working

            done = asyncio.Event()
            async with lifespan():
                await job.put(1)
                await asyncio.wait_for(done.wait(), PATIENCE)
            await job.put(2)
            return await attempts(q)

    assert asyncio.run(main()) == [("done", 1), ("ready", 0)]
    assert seen == [1]


def test_cancelling_twice_does_not_wait_for_what_runs(url: str) -> None:
    told: list[str | None] = []

    async def main() -> list[tuple[str, int]]:
        async with await penstock.aconnect(url) as q:
            inside = asyncio.Event()
            job = forever(q, told, inside)
            await job.put(1)
            worker = Worker(q, grace=1000)
            working = asyncio.create_task(worker.arun())
            await asyncio.wait_for(inside.wait(), PATIENCE)
            working.cancel()
            while not worker._stopping.is_set():
                await asyncio.sleep(0)
            assert not working.done()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            return await attempts(q)

    assert asyncio.run(main()) == [("ready", 0)]
    assert told == ["stopping"]


def test_a_program_that_ends_its_loop_costs_no_attempt(url: str) -> None:
    told: list[str | None] = []
    q = penstock.connect(url)

    async def main() -> None:
        inside = asyncio.Event()
        job = forever(q, told, inside)
        job.put(1)
        main.working = asyncio.create_task(Worker(q, grace=0).arun())  # type: ignore[attr-defined]
        await asyncio.wait_for(inside.wait(), PATIENCE)

    asyncio.run(main())
    assert [(task.state, task.attempt) for task in q.tube("jobs").tasks()] == [("ready", 0)]
    assert len(told) == 1
    q.close()


def test_a_worker_beside_a_task_that_fails_is_stopped_with_it(url: str) -> None:
    async def main() -> None:
        async with await penstock.aconnect(url) as q:
            q.handler("jobs")(print)
            async with asyncio.TaskGroup() as group:
                group.create_task(Worker(q).arun())
                raise ValueError("the other one")

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert isinstance(caught.value.exceptions[0], ValueError)


def test_a_handler_of_an_async_program_awaits_its_queue(url: str) -> None:
    async def main() -> int:
        async with await penstock.aconnect(url) as q:

            @q.handler("jobs")
            async def job(n: int) -> None:
                if n:
                    await job.put(n - 1)

            await job.put(5)
            return (await Worker(q).arun(until_empty=True)).ok

    assert asyncio.run(main()) == 6


def ours(before: set[threading.Thread]) -> list[threading.Thread]:
    """Threads of workers and stores that were not there before: those of other tests may be on their way out."""
    return [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("penstock")]


def test_stop_is_heard_from_other_threads_at_any_moment() -> None:
    q = penstock.connect("memory:")
    before = set(threading.enumerate())
    q.handler("jobs")(print)
    for _ in range(50):
        worker = Worker(q)
        stopper = threading.Thread(target=worker.stop)
        stopper.start()
        assert worker.run().ok == 0
        stopper.join()
    until(lambda: not ours(before))
    q.close()


def test_a_worker_in_a_thread_leaves_signals_alone() -> None:
    q = penstock.connect("memory:")
    q.handler("jobs")(print)
    before = signal.getsignal(signal.SIGTERM)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            Worker(q).run(until_empty=True)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert errors == []
    assert signal.getsignal(signal.SIGTERM) == before
    q.close()


def test_what_a_program_does_with_signals_counts_again_after_a_worker() -> None:
    q = penstock.connect("memory:")
    q.handler("jobs")(print)
    heard: list[int] = []

    def hear(number: int, frame: Any) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGTERM, hear)
    try:
        Worker(q).run(until_empty=True)
        assert signal.getsignal(signal.SIGTERM) == hear
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    q.close()


def test_ctrl_c_in_a_handler_ends_the_program_and_costs_no_attempt() -> None:
    q = penstock.connect("memory:")

    @q.handler("jobs", max_attempts=1)
    async def job(n: int) -> None:
        raise KeyboardInterrupt

    job.put(1)
    with pytest.raises(KeyboardInterrupt):
        Worker(q).run(signals=False)
    assert [(task.state, task.attempt) for task in q.tube("jobs").tasks()] == [("ready", 0)]
    q.close()


def test_a_worker_that_cannot_start_says_why_and_leaves_nothing_behind() -> None:
    q = penstock.connect("memory:")
    q.create_tube("jobs", "fifo")

    @q.handler("jobs", kind="utube")
    async def job(n: int) -> None: ...

    before = set(threading.enumerate())
    with pytest.raises(penstock.UsageError, match="utube"):
        Worker(q).run()
    until(lambda: not ours(before))
    q.close()


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"concurrency": 1.5}, {"prefetch": -1}, {"grace": -1}, {"grace": float("nan")}],
)
def test_options_of_a_worker_are_checked(options: Any) -> None:
    with pytest.raises(penstock.UsageError, match=next(iter(options))):
        Worker(penstock.connect("memory:"), **options)


def test_a_worker_without_handlers_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert Worker(penstock.connect("memory:")).run(until_empty=True).ok == 0
    assert "there are no handlers" in caplog.text
