"""The async facade driven by blocking tests: the same test file exercises both colours."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any

from penstock import AsyncLane, AsyncQueue, AsyncTask, AsyncTube

ASYNC_TYPES = (AsyncQueue, AsyncTube, AsyncTask, AsyncLane)


class Loop:
    """A private event loop in a thread. What one thread of a test awaits shares its context, as in one task."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._callers = threading.local()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if not hasattr(self._callers, "context"):
            self._callers.context = contextvars.copy_context()
        context = self._callers.context

        async def start() -> Any:
            return await self._loop.create_task(coroutine, context=context)

        future = asyncio.run_coroutine_threadsafe(start(), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise asyncio.CancelledError from None

    def settled(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same blocking call, over when the loop has done what it was told meanwhile, callbacks above all."""

        @functools.wraps(call)
        def settle(*args: Any) -> Any:
            answer = call(*args)
            self.run(asyncio.sleep(0))
            return answer

        return settle

    def wrap(self, value: Any) -> Any:
        """Async objects, alone or in lists, as blocking ones."""
        if isinstance(value, ASYNC_TYPES):
            return Blocking(self, value)
        return [self.wrap(item) for item in value] if type(value) is list else value

    def stop(self) -> None:
        async def settle() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(settle(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """One async object; every coroutine it gives is run to its end."""

    def __init__(self, loop: Loop, target: Any) -> None:
        self.__dict__["_loop"] = loop
        self.__dict__["_target"] = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value) or isinstance(value, ASYNC_TYPES):
            return self._loop.wrap(value) if isinstance(value, ASYNC_TYPES) else value

        @functools.wraps(value)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = value(*map(unwrap, args), **{name: unwrap(arg) for name, arg in kwargs.items()})
            if hasattr(result, "__aenter__") and not isinstance(result, ASYNC_TYPES):
                return Managed(self._loop, result)
            if inspect.iscoroutine(result):
                result = self._loop.run(result)
            return self._loop.wrap(result)

        return call

    def __enter__(self) -> Any:
        return self._loop.wrap(self._loop.run(self._target.__aenter__()))

    def __exit__(self, *error: Any) -> Any:
        return self._loop.run(self._target.__aexit__(*error))

    def __repr__(self) -> str:
        return repr(self._target)


class Managed:
    """An async context manager, entered and left from a blocking test."""

    def __init__(self, loop: Loop, manager: Any) -> None:
        self._loop = loop
        self._manager = manager

    def __enter__(self) -> Any:
        return self._loop.wrap(self._loop.run(self._manager.__aenter__()))

    def __exit__(self, *error: Any) -> Any:
        return self._loop.run(self._manager.__aexit__(*error))


def unwrap(value: Any) -> Any:
    """What was wrapped, wherever it is."""
    if isinstance(value, Blocking):
        return value._target
    return [unwrap(item) for item in value] if type(value) is list else value
