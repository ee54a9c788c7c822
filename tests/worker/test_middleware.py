"""Functions around every handler."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest
from tests.worker.bench import PATIENCE, Later, Still, Working, until, work

import penstock
from penstock import Abort, Bury, Release, Run, UsageError, current_run


def test_middleware_runs_around_the_handler_the_first_outermost(q: Any) -> None:
    steps: list[str] = []

    def layer(name: str) -> None:
        @q.middleware
        async def around(run: Run, go_on: Any) -> Any:
            steps.append(f"{name} in")
            try:
                return await go_on()
            finally:
                steps.append(f"{name} out")

    layer("a")
    layer("b")

    @q.handler("sync", keep=True)
    def job(data: Any) -> str:
        steps.append("job")
        return "result"

    @q.handler("async", keep=True)
    async def ajob(data: Any) -> str:
        steps.append("job")
        return "result"

    for handler, tube in ((job, "sync"), (ajob, "async")):
        steps.clear()
        task = handler.put(1)
        assert work(q).ok == 1
        assert steps == ["a in", "b in", "job", "b out", "a out"]
        assert q.tube(tube).peek(task.id).result == "result"


def test_middleware_sees_the_run_and_may_change_the_result(memory: Any) -> None:
    seen: list[Any] = []

    @memory.middleware
    async def around(run: Run, go_on: Any) -> Any:
        seen.append((run.task.tube, run.data, run.attempt, run is current_run(), run.handler.tube_name))
        return {"wrapped": await go_on()}

    task = memory.handler("jobs", keep=True)(lambda data: data + 1).put(1)
    work(memory)
    assert seen == [("jobs", 1, 1, True, "jobs")]
    assert memory.tube("jobs").peek(task.id).result == {"wrapped": 2}


def test_middleware_sees_what_is_raised(q: Any) -> None:
    seen: list[str] = []

    @q.middleware
    async def around(run: Run, go_on: Any) -> Any:
        try:
            return await go_on()
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    errors = [ValueError("x"), Abort("x"), Bury("x"), Release(3600), SystemExit(1)]

    def job(n: int) -> None:
        raise errors[n]

    handler = q.handler("jobs", max_attempts=1)(job)
    tasks = handler.put_many(range(len(errors)))
    work(q, concurrency=1, horizon=60)
    assert seen == [type(error).__name__ for error in errors]
    found = [q.tube("jobs").peek(task.id) for task in tasks]
    assert [task.reason or task.state for task in found] == [
        "no_attempts",
        "aborted",
        "asked",
        "delayed",
        "no_attempts",
    ]


def test_middleware_may_swallow_an_error(memory: Any) -> None:
    @memory.middleware
    async def around(run: Run, go_on: Any) -> Any:
        try:
            return await go_on()
        except ValueError:
            return "mended"

    def job(data: Any) -> None:
        raise ValueError

    task = memory.handler("jobs", keep=True, max_attempts=1)(job).put(1)
    assert work(memory).ok == 1
    assert memory.tube("jobs").peek(task.id).result == "mended"


def test_middleware_may_answer_instead_of_the_handler(memory: Any) -> None:
    calls: list[Any] = []

    @memory.middleware
    async def around(run: Run, go_on: Any) -> Any:
        return "cached" if run.data == 1 else await go_on()

    handler = memory.handler("jobs", keep=True)(calls.append)
    task = handler.put(1)
    handler.put(2)
    assert work(memory).ok == 2
    assert calls == [2]
    assert memory.tube("jobs").peek(task.id).result == "cached"


@pytest.mark.parametrize(
    ("error", "reason"), [(Abort("not today"), "aborted"), (Bury("not today"), "asked"), (KeyError(), "no_attempts")]
)
def test_middleware_may_end_the_task_as_a_handler_may(error: Exception, reason: str) -> None:
    q = penstock.connect("memory:")

    @q.middleware
    async def around(run: Run, go_on: Any) -> Any:
        raise error

    calls: list[Any] = []
    task = q.handler("jobs", max_attempts=1)(calls.append).put(1)
    work(q)
    assert (calls, q.tube("jobs").peek(task.id).reason) == ([], reason)


def test_middleware_may_wait_before_the_handler(memory: Any) -> None:
    @memory.middleware
    async def around(run: Run, go_on: Any) -> Any:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        return await go_on()

    seen: list[Any] = []
    memory.handler("jobs")(seen.append).put_many(range(5))
    assert work(memory).ok == 5


def test_middleware_may_try_the_handler_twice(memory: Any) -> None:
    @memory.middleware
    async def around(run: Run, go_on: Any) -> Any:
        try:
            return await go_on()
        except ValueError:
            return await go_on()

    calls: list[Any] = []

    def job(data: Any) -> str:
        calls.append(data)
        if len(calls) == 1:
            raise ValueError
        return "second"

    task = memory.handler("jobs", keep=True, max_attempts=1)(job).put(1)
    work(memory)
    assert memory.tube("jobs").peek(task.id).result == "second"


def test_a_trace_has_the_middleware_and_the_handler_and_nothing_of_ours(memory: Any) -> None:
    @memory.middleware
    async def around(run: Run, go_on: Any) -> Any:
        return await go_on()

    def job(data: Any) -> None:
        raise ValueError("x")

    task = memory.handler("jobs", max_attempts=1)(job).put(1)
    work(memory)
    text = memory.tube("jobs").peek(task.id).error
    assert "in around" in text and "in job" in text
    assert "penstock/worker" not in text


def test_data_that_the_handler_does_not_take_do_not_reach_middleware(memory: Any) -> None:
    calls: list[Any] = []

    @memory.middleware
    async def around(run: Run, go_on: Any) -> Any:
        calls.append(run.data)
        return await go_on()

    def job(n: int) -> None: ...

    memory.handler("jobs")(job).put(1)
    memory.tube("jobs").put("no number")
    work(memory)
    assert calls == [1]


def test_middleware_has_the_context_of_the_handler(memory: Any) -> None:
    seen: list[str] = []
    request = contextvars.ContextVar("request", default="none")

    @memory.middleware
    async def around(run: Run, go_on: Any) -> Any:
        request.set(f"task {run.data}")
        return await go_on()

    def job(data: Any) -> None:
        seen.append(request.get())

    async def ajob(data: Any) -> None:
        seen.append(request.get())

    memory.handler("sync")(job).put(1)
    memory.handler("async")(ajob).put(2)
    assert work(memory).ok == 2
    assert sorted(seen) == ["task 1", "task 2"]
    assert request.get() == "none"


def test_a_run_that_is_late_is_cancelled_through_its_middleware(still: Still, later: Later) -> None:
    q = still.connect()
    seen: list[str] = []
    inside = threading.Event()

    @q.middleware
    async def around(run: Run, go_on: Any) -> Any:
        try:
            return await go_on()
        except asyncio.CancelledError:
            seen.append(str(run.why))
            raise

    async def job(data: Any) -> None:
        inside.set()
        await asyncio.Event().wait()

    task = q.handler("jobs", attempt_limit=600, max_attempts=1)(job).put(1)
    with Working(q) as working:
        assert inside.wait(PATIENCE)
        later(600)
        until(lambda: working.tally.trouble)
        still.clock.advance(600)
    assert seen == ["late"]
    assert q.tube("jobs").peek(task.id).reason == "lost"


def test_middleware_of_schedules_is_none(q: Any) -> None:
    tubes: set[str] = set()
    ran = threading.Event()

    @q.middleware
    async def around(run: Run, go_on: Any) -> Any:
        tubes.add(run.task.tube)
        return await go_on()

    @q.periodic("beat", every=0.1)
    def beat(data: Any) -> None:
        ran.set()

    with Working(q):
        assert ran.wait(PATIENCE)
    assert tubes == {"beat"}


class Around:
    async def __call__(self, run: Run, go_on: Any) -> Any:
        return await go_on()

    async def method(self, run: Run, go_on: Any) -> Any:
        return await go_on()


async def with_option(option: int, run: Run, go_on: Any) -> Any:
    return await go_on()


@pytest.mark.parametrize(
    "function",
    [Around(), Around().method, functools.partial(with_option, 5)],
    ids=["an object", "a method", "a partial"],
)
def test_whatever_is_awaited_with_two_arguments_is_middleware(function: Any) -> None:
    q = penstock.connect("memory:")
    q.middleware(function)
    seen: list[Any] = []
    q.handler("jobs")(seen.append).put(1)
    assert work(q).ok == 1
    assert seen == [1]


def plain(run: Run, go_on: Any) -> Any: ...
async def one_argument(run: Run) -> Any: ...
async def three(run: Run, go_on: Any, more: Any) -> Any: ...
async def generator(run: Run, go_on: Any) -> Any:
    yield


@pytest.mark.parametrize("function", [plain, one_argument, three, generator, None, "text"])
def test_what_cannot_be_middleware_is_refused_when_it_is_given(function: Any) -> None:
    q = penstock.connect("memory:")
    with pytest.raises(UsageError, match=r"async def f\(run, go_on\)"):
        q.middleware(function)
    assert q.handlers.middleware == []


def test_middleware_stays_the_function_it_was() -> None:
    async def around(run: Run, go_on: Any) -> Any:
        return await go_on()

    assert penstock.connect("memory:").middleware(around) is around
