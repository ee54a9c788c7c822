"""Made from blocking/task.py by tools/generate.py. Do not edit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.calls import DelayArgument
from penstock.model import ops
from penstock.model.duration import Seconds
from penstock.model.errors import (
    LeaseLost,
    PenstockError,
)
from penstock.model.task import Record
from penstock.view import TaskView

if TYPE_CHECKING:
    from penstock.aio.tube import AsyncTube


class AsyncTask(TaskView):
    """A task as it was when the call answered. One that was taken can be finished, once.

    As a context manager it acks itself; an exception fails it and goes on; Ctrl-C gives it back.
    """

    __slots__ = ()
    _tube: AsyncTube

    def _lease(self) -> ops.Lease:
        return ops.Lease(self._record.id, self._held)

    def _end(self, verb: str, record: Record, transaction: object = None) -> AsyncTask:
        if self._held is not None:
            self._ended = verb
            self._undo = None if transaction is None else (transaction, self._record)
        self._renew(record)
        self._tube._finished(record, transaction)
        return self

    async def _recall(self, transaction: object = None) -> None:
        """What a transaction ended that was rolled back since is held as before."""
        assert self._undo is not None
        inside, before = self._undo
        if await self._tube._holds(before, inside if transaction is None else transaction):
            self._ended = self._undo = None
            self._renew(before)

    async def _was(self, verb: str, transaction: object = None) -> bool:
        """True if this very verb ended the lease before: it gives the same answer again."""
        if self._undo is not None:
            await self._recall(transaction)
        if self._ended is None or self._ended == verb:
            return self._ended == verb
        raise LeaseLost(f"task {self.id!r} was ended by {self._ended} already", "finished")

    async def ack(
        self,
        result: Any = None,
        keep: bool | Seconds | None = None,
        transaction: object = None,
        update: Mapping[str, Any] | None = None,
    ) -> AsyncTask:
        """The work is done. `result` is readable while the task is kept."""
        if await self._was("ack", transaction):
            return self
        record = await self._tube._ack(self._lease(), result, keep, transaction, update, self._record)
        return self._end("ack", record, transaction)

    async def release(
        self,
        delay: DelayArgument | None = None,
        pri: int | None = None,
        ttl: Seconds | None = None,
        data: Any = ...,
        refund: bool = False,
        update: Mapping[str, Any] | None = None,
    ) -> AsyncTask:
        """Give it back; refund=True takes the attempt back too."""
        if await self._was("release"):
            return self
        record = await self._tube._release(self._lease(), delay, pri, ttl, data, refund, update)
        return self._end("release", record)

    async def bury(
        self, error: str | BaseException | None = None, update: Mapping[str, Any] | None = None
    ) -> AsyncTask:
        """Set it aside for a person to look at."""
        if await self._was("bury"):
            return self
        return self._end("bury", await self._tube._bury(self._lease(), error, update))

    async def fail(
        self,
        error: str | BaseException | None = None,
        delay: DelayArgument | None = None,
        abort: bool | str = False,
    ) -> AsyncTask:
        """The attempt failed; abort=True buries without another try."""
        if await self._was("fail"):
            return self
        return self._end("fail", await self._tube._fail(self._lease(), error, delay, abort, self))

    async def touch(self, seconds: Seconds) -> AsyncTask:
        """Ask for more time."""
        await self._was("touch")
        self._record = await self._tube._touch(self._lease(), seconds)
        return self

    async def __aenter__(self) -> AsyncTask:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._undo is not None:
            await self._recall()
        if self._ended is not None:
            return
        if error is None:
            await self.ack()
            return
        try:
            if isinstance(error, KeyboardInterrupt | asyncio.CancelledError | GeneratorExit):
                await self.release(refund=True)
            else:
                await self.fail(error)
        except PenstockError as lost:
            error.add_note(f"penstock: the task could not be given back: {lost}")
