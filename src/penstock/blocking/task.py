"""A task that can be finished. The awaiting twin is made from this file by tools/generate.py."""

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
    from penstock.blocking.tube import Tube


class Task(TaskView):
    """A task as it was when the call answered. One that was taken can be finished, once.

    As a context manager it acks itself; an exception fails it and goes on; Ctrl-C gives it back.

    >>> import penstock
    >>> jobs = penstock.connect("memory:").create_tube("jobs")
    >>> task = jobs.put("x")
    >>> with jobs.take() as task:
    ...     pass
    >>> task.state
    <State.DONE: 'done'>
    """

    __slots__ = ()
    _tube: Tube

    def _lease(self) -> ops.Lease:
        return ops.Lease(self._record.id, self._held)

    def _end(self, verb: str, record: Record, transaction: object = None) -> Task:
        if self._held is not None:
            self._ended = verb
            self._undo = None if transaction is None else (transaction, self._record)
        self._renew(record)
        self._tube._finished(record, transaction)
        return self

    def _recall(self, transaction: object = None) -> None:
        """What a transaction ended that was rolled back since is held as before."""
        assert self._undo is not None
        inside, before = self._undo
        if self._tube._holds(before, inside if transaction is None else transaction):
            self._ended = self._undo = None
            self._renew(before)

    def _was(self, verb: str, transaction: object = None) -> bool:
        """True if this very verb ended the lease before: it gives the same answer again."""
        if self._undo is not None:
            self._recall(transaction)
        if self._ended is None or self._ended == verb:
            return self._ended == verb
        raise LeaseLost(f"task {self.id!r} was ended by {self._ended} already", "finished")

    def ack(
        self,
        result: Any = None,
        keep: bool | Seconds | None = None,
        transaction: object = None,
        update: Mapping[str, Any] | None = None,
    ) -> Task:
        """The work is done. `result` is readable while the task is kept.

        >>> import penstock
        >>> jobs = penstock.connect("memory:").create_tube("jobs")
        >>> task = jobs.put(1)
        >>> jobs.take().ack(result=2, keep=60).result
        2
        """
        if self._was("ack", transaction):
            return self
        record = self._tube._ack(self._lease(), result, keep, transaction, update, self._record)
        return self._end("ack", record, transaction)

    def release(
        self,
        delay: DelayArgument | None = None,
        pri: int | None = None,
        ttl: Seconds | None = None,
        data: Any = ...,
        refund: bool = False,
        update: Mapping[str, Any] | None = None,
    ) -> Task:
        """Give it back; refund=True takes the attempt back too.

        >>> import penstock
        >>> jobs = penstock.connect("memory:").create_tube("jobs")
        >>> task = jobs.put(1)
        >>> jobs.take().release(refund=True).attempt
        0
        """
        if self._was("release"):
            return self
        record = self._tube._release(self._lease(), delay, pri, ttl, data, refund, update)
        return self._end("release", record)

    def bury(self, error: str | BaseException | None = None, update: Mapping[str, Any] | None = None) -> Task:
        """Set it aside for a person to look at.

        >>> import penstock
        >>> jobs = penstock.connect("memory:").create_tube("jobs")
        >>> task = jobs.put(1)
        >>> jobs.take().bury("what is this?").error
        'what is this?'
        """
        if self._was("bury"):
            return self
        return self._end("bury", self._tube._bury(self._lease(), error, update))

    def fail(
        self,
        error: str | BaseException | None = None,
        delay: DelayArgument | None = None,
        abort: bool | str = False,
    ) -> Task:
        """The attempt failed; abort=True buries without another try.

        >>> import penstock
        >>> jobs = penstock.connect("memory:").create_tube("jobs")
        >>> task = jobs.put(1)
        >>> jobs.take().fail("no such page", abort=True).reason
        <Reason.ABORTED: 'aborted'>
        """
        if self._was("fail"):
            return self
        return self._end("fail", self._tube._fail(self._lease(), error, delay, abort, self))

    def touch(self, seconds: Seconds) -> Task:
        """Ask for more time.

        >>> import penstock
        >>> jobs = penstock.connect("memory:").create_tube("jobs")
        >>> task = jobs.put(1)
        >>> jobs.take(ttr=60).touch(30).state
        <State.TAKEN: 'taken'>
        """
        self._was("touch")
        self._record = self._tube._touch(self._lease(), seconds)
        return self

    def __enter__(self) -> Task:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._undo is not None:
            self._recall()
        if self._ended is not None:
            return
        if error is None:
            self.ack()
            return
        try:
            if isinstance(error, KeyboardInterrupt | asyncio.CancelledError | GeneratorExit):
                self.release(refund=True)
            else:
                self.fail(error)
        except PenstockError as lost:
            error.add_note(f"penstock: the task could not be given back: {lost}")
