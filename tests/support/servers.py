"""Servers of tests: in a thread of this process, on a free port of 127.0.0.1."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from penstock.server.server import Server
from penstock.server.settings import Settings

R = TypeVar("R")


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """One loop for all servers of this process."""
    made = uvloop.new_event_loop()  # as real servers have it
    threading.Thread(target=made.run_forever, name="servers", daemon=True).start()
    return made


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run something in the loop of the servers and wait for it."""
    return asyncio.run_coroutine_threadsafe(work, loop()).result(timeout=30)


class Running:
    """A server that runs until it is stopped."""

    def __init__(self, url: str, clock: Any = None, **settings: Any) -> None:
        settings.setdefault("port", 0)
        settings.setdefault("durability", "relaxed")
        self.server = Server(Settings(url, **settings), clock)
        run(self.server.start())

    @property
    def url(self) -> str:
        return f"penstock://127.0.0.1:{self.server.port()}"

    @property
    def grpc_url(self) -> str:
        return f"grpc://127.0.0.1:{self.server.port('grpc_port')}"

    def stop(self) -> None:
        run(self.server.stop())

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
