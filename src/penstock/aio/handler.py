"""Made from blocking/handler.py by tools/generate.py. Do not edit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.aio.task import AsyncTask
from penstock.aio.tube import AsyncTube
from penstock.calls import Entry, listed
from penstock.handlers import Definition, P, R
from penstock.model.errors import UsageError

if TYPE_CHECKING:
    from penstock.aio.queue import AsyncQueue


class AsyncHandler(Definition[P, R]):
    """A function that workers call for every task of a tube; it stays callable as before."""

    _queue: AsyncQueue
    _tube: AsyncTube | None = None

    async def put(self, data: Any, **options: Any) -> AsyncTask:
        """Store a task for this handler; options are those of AsyncTube.put. The tube is made if it does not exist."""
        tube = await self._made()
        return await tube.put(self.shape.encode(data), **options)

    async def put_many(self, items: Iterable[Any], **options: Any) -> Any:
        """Store many tasks in one transaction; items and options are those of AsyncTube.put_many."""
        tube = await self._made()
        return await tube.put_many([self._entry(item) for item in listed(items)], **options)

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
