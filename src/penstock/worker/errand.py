"""Calls that block, in threads that nobody has to wait for: the loop goes on, and so does the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")


def errand(call: Callable[..., R], *args: Any) -> asyncio.Future[R]:
    """Make a call in a thread of its own; the future has what comes of it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def go() -> None:
        try:
            value = call(*args)
        except BaseException as error:
            soon(loop, fail, future, error)
        else:
            soon(loop, answer, future, value)

    threading.Thread(target=go, name=f"penstock {getattr(call, '__name__', 'errand')}", daemon=True).start()
    return future


def soon(loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *args: Any) -> None:
    """Call something in a loop from another thread; nothing happens if the loop is closed by now."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *args)


def answer(future: asyncio.Future[R], value: R) -> None:
    """What a future waits for has come, unless nobody waits any more."""
    if not future.done():
        future.set_result(value)


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """The same for what was raised."""
    if not future.done():
        future.set_exception(error)
