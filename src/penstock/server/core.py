"""The queue behind a server: one thread performs what all connections ask for, many ops in one transaction.

What is asked for while one group is on its way forms the next. Waiting needs no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.engines import Engine
from penstock.engines.line import Answer, Waiter
from penstock.model import ops
from penstock.server.tally import Tally

R = TypeVar("R")
Then = Callable[[Answer], None]
"""Called in the loop with what an op answered, or with the exception it raised."""
log = logging.getLogger("penstock.server")


class Wait:
    """A caller that waits, on behalf of a connection."""

    def __init__(self, core: Core, waiter: Waiter, then: Then) -> None:
        self.waiter = waiter
        self._core = core
        self._then: Then | None = then
        self._timer: asyncio.TimerHandle | None = None

    def leave(self) -> None:
        """Wait no longer; the answer comes as ever, with what was granted by now."""
        self._core.later(self._core.engine.withdraw, self.waiter)

    def begin(self, seconds: float | None) -> None:
        """Stand in line, for so long at most."""
        if seconds is not None and not self._core.engine.clock.manual:
            self._timer = self._core.loop.call_later(seconds, self.leave)
        self.waiter.on_wake(self._wake)
        self._core.later(self._enlist)

    def _enlist(self) -> None:
        try:
            self._core.engine.enlist(self.waiter)
        except Exception as error:
            self.waiter.resolve(error)

    def _wake(self) -> None:
        self._core.soon(self._deliver)

    def _deliver(self) -> None:
        then, self._then = self._then, None
        if self._timer is not None:
            self._timer.cancel()
        if then is not None:
            self._core.engine.forget(self.waiter)
            then(self.waiter.answer)


class Core:
    """Performs ops for a loop. Everything but `soon` is called in the loop."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.loop = loop
        self.tally = Tally()
        self._asked: list[tuple[ops.Op[Any], Then]] = []
        self._busy = False
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="penstock server", daemon=True)
        self._thread.start()

    def ask(self, op: ops.Op[R], then: Callable[[R | BaseException], None]) -> None:
        """Perform an op with the others of this turn of the loop."""
        self._asked.append((op, then))
        if not self._busy:
            self._busy = True
            self.loop.call_soon(self._send)

    async def execute(self, op: ops.Op[R]) -> R:
        """Perform an op; what it refuses is raised."""
        future: asyncio.Future[R] = self.loop.create_future()

        def then(answer: R | BaseException) -> None:
            if future.done():
                return
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.ask(op, then)
        return await future

    def wait(self, waiter: Waiter, seconds: float | None, then: Then) -> Wait:
        """Let a waiter stand in line; `then` gets its answer, once."""
        self.tally.waits[type(waiter.op)] += 1
        waiting = Wait(self, waiter, then)
        waiting.begin(seconds)
        return waiting

    def later(self, call: Callable[..., object], *args: Any) -> None:
        """Call something in the thread that performs ops, after all that was asked for by now."""

        def job() -> None:
            try:
                call(*args)
            except Exception:
                log.exception("%r failed", call)

        self._jobs.put(job)

    def soon(self, call: Callable[..., object], *args: Any) -> None:
        """Call something in the loop, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            self.loop.call_soon_threadsafe(call, *args)

    def _send(self) -> None:
        group, self._asked = self._asked, []
        self._jobs.put(lambda: self._perform(group))

    def _perform(self, group: Sequence[tuple[ops.Op[Any], Then]]) -> None:
        asked = [op for op, _ in group]
        self.tally.group(asked)
        try:
            answers = self.engine.execute_many(asked)
        except Exception as error:
            answers = [error] * len(group)
        self.soon(self._deliver, group, answers)

    def _deliver(self, group: Sequence[tuple[ops.Op[Any], Then]], answers: list[Answer]) -> None:
        if self._asked:
            self.loop.call_soon(self._send)
        else:
            self._busy = False
        for (_, then), answer in zip(group, answers, strict=True):
            then(answer)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    async def close(self) -> None:
        """Perform what was asked for and stop. The engine stays open."""
        self._jobs.put(None)
        await self.loop.run_in_executor(None, self._thread.join)
