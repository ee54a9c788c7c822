"""A server as a program: from its first line in the log to its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.engines import engine_name
from penstock.model.errors import PenstockError, UsageError
from penstock.server.binding import check_binding
from penstock.server.server import Server
from penstock.server.settings import Settings

R = TypeVar("R")
log = logging.getLogger("penstock.server")
SCHEMES = {"port": "penstock", "grpc_port": "grpc", "http_port": "http"}
STOPPING = (signal.SIGTERM, signal.SIGINT)


def check(settings: Settings) -> None:
    """Refuse what cannot be served, or not there."""
    engine = engine_name(settings.url)
    if engine not in ("sqlite", "postgresql", "memory"):
        raise UsageError(
            f"a server needs a store of its own, not another server: a file name or postgresql://.., got {engine}://"
        )
    if all(getattr(settings, name) is None for name in SCHEMES):
        raise UsageError("nothing to listen on: give --port, --grpc-port or --http-port")
    check_binding(settings)


def addresses(server: Server) -> dict[str, str]:
    """Where the doors of a server are, as URLs, by the names of their settings."""
    host = f"[{server.settings.host}]" if ":" in server.settings.host else server.settings.host
    found = {}
    for name in server.doors:
        scheme = SCHEMES[name]
        if server.settings.tls is not None:
            scheme = "https" if scheme == "http" else scheme
        ending = "?tls=on" if server.settings.tls is not None and name != "http_port" else ""
        found[name] = f"{scheme}://{host}:{server.port(name)}{ending}"
    return found


class Program:
    """Runs one server until it is told to stop."""

    def __init__(self, settings: Settings, on_ready: Callable[[Server], None], check_only: bool) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._check_only = check_only
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()

    async def run(self) -> int:
        """Serve; answers the exit status."""
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, self._stop, number)
        server = Server(self._settings)
        await self._start(server)
        self._on_ready(server)
        if not self._check_only:
            await self._stopping.wait()
        return await self._end(server)

    async def _start(self, server: Server) -> None:
        if engine_name(self._settings.url) == "memory":
            log.warning("%s is in the memory of this process: every task is gone when it ends", self._settings.url)
        await server.start()
        for name, url in addresses(server).items():
            log.info("listening on %s", url, extra={"door": name, "port": server.port(name), "pid": os.getpid()})

    def _stop(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            log.warning("%s again: stopping at once", signal.Signals(number).name)
            self._at_once.set()
            return
        log.info("%s: answering what was asked, then stopping", signal.Signals(number).name)
        self._stopping.set()

    async def _end(self, server: Server) -> int:
        """Stop in order, or not, if there is no time left or a second signal comes."""
        stopping = asyncio.ensure_future(server.stop())
        at_once = asyncio.ensure_future(self._at_once.wait())
        await asyncio.wait((stopping, at_once), timeout=self._settings.drain_seconds, return_when="FIRST_COMPLETED")
        at_once.cancel()
        if not stopping.done():
            if not self._at_once.is_set():
                log.warning("clients have not read their answers within %g s", self._settings.drain_seconds)
            return 1
        try:
            stopping.result()
        except PenstockError as error:
            log.error("not stopped in order: %s", error)
            return 1
        log.info("stopped")
        return 0


def run(settings: Settings, on_ready: Callable[[Server], None], check_only: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; answers the exit status. `check_only`: be ready, and stop."""
    check(settings)

    async def program() -> int:
        return await Program(settings, on_ready, check_only).run()

    status = _run(program())
    if status:
        # Threads that wait for the store would keep the process.
        logging.shutdown()
        os._exit(status)
    return status


def _run(work: Coroutine[Any, Any, R]) -> R:
    """In a loop of uvloop where that is installed: it is about twice as fast."""
    factory: Any = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)
