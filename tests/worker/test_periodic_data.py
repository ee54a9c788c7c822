"""The data of a periodic task are checked when its handler is defined."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import penstock
from penstock.testing import ManualClock, drain


@dataclass
class Page:
    url: str
    depth: int = 0


def test_data_that_the_handler_does_not_take_are_refused(memory: Any) -> None:
    with pytest.raises(penstock.UsageError, match="takes int, got 'x'"):

        @memory.periodic("sweep", every=60, data="x")
        def sweep(number: int) -> None: ...

    assert not memory.handlers and not memory.handlers.schedules


@pytest.mark.parametrize("wanted", [int, Page, str, bytes])
def test_no_data_for_a_handler_that_needs_some_are_refused(memory: Any, wanted: Any) -> None:
    def sweep(data: Any) -> None: ...

    sweep.__annotations__["data"] = wanted
    with pytest.raises(penstock.UsageError, match=r"gets data None.*annotate it with None, or give data=") as refused:
        memory.periodic("sweep", every=60)(sweep)
    assert wanted.__name__ in str(refused.value)


@pytest.mark.parametrize("wanted", [None, int | None, Any, object])
def test_no_data_for_a_handler_that_needs_none_are_taken(memory: Any, wanted: Any) -> None:
    def sweep(data: Any) -> None: ...

    sweep.__annotations__["data"] = wanted
    memory.periodic("sweep", every=60)(sweep)
    assert [schedule.data for schedule in memory.handlers.schedules] == [None]


@pytest.mark.parametrize("data", [Page("a"), {"url": "a"}])
def test_data_reach_the_handler_as_its_type(data: Any) -> None:
    seen: list[Page] = []
    with penstock.connect("memory:", clock=ManualClock()) as q:

        @q.periodic("sweep", every=60, data=data)
        def sweep(page: Page) -> None:
            seen.append(page)

        drain(q, horizon=60)
        first = q.schedules()
        drain(q)
        assert q.schedules() == first
    assert seen == [Page("a")]


async def _periodic_of_an_async_queue() -> None:
    async with await penstock.aconnect("memory:") as q:

        @q.periodic("sweep", every=60, data="x")
        async def sweep(number: int) -> None: ...


def test_async_queues_refuse_them_too() -> None:
    with pytest.raises(penstock.UsageError, match="takes int, got 'x'"):
        asyncio.run(_periodic_of_an_async_queue())
