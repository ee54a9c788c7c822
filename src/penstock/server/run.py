"""A server as a program: from its first line in the log to its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from penstock.engines import engine_name, store_name
from penstock.model.errors import EngineUnavailable, PenstockError, UsageError
from penstock.server.binding import check_binding
from penstock.server.descriptors import make_room
from penstock.server.listening import activated
from penstock.server.notify import notify
from penstock.server.server import DOORS, Server, option
from penstock.server.settings import Settings
from penstock.server.successor import Successor
from penstock.server.takeover import Asking, Control, control_path

R = TypeVar("R")
log = logging.getLogger("penstock.server")
MAX_PORT = 65535
LEAST = 2.0
"""Seconds that clients have to read their answers, however little time they are given to go over to another process."""
STORE_PATIENCE = 30.0
"""Seconds that the store has to end what it does, once no client is left."""
STOPPING = (signal.SIGTERM, signal.SIGINT)
NOT_HANDED = "a store in memory cannot be handed over, its tasks would be gone: stop the server and start it again"


def check(settings: Settings) -> None:
    """Refuse what cannot be served, or not there."""
    scheme, separator, _ = settings.url.partition("://")
    if separator and scheme.lower() in ("penstock", "grpc"):
        raise UsageError(f"{scheme}:// is another server; this one needs a store: a file name or postgresql://..")
    if all(getattr(settings, name) is None for name in DOORS):
        raise UsageError("nothing to listen on: give --port, --grpc-port or --http-port")
    for name in DOORS:
        port = getattr(settings, name)
        if port is not None and not 0 <= port <= MAX_PORT:  # the resolver would take it modulo 65536
            raise UsageError(f"--{name.replace('_', '-')} is 0 for a free one, or up to {MAX_PORT}, got {port}")
    check_binding(settings)


def addresses(server: Server) -> dict[str, str]:
    """Where the doors of a server are, as URLs, by the names of their settings."""
    host = f"[{server.settings.host}]" if ":" in server.settings.host else server.settings.host
    encrypted = server.settings.tls is not None
    found = {}
    for name in server.doors:
        scheme = "https" if encrypted and name == "http_port" else DOORS[name].scheme
        ending = "?tls=on" if encrypted and name != "http_port" else ""
        found[name] = f"{scheme}://{host}:{server.port(name)}{ending}"
    return found


class Program:
    """Runs one server until it is told to stop, or another process has taken over."""

    def __init__(self, settings: Settings, on_ready: Callable[[Server], None]) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()
        self._taken = asyncio.Event()
        self._control: Control | None = None
        self._successor: Successor | None = None
        self._again = False
        """Whether SIGHUP came while another process was being started."""

    async def run(self, takeover: bool = False, check_only: bool = False) -> int:
        """Serve; answers the exit status."""
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        if check_only:
            server = await (self._try_takeover() if takeover else self._begin(activated()))
            self._on_ready(server)
            return await self._end(server)
        server = await (self._take_over() if takeover else self._begin(activated()))
        self._on_ready(server)
        notify("READY=1", f"MAINPID={os.getpid()}", f"STATUS=serving {server.core.engine.name}")
        await self._first(self._stopping, self._taken)
        if self._taken.is_set():
            await self._retire(server)
        else:
            notify("STOPPING=1")
        return await self._end(server)

    # -- the beginning -----------------------------------------------------------------------------

    async def _begin(self, sockets: Mapping[str, socket.socket]) -> Server:
        """Serve on new sockets, or on those that systemd has opened."""
        server = await self._start(self._settings, sockets)
        self._control = self._controlled(server)
        if self._control is not None:
            self._control.place()
        return server

    async def _ask(self) -> Asking:
        """Get the sockets of the process that serves this store at this address."""
        if engine_name(self._settings.url) == "memory":
            raise UsageError(NOT_HANDED)
        path = control_path(self._settings.host, self._settings.port or 0)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, Asking, path, store_name(self._settings.url))

    async def _take_over(self) -> Server:
        """Serve on the sockets of another process, which then goes."""
        asking = await self._ask()
        try:
            settings, sockets = _adopted(self._settings, asking)
            server = await self._start(settings, sockets)
            self._control = self._controlled(server)
        except BaseException:
            asking.close()
            raise
        try:
            if self._stopping.is_set():
                asking.leave()
                raise EngineUnavailable("told to stop before it had taken over: the other process goes on")
            await asyncio.get_running_loop().run_in_executor(None, asking.ready)
        except EngineUnavailable:
            await self._end(server)
            raise
        if self._control is not None:
            self._control.place()
        log.info("took over from process %d", asking.handed.pid)
        return server

    async def _try_takeover(self) -> Server:
        """Serve beside the other process, on ports that nobody knows: its clients must not come here."""
        asking = await self._ask()
        asking.leave()
        settings, sockets = _adopted(self._settings, asking)
        try:
            check_binding(settings, sockets)
        finally:
            for sock in sockets.values():
                sock.close()
        changes: dict[str, Any] = dict.fromkeys(asking.handed.ports.keys() & DOORS.keys(), 0)
        changes = {name: port for name, port in changes.items() if getattr(settings, name) == asking.handed.ports[name]}
        server = await self._start(replace(settings, **changes), {})
        for name in changes:
            server.doors[name].port = asking.handed.ports[name]  # to be told as those of the takeover
        return server

    async def _start(self, settings: Settings, sockets: Mapping[str, socket.socket]) -> Server:
        check_binding(settings, sockets)
        if engine_name(settings.url) == "memory":
            log.warning("%s is in the memory of this process: every task is gone when it ends", settings.url)
        make_room(settings.limits.connections)
        server = Server(settings, sockets=sockets)
        await server.start()
        for name, url in addresses(server).items():
            log.info("listening on %s", url, extra={"url": url, "port": server.port(name), "pid": os.getpid()})
        return server

    def _controlled(self, server: Server) -> Control | None:
        """Be ready to hand over; a server that cannot be asked to is still a server."""
        loop = asyncio.get_running_loop()

        def taken(pid: int) -> None:
            if self._successor is not None:
                self._successor.has_taken = True
            log.info("process %d has taken over; whoever is connected here is served until they go", pid)
            asyncio.run_coroutine_threadsafe(server.stop_listening(), loop).result()
            loop.call_soon_threadsafe(self._taken.set)

        ports = {name: server.port(name) for name in server.doors}
        refusal = NOT_HANDED if engine_name(server.settings.url) == "memory" else None
        path = control_path(server.settings.host, next(iter(ports.values())))
        try:
            return Control(path, server.core.engine.name, server.sockets, ports, taken, refusal)
        except (OSError, UsageError) as error:
            log.warning("no other process can take over from this one: %s", error)
            return None

    # -- signals -----------------------------------------------------------------------------------

    def _stop(self, number: signal.Signals) -> None:
        name = signal.Signals(number).name
        if self._stopping.is_set():
            log.warning("%s again: stopping at once", name)
            self._at_once.set()
            return
        log.info("%s: answering what was asked, then stopping", name)
        self._stopping.set()

    def _hang_up(self) -> None:
        if self._stopping.is_set() or self._taken.is_set():
            log.info("SIGHUP: this process ends already")
        elif self._control is None:
            log.error("SIGHUP: no other process can take over from this one, so it goes on as it is")
        elif self._successor is not None and self._successor.going_on:
            # Its settings may be those of before; once it has taken over there is nobody here to start another one.
            self._again = True
            log.info("SIGHUP: another process is being started already; if that fails, one more is")
        else:
            loop = asyncio.get_running_loop()
            self._successor = Successor.started(self._control.path, lambda: loop.call_soon_threadsafe(self._has_failed))

    def _has_failed(self) -> None:
        """A process that was to take over has ended."""
        if self._again:
            self._again = False
            self._hang_up()

    # -- the end -----------------------------------------------------------------------------------

    async def _retire(self, server: Server) -> None:
        """Serve those who are connected until they go, or until this process is told to stop."""
        retiring = asyncio.ensure_future(server.retire())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((retiring, stopping), return_when="FIRST_COMPLETED")
        stopping.cancel()
        if retiring.done():
            retiring.result()
        else:
            retiring.cancel()

    async def _end(self, server: Server) -> int:
        """Stop in order; or not, if there is no time left or a second signal comes."""
        if self._control is not None:
            self._control.close()
        stopping = asyncio.ensure_future(server.stop())
        at_once = asyncio.ensure_future(self._at_once.wait())
        seconds = max(LEAST, self._settings.drain_seconds)
        late = "clients have not read their answers within %g s: stopping without them"
        await asyncio.wait((stopping, at_once), timeout=seconds, return_when="FIRST_COMPLETED")
        if not (stopping.done() or self._at_once.is_set() or server.connected):  # no client is slow: the store is
            seconds, late = STORE_PATIENCE, "the store has not let go within %g s: stopping without it"
            await asyncio.wait((stopping, at_once), timeout=seconds, return_when="FIRST_COMPLETED")
        at_once.cancel()
        if not stopping.done():
            if not self._at_once.is_set():
                log.warning(late, seconds)
            return 1
        try:
            stopping.result()
        except PenstockError as error:
            log.error("not stopped in order: %s", error)
            return 1
        log.info("stopped")
        return 0

    @staticmethod
    async def _first(*events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        await asyncio.wait(waits, return_when="FIRST_COMPLETED")
        for wait in waits:
            wait.cancel()


def _adopted(settings: Settings, asking: Asking) -> tuple[Settings, dict[str, socket.socket]]:
    """What a new process was told, with the ports and sockets of the old one where it has the same doors."""
    handed = asking.handed
    ports = {
        name: port for name, port in handed.ports.items() if name in DOORS and getattr(settings, name) in (0, port)
    }
    kept = {name: sock for name, sock in handed.sockets.items() if name in ports}
    for name, sock in handed.sockets.items():
        if name not in kept:
            sock.close()
            port, told = (
                handed.ports[name],
                "the process before listens on port %d too, this one does not; %s %d keeps it",
            )
            log.warning(told, port, option(name), port)
    changes: dict[str, Any] = ports
    return replace(settings, **changes), kept


def run(
    settings: Settings, on_ready: Callable[[Server], None], takeover: bool = False, check_only: bool = False
) -> int:
    """Serve until SIGTERM or SIGINT; answers the exit status.

    takeover: serve in the place of a process that serves the same store on the same port
    check_only: be ready, and stop; with takeover the other process goes on
    """
    check(settings)

    async def program() -> int:
        return await Program(settings, on_ready).run(takeover, check_only)

    status = _run(program())
    if status:
        # Threads that wait for the store would keep the process.
        logging.shutdown()
        os._exit(status)
    return status


def _run(work: Coroutine[Any, Any, R]) -> R:
    """In a loop of uvloop, where that is installed: it needs less time for a turn."""
    factory: Any = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)
