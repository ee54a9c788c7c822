"""A server: one store, and the doors that lead to it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from penstock.engines import Engine, engine_name, open_engine
from penstock.model.clock import Clock
from penstock.model.errors import UsageError
from penstock.server.auth import Login, Logins
from penstock.server.book import Book
from penstock.server.core import Core
from penstock.server.listening import listening
from penstock.server.logins import read_logins
from penstock.server.sessions import Sessions
from penstock.server.settings import Settings
from penstock.server.tls import common_name


class Kind(NamedTuple):
    """A kind of door."""

    module: str
    """It has `async def open_door(server) -> Door`."""
    scheme: str
    """Of its URLs."""
    label: str
    """In metrics."""


DOORS = {
    "port": Kind("penstock.server.iproto_door", "penstock", "iproto"),
    "grpc_port": Kind("penstock.server.grpc_door", "grpc", "grpc"),
    "http_port": Kind("penstock.server.http_door", "http", "http"),
}
"""By the settings that name their ports."""


def option(name: str) -> str:
    """The option of a door's port, as it is typed."""
    return f"--{name.replace('_', '-')}"


def _loaded(name: str) -> Any:
    """The module of a door: before the store is opened, so that one that cannot be served is left alone."""
    try:
        return import_module(DOORS[name].module)
    except ModuleNotFoundError as error:
        needed = f"{option(name)} needs {error.name}"
        raise UsageError(f"{needed}: {sys.executable} -m pip install 'penstock[server]'") from None


class Door:
    """Something that listens."""

    port: int

    async def stop_listening(self) -> None:
        """Let nobody new in."""

    async def close(self) -> None:
        """Answer what was asked and close all connections.

        What waits ends with what it has, clients of the library are told `bye` and sessions that the server keeps end.
        """

    async def retire(self, seconds: float) -> None:
        """Another process listens now: serve who is connected until they go, and come back when they have.

        Clients of the library are told `bye` at once and go over. The others stay; when the seconds are over, those
        that ask for nothing and hold no task are closed, each right behind its last answer.
        """


class Server:
    """Opens the store and its doors, in the running loop."""

    core: Core
    sessions: Sessions
    book: Book
    logins: Logins
    tls: ssl.SSLContext | None

    def __init__(
        self, settings: Settings, clock: Clock | None = None, sockets: Mapping[str, socket.socket] | None = None
    ) -> None:
        self.settings = settings
        self._clock = clock
        self.sockets = dict(sockets or {})
        """Those that doors listen on, by the name of the setting; they may come from a process that goes."""
        self._engine: Engine | None = None
        self.doors: dict[str, Any] = {}

    async def start(self) -> None:
        """Come back when clients can connect. If that fails nothing is left open."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        settings = self.settings
        loop = asyncio.get_running_loop()
        modules = {name: _loaded(name) for name in DOORS if getattr(settings, name) is not None}
        self.logins = read_logins(settings.logins)
        self.tls = settings.tls.context() if settings.tls else None
        self._engine = await loop.run_in_executor(None, open_engine, settings.url, self._clock, settings.durability)
        # A commit that is synced, or made elsewhere, would keep the loop waiting.
        slow = settings.durability == "strict" or engine_name(settings.url) == "postgresql"
        self.core = Core(self._engine, loop, threaded=slow, limits=settings.limits)
        self.sessions = Sessions(self.core)
        self.book = Book(self.core)
        for name, module in modules.items():
            self.doors[name] = await module.open_door(self)

    def listener(self, name: str) -> socket.socket:
        """The socket that a door shall listen on."""
        if name not in self.sockets:
            self.sockets[name] = listening(self.settings.host, getattr(self.settings, name))
        return self.sockets[name]

    def welcome(self, certificate: Any = None) -> Login:
        """What a new connection may do; `certificate`: the one of the client, as ssl's getpeercert() has it."""
        name = common_name(certificate)
        return self.logins.guest if name is None else self.logins.certificate(name)

    def port(self, name: str = "port") -> int:
        """Where a door listens."""
        port: int = self.doors[name].port
        return port

    @property
    def connected(self) -> bool:
        """Whether any client is here."""
        return any(getattr(door, "connections", ()) for door in self.doors.values())

    async def stop(self) -> None:
        """Let nobody in, answer what was asked, and let go of the store."""
        await self.stop_listening()
        for door in self.doors.values():
            await door.close()
        if self._engine is not None:
            self.sessions.close()
            self.book.close()
            await self.core.close()
            await asyncio.get_running_loop().run_in_executor(None, self._engine.close)

    async def stop_listening(self) -> None:
        """Let nobody in."""
        for door in self.doors.values():
            await door.stop_listening()
        for sock in self.sockets.values():
            sock.close()

    async def retire(self) -> None:
        """Another process has the sockets: let nobody in here, and come back when nobody is left."""
        await self.stop_listening()
        await asyncio.gather(*(door.retire(self.settings.drain_seconds) for door in self.doors.values()))
