"""Made from blocking/handler.py by tools/generate.py. Do not edit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from penstock.aio.task import AsyncTask
from penstock.aio.tube import AsyncTube, Errors
from penstock.calls import Entry, PutOptions, listed
from penstock.handlers import D, Definition, P, R, Takes
from penstock.model.errors import PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.aio.queue import AsyncQueue

Items = Iterable[D | Mapping[str, Any] | Entry]
"""What put_many() stores: what the handler takes, the same as a dict, or an Entry with either."""


class AsyncHandler(Definition[P, R]):
    """A function that workers call for every task of a tube; it stays callable as before."""

    _queue: AsyncQueue
    _tube: AsyncTube | None = None

    @overload
    async def put(self: Takes[D], data: D, **options: Unpack[PutOptions]) -> AsyncTask: ...

    @overload
    async def put(self, data: Mapping[str, Any], **options: Unpack[PutOptions]) -> AsyncTask: ...

    async def put(self, data: Any, **options: Unpack[PutOptions]) -> AsyncTask:
        """Store a task for this handler; options are those of AsyncTube.put. The tube is made if it does not exist."""
        tube = await self._made()
        return await tube.put(self.shape.encode(data), **options)

    @overload
    async def put_many(
        self: Takes[D], items: Items[D], *, errors: Literal["raise"] = "raise", **options: Unpack[PutOptions]
    ) -> list[AsyncTask]: ...

    @overload
    async def put_many(
        self: Takes[D], items: Items[D], *, errors: Literal["return"], **options: Unpack[PutOptions]
    ) -> list[AsyncTask | PenstockError]: ...

    async def put_many(
        self, items: Iterable[Any], *, errors: Errors = "raise", **options: Unpack[PutOptions]
    ) -> list[AsyncTask] | list[AsyncTask | PenstockError]:
        """Store many tasks in one transaction; items and options are those of AsyncTube.put_many."""
        tube = await self._made()
        entries = [self._entry(item) for item in listed(items)]
        answers: list[Any] = await tube.put_many(entries, errors=errors, **options)
        return answers

    def _entry(self, item: Any) -> Any:
        """An item with data that the handler takes, or with the error that says why it does not."""
        entry = item if isinstance(item, Entry) else Entry(item)
        try:
            data = self.shape.encode(entry.data)
        except UsageError as error:
            data = error
        return replace(item, data=data) if isinstance(item, Entry) else data

    async def _made(self) -> AsyncTube:
        if self._tube is None:
            self._tube = await self._queue._tube_of(self)
        return self._tube
