"""Health over gRPC (grpc.health.v1): whether the store answers, and whether the server is about to go."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from penstock.model import ops
from penstock.server.core import Core

SERVICE = "penstock.v1.Queue"
STORE_PATIENCE = 3.0
"""Seconds: a store that needs longer to say the time is of no use now."""
LOOK_SECONDS = 1.0
"""How often the store is asked, however many want to know."""
_Reply = health_pb2.HealthCheckResponse
SERVING, NOT_SERVING, UNKNOWN = _Reply.SERVING, _Reply.NOT_SERVING, _Reply.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Both names have one health: that of the server."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._going = asyncio.Event()
        self._looking: asyncio.Future[int] | None = None
        self._looked_at = 0.0

    def leave(self) -> None:
        """The server goes: say so, and end what watches, which then asks the process that listens next."""
        self._going.set()

    async def look(self) -> int:
        """How it is, or was a moment ago."""
        if self._going.is_set():
            return int(NOT_SERVING)
        now = self._core.loop.time()
        if self._looking is None or (self._looking.done() and now - self._looked_at >= LOOK_SECONDS):
            self._looked_at = now
            self._looking = asyncio.ensure_future(self._ask())
        found = await asyncio.shield(self._looking)
        return int(NOT_SERVING) if self._going.is_set() else found

    async def _ask(self) -> int:
        try:
            async with asyncio.timeout(STORE_PATIENCE):
                await self._core.execute(ops.GetMoment())
        except Exception:  # whatever it is, nothing can be done there
            return int(NOT_SERVING)
        return int(SERVING)

    async def Check(self, request: Any, context: Any) -> Any:
        """The health now."""
        if request.service not in ("", SERVICE):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there are '' and {SERVICE!r}")
        return _Reply(status=await self.look())

    async def Watch(self, request: Any, context: Any) -> None:
        """The health whenever it changes."""
        told: int | None = None
        known = request.service in ("", SERVICE)
        while True:
            going = self._going.is_set()  # asked first: the server may begin to go while a message is written
            found = await self.look() if known else int(UNKNOWN)
            if found != told:
                await context.write(_Reply(status=found))
                told = found
            if going:
                return  # with the status OK: with any other clients of gRPC drop what was not looked at
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._going.wait()
            except TimeoutError:
                pass
