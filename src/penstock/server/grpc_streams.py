"""Streams of gRPC: a session, and tasks as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from penstock.model import ops
from penstock.model.duration import FOREVER, SECOND
from penstock.model.errors import PenstockError, UsageError
from penstock.model.session import parse_uuid
from penstock.model.task import Record
from penstock.model.tube import check_text
from penstock.server.grpc_calls import GONE, Call, Context, Desk, closing, refuse
from penstock.server.grpc_reply import fill_tasks
from penstock.server.grpc_verbs import take_op
from penstock.server.peer import Peer
from penstock.server.sessions import KEPT_TTL
from penstock.wire._generated import penstock_pb2 as pb
from penstock.wire.messages import given, length_of

MOST = 100
"""Tasks in one reply of TakeStream, if the client does not say."""
UNREAD = 100_000
"""Tasks that are remembered as not read; with more of them older replies count as read."""


async def first_of(desk: Desk, requests: AsyncIterator[Any], what: str) -> Any:
    """The message that a stream begins with; a client that keeps it back is not waited for."""
    heard = asyncio.ensure_future(anext(requests, None))
    gone = asyncio.ensure_future(desk.closing.wait())
    seconds = desk.limits.login_seconds
    try:
        done, _ = await asyncio.wait((heard, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        heard.cancel()
        gone.cancel()
    if heard in done:
        if (request := heard.result()) is None:
            raise UsageError(f"the stream ended before {what}")
        return request
    if gone in done:
        raise closing()
    raise UsageError(f"the stream has not begun with {what} within {seconds:g} s")


class SessionStream:
    """A session as long as its stream."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def serve(self, requests: AsyncIterator[pb.SessionRequest], context: Context) -> None:
        """Serve one stream."""
        desk, peer = self._desk, None
        try:
            stream = Peer(context.peer(), Call(desk, context).login)
            desk.admit(stream)
            peer = stream
            await self._serve(peer, requests, context)
        except PenstockError as error:
            await refuse(context, error)
        except (asyncio.CancelledError, GONE):
            pass  # the client has gone, which is how most sessions end
        finally:
            if peer is not None:
                self._end(peer)

    async def _serve(self, peer: Peer, requests: AsyncIterator[pb.SessionRequest], context: Context) -> None:
        asked = await first_of(self._desk, requests, "Open")
        if asked.WhichOneof("kind") != "open":
            raise UsageError("the first message of a Session is Open")
        silence = length_of(asked.open, "silence_us") or None
        await context.write(pb.SessionReply(opened=await self._open(peer, asked.open)))
        core = self._desk.core
        gone = asyncio.ensure_future(self._desk.closing.wait())
        heard: asyncio.Future[Any] = gone
        try:
            while True:
                heard = asyncio.ensure_future(anext(requests, None))
                done, _ = await asyncio.wait(
                    (heard, gone),
                    timeout=None if silence is None else silence / SECOND,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if heard not in done:
                    if gone in done:
                        raise closing()
                    raise UsageError("nothing was heard from the client for silence_us")
                message = heard.result()
                if message is None:
                    return
                if message.WhichOneof("kind") != "keep_alive":
                    raise UsageError("a Session is opened once")
                tokens = await core.execute(ops.KeepAlive(peer.held()))
                await context.write(pb.SessionReply(kept=pb.SessionReply.Kept(cancelled=tokens)))
        finally:
            gone.cancel()
            heard.cancel()

    async def _open(self, peer: Peer, asked: pb.SessionRequest.Open) -> pb.SessionReply.Opened:
        sessions = self._desk.server.sessions
        peer.linger = min(length_of(asked, "session_ttl_us") or 0, FOREVER)
        self._desk.limits.check_session(peer.linger)
        peer.address = check_text(given(asked, "name"), "name") or peer.address
        if asked.HasField("uuid"):
            session = await sessions.join(peer, parse_uuid(asked.uuid))
        else:
            session = sessions.begin(peer)
            await self._desk.core.execute(ops.KeepAlive(session))  # the store has it by now, or this is refused
        self._desk.peers.setdefault(session.uuid, []).append(peer)
        return pb.SessionReply.Opened(
            uuid=session.uuid, name=session.name, session_ttl_us=peer.linger, resumed=asked.HasField("uuid")
        )

    def _end(self, peer: Peer) -> None:
        """The stream is over: what must be done goes on without it."""
        desk = self._desk
        desk.inside.discard(peer)
        if peer.session is not None:
            streams = desk.peers.get(peer.session.uuid, [])
            if peer in streams:
                streams.remove(peer)
            if not streams:
                desk.peers.pop(peer.session.uuid, None)
        if desk.retiring:
            peer.linger = max(peer.linger or 0, KEPT_TTL)  # the client comes back to the process that listens now
        desk.later(desk.server.sessions.leave(peer))


class TakeStream:
    """Tasks as they come, within the client's credit."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def serve(self, requests: AsyncIterator[pb.TakeDemand], context: Context) -> None:
        """Serve one stream."""
        try:
            call = Call(self._desk, context)
            session = await call.session()
            demand = await first_of(self._desk, requests, "a demand")
            op = take_op(demand.tube, demand.most or MOST, session, demand)
            call.check(op)
            flow = Flow(call, op)
            flow.hear(demand)
            await flow.serve(requests, context)
        except PenstockError as error:
            await refuse(context, error)
        except GONE:
            pass  # and what it has not read was given back


class Flow:
    """How much a client may still be sent, and what it has not said to have read."""

    def __init__(self, call: Call, op: ops.Take) -> None:
        self._call = call
        self._op = op
        self._credit = 0
        self._number = 0
        self._unread: deque[tuple[int, list[ops.Lease]]] = deque()
        self._held = 0
        self._heard = asyncio.Event()
        self._closed = False

    def hear(self, demand: pb.TakeDemand) -> None:
        """More credit, and what was read."""
        if demand.credit < 0 or not 0 <= demand.read <= self._number:
            raise UsageError(f"credit must not be negative, and read at most {self._number}")
        self._credit += demand.credit
        while self._unread and self._unread[0][0] <= demand.read:
            self._forget()
        self._heard.set()

    async def serve(self, requests: AsyncIterator[pb.TakeDemand], context: Context) -> None:
        """Send tasks until the client wants no more, or the server goes."""
        listening = asyncio.ensure_future(self._listen(requests))
        gone = asyncio.ensure_future(self._call.desk.closing.wait())
        gone.add_done_callback(lambda _: self._heard.set())
        leaving = self._call.peer.leaving
        leaving.add(self._leave)
        drained = ended = False
        try:
            while not drained and await self._wanted(listening):
                records = await self._take()
                if records:
                    await self._send(records, context)
                elif not self._over:
                    self._call.check_open()
                drained = records is None
            if not self._closed and not drained and not self._resumable:
                raise closing()
            # A connection that breaks looks like a client that wants no more, until something is written.
            await context.write(pb.TakeReply(number=self._number + 1, drained=drained, ended=True))
            ended = True  # and the status is OK: with any other clients of gRPC drop replies that were not looked at
        finally:
            listening.cancel()
            gone.cancel()
            leaving.discard(self._leave)
            if not ended:
                self._give_back()

    def _leave(self) -> None:
        """The session ends: what was not read goes back unused, which the end of a session alone does not do."""
        if not self._resumable:
            self._give_back()

    @property
    def _over(self) -> bool:
        return self._closed or self._call.desk.closing.is_set()

    @property
    def _resumable(self) -> bool:
        """Whether the session outlives this server: what was sent is its own then, as what Take has answered is."""
        return self._call.desk.retiring or self._call.peer.linger != 0

    async def _listen(self, requests: AsyncIterator[pb.TakeDemand]) -> None:
        try:
            async for demand in requests:
                self.hear(demand)
        finally:
            self._closed = True
            self._heard.set()
            self._call.stop_waiting()

    async def _wanted(self, listening: asyncio.Future[None]) -> bool:
        while not self._over and self._credit == 0:
            self._heard.clear()
            await self._heard.wait()
        if self._closed and listening.done() and not listening.cancelled():
            listening.result()
        return not self._over

    async def _take(self) -> list[Record] | None:
        op = self._op
        if op.n > self._credit:
            op = ops.Take(op.tube, self._credit, op.session, op.ttr, op.lane, op.drain)
        records = await self._call.take_now(op)
        return await self._call.wait_for_task(op, None) if records == [] and not self._over else records

    async def _send(self, records: list[Record], context: Context) -> None:
        self._number += 1
        reply = pb.TakeReply(number=self._number)
        sent = fill_tasks(reply, records, held=True)
        self._call.give_back(self._op, records[sent:])
        self._credit -= sent
        self._unread.append((self._number, [ops.Lease(record.id, record.token) for record in records[:sent]]))
        self._held += sent
        while self._held > UNREAD and len(self._unread) > 1:
            self._forget()
        await context.write(reply)

    def _forget(self) -> list[ops.Lease]:
        leases = self._unread.popleft()[1]
        self._held -= len(leases)
        return leases

    def _give_back(self) -> None:
        while self._unread:
            self._call.give_back(self._op, self._forget())
