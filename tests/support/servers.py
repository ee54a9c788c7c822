"""Servers of tests: in a thread of this process, on a free port of 127.0.0.1."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import uvloop

from penstock.engines.remote import channel, iproto_link, link
from penstock.server.server import Server
from penstock.server.settings import Limits, Settings

R = TypeVar("R")
PATIENCE = 90.0
"""Seconds that anything may take on a machine that has much to do."""
USUAL = Limits()
PATIENT = {"login_seconds": 600.0, "transaction_seconds": 600.0, "slow_seconds": 600.0}
"""Who is slow because the machine is slow is waited for, unless a test is about that."""
link.CONNECT_SECONDS = channel.CONNECT_SECONDS = iproto_link.CONNECT_SECONDS = PATIENCE
link.Link.patience = PATIENCE


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """One loop for all servers of this process."""
    made = uvloop.new_event_loop()  # as real servers have it
    threading.Thread(target=made.run_forever, name="servers", daemon=True).start()
    return made


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run something in the loop of the servers and wait for it."""
    return asyncio.run_coroutine_threadsafe(work, loop()).result(timeout=PATIENCE)


class Running:
    """A server that runs until it is stopped."""

    def __init__(self, url: str, clock: Any = None, **settings: Any) -> None:
        settings.setdefault("port", 0)
        settings.setdefault("durability", "relaxed")
        limits: Limits = settings.get("limits", USUAL)
        usual = [name for name in PATIENT if getattr(limits, name) == getattr(USUAL, name)]
        settings["limits"] = replace(limits, **{name: PATIENT[name] for name in usual})
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
