"""Where handlers run: in the loop, in threads, in processes."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from penstock.handlers import Definition
from penstock.model.errors import UsageError
from penstock.worker.processes import Processes
from penstock.worker.run import Run
from penstock.worker.threads import Threads


class Runners:
    """Calls handlers where they belong."""

    def __init__(self, slots: int, processes: int | None) -> None:
        self._threads = Threads()
        self._processes = Processes(processes)

    @property
    def processes(self) -> int:
        """How many tasks can be in processes now."""
        return self._processes.ready

    def prepare(self, handlers: Iterable[Definition[Any, Any]], tell: Callable[[int], None]) -> None:
        """Have a process ready for handlers that need one; `tell` hears how many are as that changes."""
        self._processes.prepare([handler for handler in handlers if handler.process], tell)

    async def call(self, run: Run, value: Any) -> Any:
        """Call the handler of a run with its decoded data."""
        handler = run.handler
        more = {} if handler.run_name is None else {handler.run_name: run}
        if handler.is_async:
            return await _whole(await handler.function(value, **more))
        if handler.process:
            return await self._processes.call(run)
        run.thread = True
        context = contextvars.copy_context()
        calling = self._threads.call(context.run, _outcome, handler.function, value, more)
        # A thread cannot be stopped: whoever wants the slot back has to wait for it.
        answer, error = await asyncio.shield(calling)
        run.thread = False
        if error is None:
            return await _whole(answer)
        try:
            raise error
        finally:
            del error, calling  # an error that a frame of its own trace holds would wait for the garbage collector

    def renew(self) -> None:
        """Code has changed: processes start anew, each once it has done what it is doing."""
        self._processes.renew()

    async def close(self) -> None:
        await self._processes.close()
        self._threads.close()


async def _whole(answer: Any) -> Any:
    """What a function gave, or what comes of that: decorators and lambdas hide that it has to be awaited."""
    if answer is None:
        return None
    while inspect.isawaitable(answer):
        answer = await answer
    if inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        raise UsageError(f"the handler gave {answer!r}, which does nothing: it has to go through it itself")
    return answer


def _outcome(function: Callable[..., Any], value: Any, more: dict[str, Any]) -> tuple[Any, BaseException | None]:
    """What a function answered or raised, whatever that is: a future does not take every exception."""
    try:
        return function(value, **more), None
    except BaseException as error:
        return None, error
