"""The door of the library's own clients over gRPC: one stream of numbered frames both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from penstock.model import ops
from penstock.model.errors import PenstockError
from penstock.server.core import log
from penstock.server.door import Link
from penstock.server.grpc_calls import Call, Context, Desk, closing, refuse
from penstock.server.peer import Peer
from penstock.wire._generated import penstock_pb2 as pb

FRAMING = 64
"""Bytes that a frame counts beside its payload."""


class Wire:
    """Frames on their way to one client, and how many of its requests have no answer yet."""

    def __init__(self, context: Context, unsent: int) -> None:
        self._context = context
        self._limit = unsent
        self._frames: asyncio.Queue[pb.Frame] = asyncio.Queue()
        self._size = 0
        self.open = 0
        self.over = False
        self.settled = asyncio.Event()
        self.settled.set()

    def received(self) -> None:
        """A request has come."""
        self.open += 1
        self.settled.clear()

    def send(self, number: int, failed: bool, payload: bytes) -> None:
        """What a link says."""
        if number != 0:
            self.open -= 1
        if self.over:
            return
        self._size += len(payload) + FRAMING
        if self._size > self._limit:
            self.over = True
            log.warning("%s reads too slowly, and was cut off", self._context.peer())
            self._context.cancel()
            return
        self._frames.put_nowait(pb.Frame(number=number, failed=failed, payload=payload))

    async def write(self) -> None:
        """Send frames for as long as the stream lasts."""
        while True:
            frame = await self._frames.get()
            await self._context.write(frame)
            self._size -= len(frame.payload) + FRAMING
            if self.open <= 0 and self._frames.empty():
                self.settled.set()


class EngineStream:
    """A link over one stream."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def serve(self, requests: AsyncIterator[pb.Frame], context: Context) -> None:
        """Serve one stream."""
        desk = self._desk
        try:
            login = Call(desk, context).login
            if login.unknown:
                login.check(ops.GetMoment())
            if desk.leaving or desk.closing.is_set():
                raise closing()
        except PenstockError as error:
            await refuse(desk, context, error)
            return
        await context.send_initial_metadata((("penstock", "in"),))  # by this a client knows that it was let in
        peer = Peer(context.peer(), login)
        wire = Wire(context, desk.limits.unsent)
        link = Link(desk.core, desk.server.sessions, peer, wire.send, desk.limits)
        desk.links[link] = peer
        parts = [
            asyncio.ensure_future(part) for part in (_read(requests, link, wire), wire.write(), desk.closing.wait())
        ]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            if desk.closing.is_set():
                parts[0].cancel()  # what comes from now on is not done here; what has come is answered
                await wire.settled.wait()
        finally:
            wire.over = True
            del desk.links[link]
            link.lost()
            for part in parts:
                part.cancel()
            desk.later(desk.server.sessions.leave(peer))


async def _read(requests: AsyncIterator[pb.Frame], link: Link, wire: Wire) -> Any:
    async for frame in requests:
        wire.received()
        link.receive(frame.number, frame.seen, frame.kind, frame.payload)
