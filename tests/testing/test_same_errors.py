"""What handlers raise is stored by drain() as it is by a worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.worker.bench import work

import penstock
from penstock.testing import adrain, drain


def defined(q: Any, error: type[BaseException], is_async: bool, layered: bool) -> Any:
    async def around(run: Any, go_on: Any) -> Any:
        return await go_on()

    def plain(data: Any) -> None:
        raise error("why")

    async def awaited(data: Any) -> None:
        raise error("why")

    if layered:
        q.middleware(around)
    return q.handler("jobs", max_attempts=1)(awaited if is_async else plain)


def by_worker(error: type[BaseException], is_async: bool, layered: bool) -> Any:
    with penstock.connect("memory:") as q:
        defined(q, error, is_async, layered).put(1)
        work(q)
        return q.tube("jobs").peek(1)


def by_drain(error: type[BaseException], is_async: bool, layered: bool) -> Any:
    with penstock.connect("memory:") as q:
        defined(q, error, is_async, layered).put(1)
        drain(q)
        return q.tube("jobs").peek(1)


def by_adrain(error: type[BaseException], is_async: bool, layered: bool) -> Any:
    async def main() -> Any:
        async with await penstock.aconnect("memory:") as q:
            await defined(q, error, is_async, layered).put(1)
            await adrain(q)
            return await (await q.tube("jobs")).peek(1)

    return asyncio.run(main())


@pytest.mark.parametrize("layered", [False, True], ids=["bare", "in middleware"])
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.parametrize(
    "error", [StopIteration, StopAsyncIteration, GeneratorExit, SystemExit, asyncio.CancelledError, ValueError]
)
def test_an_error_has_the_same_text_everywhere(error: type[BaseException], is_async: bool, layered: bool) -> None:
    for run in (by_worker, by_drain, by_adrain):
        task = run(error, is_async, layered)
        assert (task.state, task.reason) == ("buried", "no_attempts"), run
        assert task.error.splitlines()[0] == f"{error.__name__}: why", run
        assert "test_same_errors.py" in task.error and "penstock" not in task.error, run
