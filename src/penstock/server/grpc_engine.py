"""The door of the library's own clients over gRPC: one stream of numbered frames both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from penstock.model.errors import PenstockError
from penstock.server.core import log
from penstock.server.grpc_calls import GONE, Call, Context, Desk, refuse
from penstock.server.link import Link
from penstock.server.peer import Peer
from penstock.server.settings import Limits
from penstock.wire._generated import penstock_pb2 as pb

FRAMING = 64
"""Bytes that a frame counts beside its payload."""
SLOW = (grpc.StatusCode.RESOURCE_EXHAUSTED, "answers are not read; connect again")
MOVED = (grpc.StatusCode.ABORTED, "this engine has connected anew")


class Wire:
    """Frames on their way to one client, and how many of its requests have no answer yet."""

    def __init__(self, context: Context, peer: Peer, limits: Limits) -> None:
        self._context = context
        self._peer = peer
        self._limits = limits
        self._frames: asyncio.Queue[pb.Frame] = asyncio.Queue()
        self._size = 0
        self._written = 0
        self._look: asyncio.TimerHandle | None = None
        self.open = 0
        self.over = False
        self.cut = asyncio.Event()
        """Set if the client is to go; `why` says so to it."""
        self.why: tuple[grpc.StatusCode, str] | None = None
        self._moved = asyncio.Event()
        """Set when an answer was given or written."""
        self.settled = asyncio.Event()
        self.settled.set()

    def received(self) -> None:
        """A request has come."""
        self.open += 1
        self.settled.clear()

    async def room(self) -> None:
        """Come back when one more request may come: few have no answer, and answers are read."""
        while self._size > self._limits.unsent or self.open - len(self._peer.waits) >= self._limits.pipeline:
            self._moved.clear()
            await self._moved.wait()

    def send(self, number: int, failed: bool, payload: bytes) -> None:
        """What a link says."""
        if number != 0:
            self.open -= 1
            self._moved.set()
        if self.over:
            return
        self._size += len(payload) + FRAMING
        if self._size > self._limits.unsent and self._look is None:
            self._look_later()
        self._frames.put_nowait(pb.Frame(number=number, failed=failed, payload=payload))

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(self._limits.slow_seconds, self._look_again, self._written)

    def _look_again(self, written: int) -> None:
        """Much at once is no fault of the client's, but who has read nothing of it for a while is cut off."""
        self._look = None
        if self.over or self._size <= self._limits.unsent:
            return
        if self._written > written:
            self._look_later()
            return
        log.warning("%s reads too slowly, and was cut off", self._context.peer())
        self.end(SLOW)

    def end(self, why: tuple[grpc.StatusCode, str]) -> None:
        """Cut the client off. It is told when it reads again; nothing is kept for it until then."""
        self.close()
        self.why = why
        self.cut.set()

    def close(self) -> None:
        """Send nothing more."""
        self.over = True
        if self._look is not None:
            self._look.cancel()
        self._frames = asyncio.Queue()

    async def write(self) -> None:
        """Send frames for as long as the stream lasts."""
        while True:
            frame = await self._frames.get()
            await self._context.write(frame)
            self._written += 1
            self._moved.set()
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
            peer = Peer(context.peer(), Call(desk, context).login)
            desk.admit(peer)
        except PenstockError as error:
            await refuse(context, error)
            return
        try:
            await self._serve(peer, requests, context)
        finally:
            desk.inside.discard(peer)

    async def _serve(self, peer: Peer, requests: AsyncIterator[pb.Frame], context: Context) -> None:
        desk = self._desk
        await context.send_initial_metadata((("penstock", "in"),))  # by this a client knows that it was let in
        wire = Wire(context, peer, desk.limits)
        link = Link(desk.server.book, peer, wire.send, partial(wire.end, MOVED), desk.limits)
        desk.links[link] = peer
        works = (_read(requests, link, wire), wire.write(), desk.closing.wait(), wire.cut.wait())
        parts = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                if (failure := part.exception()) is not None and not isinstance(failure, GONE):
                    log.error("the stream of %s failed", peer.address, exc_info=failure)
            if desk.closing.is_set():
                parts[0].cancel()  # what comes from now on is not done here; what has come is answered
                await wire.settled.wait()
        finally:
            wire.close()
            del desk.links[link]
            link.lost()
            for part in parts:
                part.cancel()
            desk.later(desk.server.sessions.leave(peer))
        if wire.why is not None:
            await context.abort(*wire.why)


async def _read(requests: AsyncIterator[pb.Frame], link: Link, wire: Wire) -> Any:
    async for frame in requests:
        await wire.room()
        wire.received()
        link.receive(frame.number, frame.seen, frame.kind, frame.payload)
