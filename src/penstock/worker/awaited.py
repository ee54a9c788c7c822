"""The task of a run for async handlers: the same task, with verbs that are awaited."""

from __future__ import annotations

import asyncio
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.aio import AsyncQueue, AsyncTask, AsyncTube
from penstock.blocking import Queue, Task
from penstock.engines.bridge import AsyncEngine
from penstock.model.errors import UsageError

_queues: weakref.WeakKeyDictionary[Queue, AsyncQueue] = weakref.WeakKeyDictionary()
"""The queues of workers whose handlers have asked for this, as async ones."""


class AwaitedTask(AsyncTask):
    """A view of a blocking task: what is done to the one has been done to the other."""

    __slots__ = ("_task",)

    def __init__(self, tube: AsyncTube, task: Task) -> None:
        self._task = task
        self._tube = tube
        self.outcome = None


def _shared(name: str) -> Any:
    return property(lambda self: getattr(self._task, name), lambda self, value: setattr(self._task, name, value))


for _name in ("_record", "_held", "_data", "_ended", "_undo"):
    setattr(AwaitedTask, _name, _shared(_name))


def awaited(task: Task) -> AsyncTask:
    """A task of a worker for the loop that runs here."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError("run.atask is for async handlers; in others it is run.task") from None
    queue = task._tube._queue
    found = _queues.get(queue)
    if found is None or found._engine._loop is not loop:
        found = _queues[queue] = _async(queue)
    return AwaitedTask(AsyncTube(found, task._tube._config), task)


def _async(queue: Queue) -> AsyncQueue:
    """A queue as an async one, with the same session."""
    side = ThreadPoolExecutor(1, "penstock side")
    engine = AsyncEngine(queue._engine, side)
    weakref.finalize(queue, engine.detach)
    made = AsyncQueue(engine, queue._session)
    made._kinds, made._makers = queue._kinds, queue._makers
    return made
