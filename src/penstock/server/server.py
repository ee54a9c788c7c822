"""A server: one store, and the doors that lead to it."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from penstock.engines import Engine, open_engine
from penstock.model.clock import Clock
from penstock.server.core import Core
from penstock.server.sessions import Sessions
from penstock.server.settings import Settings

DOORS = {"port": "penstock.server.iproto", "grpc_port": "penstock.server.grpc", "http_port": "penstock.server.http"}
"""Which module opens the door of a port: it has `async def open_door(server) -> Door`."""


class Door:
    """Something that listens."""

    port: int

    async def stop_listening(self) -> None:
        """Let nobody new in."""

    async def close(self) -> None:
        """Answer what was asked and close all connections."""


class Server:
    """Opens the store and its doors, in the running loop."""

    core: Core
    sessions: Sessions

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock
        self._engine: Engine | None = None
        self.doors: dict[str, Any] = {}

    async def start(self) -> None:
        """Come back when clients can connect."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        self._engine = await loop.run_in_executor(None, open_engine, settings.url, self._clock, settings.durability)
        self.core = Core(self._engine, loop)
        self.sessions = Sessions(self.core)
        for name, module in DOORS.items():
            if getattr(settings, name) is not None:
                self.doors[name] = await import_module(module).open_door(self)

    def port(self, name: str = "port") -> int:
        """Where a door listens."""
        port: int = self.doors[name].port
        return port

    async def stop(self) -> None:
        """Let nobody in, answer what was asked, and let go of the store."""
        for door in self.doors.values():
            await door.stop_listening()
        for door in self.doors.values():
            await door.close()
        await self.core.close()
        if self._engine is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._engine.close)
