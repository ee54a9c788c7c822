"""One call of a handler, as the handler sees it."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from penstock.model.duration import SECOND
from penstock.model.errors import UsageError
from penstock.outcomes import Cancelled

if TYPE_CHECKING:
    from penstock.aio import AsyncTask, AsyncTube
    from penstock.blocking import Task, Tube
    from penstock.handlers import Definition

_current: ContextVar[Run | None] = ContextVar("penstock run", default=None)


class Run:
    """What a handler may ask about the task it works on: a parameter called `run`, or current_run().

    >>> def handler(data, run):
    ...     for page in data["pages"]:
    ...         run.check()
    """

    __slots__ = ("_cancelled", "_end", "_lease_end", "abandoned", "handler", "started", "task", "thread", "why")

    def __init__(self, task: Task, handler: Definition[Any, Any], deadline: float | None) -> None:
        self.task = task
        """The task; it may also be finished by hand, with task.ack() and the like."""
        self.handler = handler
        self._end = deadline
        self._lease_end = task._record.deadline
        self.started = 0.0
        self._cancelled: threading.Event | None = None
        self.why: str | None = None
        """Why it is to stop: cancelled, lost, late or stopping."""
        self.thread = False
        self.abandoned = False
        """The worker has given the task back; what the handler does now counts for nothing."""

    def __repr__(self) -> str:
        return f"<Run of {self.task!r}>"

    @property
    def atask(self) -> AsyncTask:
        """The same task for async handlers: `await run.atask.touch(60)`. The verbs of `task` block the loop."""
        from penstock.worker.awaited import awaited

        return awaited(self.task)

    @property
    def tube(self) -> Tube:
        """The tube that the task is in, to put more: `run.tube.put(..)`. Its verbs block; not in processes."""
        tube: Tube | None = getattr(self.task, "_tube", None)
        if tube is None:
            raise UsageError("run.tube is not there in a process: a handler with process=True opens its own queue")
        return tube

    @property
    def atube(self) -> AsyncTube:
        """The same tube for async handlers: `await run.atube.put(..)`."""
        tube: AsyncTube = self.atask._tube
        return tube

    @property
    def data(self) -> Any:
        """The task's data as they were put, not yet what the handler's type makes of them."""
        return self.task.data

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.task.attempt

    @property
    def last_attempt(self) -> bool:
        """True when a failure of this attempt buries the task."""
        return self.task.last_attempt

    @property
    def deadline(self) -> float | None:
        """When its time is over, on time.monotonic(); task.touch() moves it. None is never."""
        end = self.task._record.deadline
        if self._end is None or self._lease_end is None or end is None:
            return self._end
        return self._end + (end - self._lease_end) / SECOND

    @property
    def time_left(self) -> float | None:
        """Seconds until the attempt's limit; None without one."""
        end = self.deadline
        return None if end is None else max(0.0, end - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """True once the handler should stop: asked to, over its limit, or no longer the holder of the task."""
        return self.why is not None

    @property
    def facts(self) -> dict[str, Any]:
        """What a log says about it, as fields."""
        return facts(self.task)

    def check(self) -> None:
        """Raise Cancelled once the handler should stop; for loops in functions that nobody can interrupt."""
        if self.why is not None:
            raise Cancelled(f"task {self.task.id!r} is to stop: {self.why}")

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep until the handler should stop, in a thread; answers whether it should."""
        if self._cancelled is None:
            self._cancelled = threading.Event()
            if self.why is not None:
                self._cancelled.set()
        return self._cancelled.wait(seconds)

    def tell(self, why: str) -> None:
        """Tell the handler to stop; the first reason stays."""
        if self.why is None:
            self.why = why
        if self._cancelled is not None:
            self._cancelled.set()


def facts(task: Task) -> dict[str, Any]:
    """What a log says about a task, as fields: nothing that is secret, and not its data."""
    return {"tube": task.tube, "task_id": task.id, "attempt": task.attempt, "lane": task.lane, "key": task.key}


def current_run() -> Run:
    """The run that this code is part of; LookupError outside of handlers.

    >>> current_run()
    Traceback (most recent call last):
    LookupError: no handler runs here
    """
    run = _current.get()
    if run is None:
        raise LookupError("no handler runs here")
    return run


def enter(run: Run) -> None:
    """Make a run the current one, in this context."""
    _current.set(run)
