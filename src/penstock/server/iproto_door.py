"""The door for Tarantool's protocol: clients of tarantool/queue, and penstock:// URLs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid
from typing import Any

from penstock.server.connection import Connection
from penstock.server.core import log
from penstock.server.listening import BACKLOG
from penstock.server.peer import Peer
from penstock.server.server import Door, Server

KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""A client whose machine is gone closes nothing: within half a minute its connection counts as closed."""

GLANCE = 0.05
"""Seconds between two looks for clients of the library whose transactions have ended."""
LOOK = 1.0
"""Seconds between two looks for connections that have become free."""
TELL = 60
"""Every so many looks it is said how many are left."""


class IprotoDoor(Door):
    """All connections of one listening socket."""

    SLOW_AT = 1024 * 1024
    """Bytes of answers not read by a client at which its requests are read no more."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.limits = server.settings.limits
        self.uuid = str(uuid.uuid4())
        self.connections: set[Connection] = set()
        self._to_write: list[Connection] = []
        """Connections that have something to write."""
        self.full: set[Connection] = set()
        """Connections that have so many open requests that no more are read."""
        server.core.after.append(self._after_turn)
        self._listener: asyncio.Server | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._retiring = False

    async def listen(self) -> None:
        """Let clients connect."""
        loop = asyncio.get_running_loop()
        sock = self.server.listener("port")
        self._listener = await loop.create_server(
            lambda: Connection(self),
            sock=sock,
            ssl=self.server.tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=self.limits.login_seconds if self.server.tls else None,
        )
        self.port = sock.getsockname()[1]

    # -- what connections need ---------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Whether one more may come in; if not it is closed."""
        if len(self.connections) >= self.limits.connections:
            log.warning("there are %d connections, one more was refused", len(self.connections))
            connection.transport.abort()
            return False
        self.connections.add(connection)
        self.server.core.tally.accepted += 1
        sock = connection.transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE.items():
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return True

    def forget(self, connection: Connection) -> None:
        """A connection is closed."""
        self.connections.discard(connection)
        self.full.discard(connection)
        if not self.connections:
            self._empty.set()

    def leave(self, peer: Peer) -> None:
        """End what a closed connection had."""
        task = self.server.core.loop.create_task(self.server.sessions.leave(peer))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def link(self, connection: Connection) -> Any:
        """What carries the requests of the library's own clients."""
        from penstock.server.link import Link

        made = Link(self.server.book, connection.peer, connection.send_answer, connection.transport.abort, self.limits)
        if self._retiring:
            self.server.core.loop.call_soon(connection.say_bye)
        return made

    def write_soon(self, connection: Connection) -> None:
        """Write what a connection has to say at the end of this turn of the loop."""
        if not self._to_write:
            self.server.core.loop.call_soon(self._write)
        self._to_write.append(connection)

    def _write(self) -> None:
        connections, self._to_write = self._to_write, []
        for connection in connections:
            connection.write()

    def _after_turn(self) -> None:
        if self._to_write:
            self._write()
        if self.full:
            for connection in tuple(self.full):
                connection.go_on_reading()

    @staticmethod
    def address(transport: asyncio.BaseTransport) -> str:
        """Who is at the other end, as logs name it."""
        name = transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "unix")

    # -- the end -----------------------------------------------------------------------------------

    async def stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def close(self) -> None:
        for connection in tuple(self.connections):
            connection.say_bye(deaf=True)
            connection.close()
            for wait in tuple(connection.peer.waits):
                wait.leave()
        if self.connections:
            self._empty.clear()
            await self._empty.wait()
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def retire(self, seconds: float) -> None:
        self._retiring = True
        now = asyncio.get_running_loop().time
        over = now() + seconds
        while True:
            gone = [connection.say_bye() for connection in tuple(self.connections)]
            if await self._emptied(max(0.0, over - now()) if all(gone) else GLANCE):
                return
            if now() >= over:
                break
        for connection in tuple(self.connections):
            connection.leave_when_free()
        # Nothing is asked for on some of them: what they hold may end in another way, by its ttr or by a person.
        told = 0
        while not await self._emptied(LOOK):
            told += 1
            if told % TELL == 1:
                log.info("%d connections are served until they hold no task", len(self.connections))
            for connection in tuple(self.connections):
                connection.leave_if_idle()

    async def _emptied(self, seconds: float) -> bool:
        """Wait so long for the last connection to go; answers whether it has."""
        if self.connections:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)
        return not self.connections


async def open_door(server: Server) -> Door:
    """Listen for Tarantool's protocol."""
    door = IprotoDoor(server)
    await door.listen()
    return door
