"""The threads that handlers run in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from penstock.worker.errand import answer, fail, soon

Job = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class Threads:
    """Threads that are started as they are needed and used again.

    They are daemons: a process ends although a handler in one of them does not. Those of an executor would be
    waited for.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self._loop = asyncio.get_running_loop()

    def call(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call a function in a thread; the future has what comes of it."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if not self._idle.acquire(blocking=False):
            self._started += 1
            name = f"penstock handler {self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put((future, function, args))
        return future

    def close(self) -> None:
        """End the threads, each once it has done what it is doing."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._perform(*job)
            del job  # what a task was about is not kept until the next one comes

    def _perform(self, future: asyncio.Future[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        # It is idle before it answers: who has the answer may want a thread again, and this one will do.
        try:
            value = function(*args)
        except BaseException as error:
            self._idle.release()
            soon(self._loop, fail, future, error)
        else:
            self._idle.release()
            soon(self._loop, answer, future, value)
            del value
        finally:
            del future  # a trace in the answer leads back to this frame: it would wait for the garbage collector
