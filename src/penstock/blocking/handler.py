"""A handler that can put tasks for itself. The awaiting twin is made from this file by tools/generate.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from penstock.blocking.task import Task
from penstock.blocking.tube import Errors, Tube
from penstock.calls import Entry, PutOptions, listed
from penstock.handlers import D, Definition, P, R, Takes
from penstock.model.errors import PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.blocking.queue import Queue

Items = Iterable[D | Mapping[str, Any] | Entry]
"""What put_many() stores: what the handler takes, the same as a dict, or an Entry with either."""


class Handler(Definition[P, R]):
    """A function that workers call for every task of a tube; it stays callable as before.

    >>> import penstock
    >>> q = penstock.connect("memory:")
    >>> @q.handler("squares")
    ... def square(n: int) -> int:
    ...     return n * n
    >>> square(3)
    9
    >>> square.put(4).tube
    'squares'
    """

    _queue: Queue
    _tube: Tube | None = None

    @overload
    def put(self: Takes[D], data: D, **options: Unpack[PutOptions]) -> Task: ...

    @overload
    def put(self, data: Mapping[str, Any], **options: Unpack[PutOptions]) -> Task: ...

    def put(self, data: Any, **options: Unpack[PutOptions]) -> Task:
        """Store a task for this handler; options are those of Tube.put. The tube is made if it does not exist.

        >>> import penstock
        >>> q = penstock.connect("memory:")
        >>> square = q.handler("squares")(lambda n: n * n)
        >>> square.put(4, delay=60).state
        <State.DELAYED: 'delayed'>
        """
        tube = self._made()
        return tube.put(self.shape.encode(data), **options)

    @overload
    def put_many(
        self: Takes[D], items: Items[D], *, errors: Literal["raise"] = "raise", **options: Unpack[PutOptions]
    ) -> list[Task]: ...

    @overload
    def put_many(
        self: Takes[D], items: Items[D], *, errors: Literal["return"], **options: Unpack[PutOptions]
    ) -> list[Task | PenstockError]: ...

    def put_many(
        self, items: Iterable[Any], *, errors: Errors = "raise", **options: Unpack[PutOptions]
    ) -> list[Task] | list[Task | PenstockError]:
        """Store many tasks in one transaction; items and options are those of Tube.put_many.

        >>> import penstock
        >>> q = penstock.connect("memory:")
        >>> square = q.handler("squares")(lambda n: n * n)
        >>> len(square.put_many(range(3)))
        3
        """
        tube = self._made()
        entries = [self._entry(item) for item in listed(items)]
        answers: list[Any] = tube.put_many(entries, errors=errors, **options)
        return answers

    def _entry(self, item: Any) -> Any:
        """An item with data that the handler takes, or with the error that says why it does not."""
        entry = item if isinstance(item, Entry) else Entry(item)
        try:
            data = self.shape.encode(entry.data)
        except UsageError as error:
            data = error
        return replace(item, data=data) if isinstance(item, Entry) else data

    def _made(self) -> Tube:
        if self._tube is None:
            self._tube = self._queue._tube_of(self)
        return self._tube
