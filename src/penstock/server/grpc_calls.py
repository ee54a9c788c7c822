"""Who calls over gRPC, in which session; and calls that may be cancelled while the queue works for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from penstock import calls
from penstock.engines.line import Answer, Producer, Taker, Waiter, Watcher, raised
from penstock.engines.refund import grants
from penstock.model import ops
from penstock.model.duration import FOREVER
from penstock.model.errors import AccessDenied, EngineUnavailable, PenstockError, SessionExpired, UsageError
from penstock.model.session import Session, parse_uuid
from penstock.model.task import Record
from penstock.model.tube import TubeConfig
from penstock.server.auth import Login
from penstock.server.book import give_back
from penstock.server.core import ALTERING, Wait, is_long, log
from penstock.server.peer import Peer
from penstock.wire import status
from penstock.wire.status import NotKnown

if TYPE_CHECKING:
    from penstock.server.link import Link
    from penstock.server.server import Server

SESSION = "penstock-session"
NO_LOGIN = (
    "this server needs a login: in the URL, as grpc://NAME:SECRET@host:port, or as metadata, "
    "authorization: Bearer NAME:SECRET"
)
Context = Any
"""A grpc.aio.ServicerContext; the library has no types."""
GONE = grpc.aio.BaseError
"""What reads and writes raise if the client has gone, or the server has stopped, and the call goes on for a moment."""


class Desk:
    """What all calls of a door share."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.core = server.core
        self.limits = server.settings.limits
        self.peers: dict[str, list[Peer]] = {}
        """Session streams of this server, by the uuid of their session."""
        self.visitors: dict[str, Peer] = {}
        """Connections with calls that wait and are of no session here, by their address."""
        self.inside: set[Peer] = set()
        """Streams that were let in: of sessions, whether they have opened one or not, and of engines."""
        self.links: dict[Link, Peer] = {}
        """Engines of the library that are connected."""
        self.closing = asyncio.Event()
        self.leaving = False
        """True once no new session is let in."""
        self.retiring = False
        """True if another process listens now, to which clients go over."""
        self._after: set[asyncio.Task[Any]] = set()

    def login(self, context: Context, metadata: dict[str, Any]) -> Login:
        """The login of a call: a token, a certificate, or a guest's; NotKnown."""
        try:
            login = self._login(context, metadata)
        except AccessDenied as error:
            log.warning("%s could not log in: %s", context.peer(), error)
            raise NotKnown(str(error)) from None
        if login.unknown:
            raise NotKnown(NO_LOGIN)
        return login

    def _login(self, context: Context, metadata: dict[str, Any]) -> Login:
        text = metadata.get("authorization")
        if text is None:
            names = self.server.settings.tls and context.auth_context().get("x509_common_name")
            return self.server.logins.certificate(names[0].decode()) if names else self.server.logins.guest
        kind, _, credentials = text.partition(" ")
        name, colon, token = credentials.partition(":")
        if kind.lower() != "bearer" or not colon:
            raise AccessDenied("authorization must be: Bearer NAME:SECRET")
        return self.server.logins.token(name, token)

    async def config(self, tube: str) -> TubeConfig:
        """The options of a tube, as they were a moment ago."""
        configs = self.core.configs
        config = configs.known.get(tube)
        if config is None:
            asked = configs.changes
            config = await self.core.execute(ops.GetTube(tube))
            configs.add(config, asked)
        return config

    def admit(self, peer: Peer) -> None:
        """Let a stream in; one too many, or any when the server is going, is refused."""
        if self.leaving or self.closing.is_set():
            raise closing()
        if len(self.inside) >= self.limits.connections:
            raise EngineUnavailable("too many clients are connected; come back later", "not_done")
        self.inside.add(peer)
        self.core.tally.accepted += 1

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something whose caller is gone."""
        task = self.core.loop.create_task(work)
        self._after.add(task)
        task.add_done_callback(self._after.discard)

    def end_waits(self) -> None:
        """Whoever waits gets what it has; streams end."""
        self.closing.set()
        sessions = [peer for peers in self.peers.values() for peer in peers]
        for peer in (*self.visitors.values(), *sessions, *self.links.values()):
            for wait in tuple(peer.waits):
                wait.leave()

    async def settled(self) -> None:
        """Come back when the sessions of all streams have been left."""
        while self._after:
            await asyncio.wait(tuple(self._after))


class Call:
    """One call: who it is, and what it waits for."""

    def __init__(self, desk: Desk, context: Context) -> None:
        self.desk = desk
        self.core = desk.core
        self.context = context
        metadata: dict[str, Any] = dict(context.invocation_metadata() or ())
        self.login = desk.login(context, metadata)
        self._uuid = metadata.get(SESSION)
        self._peer: Peer | None = None
        self._waiting: Wait | None = None

    @property
    def peer(self) -> Peer:
        """The stream of the call's session; of a call without one, who it comes from."""
        if self._peer is None:
            address = self.context.peer()
            self._peer = self.desk.visitors.get(address) or Peer(address, self.login)
        return self._peer

    def check(self, op: ops.Op[Any]) -> None:
        """AccessDenied if the login may not do that."""
        self.login.check(op)

    async def session(self) -> Session:
        """The session that the metadata names; it may have its stream at another server of the same store."""
        if self._uuid is None:
            raise UsageError(f"this call needs a session: open one with Session and pass its uuid as {SESSION}")
        peers = self.desk.peers.get(self._uuid)
        if peers is None:
            uuid = parse_uuid(self._uuid)
            peers = self.desk.peers.get(uuid)  # it may be written in another way
        if peers is None:
            return await self.core.execute(ops.Identify(uuid, Session(uuid, "", 0, direct=False)))
        self._peer = peers[-1]
        return self._peer.held()

    async def execute(self, op: ops.Op[Any]) -> Any:
        """Perform an op; one that may take long gets a thread of its own."""
        self.check(op)
        if self.login.needs_lease(op):
            op = self.login.with_lease(op, await self.core.execute(ops.ListLeases(op.session)))  # type: ignore[attr-defined]
        if not is_long(op):
            return await self.core.execute(op)
        try:
            return await self.core.loop.run_in_executor(self.desk.server.book.aside, self.core.engine.execute, op)
        finally:
            if type(op) in ALTERING:
                self.core.configs.forget()

    # -- takes -------------------------------------------------------------------------------------

    async def take(self, op: ops.Take, timeout: int | None) -> list[Record] | None:
        """Take now, or within so many microseconds. What a cancelled call was granted is given back."""
        records = await self.take_now(op)
        return await self.wait_for_task(op, timeout) if records == [] and timeout != 0 else records

    async def take_now(self, op: ops.Take) -> list[Record] | None:
        """What is there."""
        self.check(op)
        self.check_open()
        records: list[Record] | None = await self._granted(op, lambda then: self.core.ask(op, then))
        return records

    async def wait_for_task(self, op: ops.Take, timeout: int | None) -> list[Record] | None:
        """Stand in line; stop_waiting() ends that from the moment of the call on."""
        self.check_open()
        taker = Taker(op, calls.wait_until(self.core.engine.clock.now(), timeout))
        records: list[Record] | None = await self._granted(
            op, lambda then: self._wait(taker, self.within(timeout), then)
        )
        return records

    async def _granted(self, op: ops.Take, begin: Callable[[Callable[[Any], None]], object]) -> Any:
        future: asyncio.Future[Any] = self.core.loop.create_future()
        peer = self.peer

        def then(answer: Answer) -> None:
            peer.took()
            if future.done():
                self.give_back(op, answer)
            else:
                future.set_result(answer)

        peer.takes()
        try:
            wait = begin(then)
        except PenstockError:
            peer.took()
            raise
        try:
            return raised(await future)
        except asyncio.CancelledError:
            if isinstance(wait, Wait):
                wait.leave()
            if future.done() and not future.cancelled():
                self.give_back(op, future.result())
            raise

    def give_back(self, op: ops.Take, answer: Answer) -> None:
        """Nobody got these tasks, records or leases."""
        give_back(self.core, grants((op,), (answer,)))

    def within(self, timeout: int | None) -> float | None:
        """Seconds to wait: an answer must reach the caller before the deadline of the call."""
        seconds = calls.seconds(timeout)
        left: float | None = self.context.time_remaining()
        if left is None:
            return seconds
        left -= min(1.0, max(0.05, left / 10))
        return max(0.0, left if seconds is None else min(seconds, left))

    # -- waiting -----------------------------------------------------------------------------------

    def _wait(self, waiter: Waiter, seconds: float | None, then: Callable[[Any], None]) -> Wait:
        peer, limits = self.peer, self.desk.limits
        if len(peer.waits) >= limits.waiting_each or self.core.engine.store.waiters >= limits.waiting:
            raise EngineUnavailable("too many calls wait here already; wait with fewer of them", "not_done")

        def over(answer: Answer) -> None:
            peer.waits.discard(wait)
            if not peer.waits:
                self.desk.visitors.pop(peer.address, None)
            then(answer)

        wait = self._waiting = self.core.wait(waiter, seconds, over)
        peer.waits.add(wait)
        if peer.session is None:
            self.desk.visitors[peer.address] = peer
        return wait

    def stop_waiting(self) -> None:
        """The call waits no longer; it is answered with what it was granted by now."""
        if self._waiting is not None:
            self._waiting.leave()

    async def wait(self, waiter: Producer | Watcher, timeout: int | None) -> Any:
        """The answer of a waiter that takes no task."""
        future: asyncio.Future[Any] = self.core.loop.create_future()

        def then(answer: Answer) -> None:
            if not future.done():
                future.set_result(answer)

        wait = self._wait(waiter, self.within(timeout), then)
        try:
            return raised(await future)
        finally:
            wait.leave()

    def check_open(self) -> None:
        """Refuse to go on where the server, or the session, is going."""
        if self.desk.closing.is_set():
            raise closing()
        if self.peer.closed:
            raise SessionExpired("the session's stream has ended")


def closing() -> EngineUnavailable:
    """What calls are told that come too late."""
    return EngineUnavailable("the server is closing; connect again", "not_done")


def clipped(timeout: int) -> int | None:
    """A timeout of a message: negative is none, 100 years are for ever."""
    return None if timeout >= FOREVER else max(0, timeout)


Verb = Callable[[Any, Call], Awaitable[Any]]


def handler(desk: Desk, verb: Verb) -> Callable[[Any, Context], Awaitable[Any]]:
    """A unary call: what the verb refuses becomes the status."""

    async def handle(request: Any, context: Context) -> Any:
        try:
            return await verb(request, Call(desk, context))
        except PenstockError as error:
            await refuse(context, error)
        except Exception as error:
            log.exception("a call of gRPC failed")
            await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__} on the server")

    return handle


class Granted(NamedTuple):
    """A reply with tasks."""

    reply: Any
    op: ops.Take
    records: list[Record]


def granting(desk: Desk, take: Callable[[Any, Call], Awaitable[Granted]]) -> Callable[[Any, Context], Awaitable[None]]:
    """A unary call whose reply grants tasks: what cannot be sent any more is given back.

    To gRPC it is a stream of one reply, for of a stream it is told whether that went out; clients see no difference.
    """

    async def perform(request: Any, call: Call) -> None:
        granted = await take(request, call)
        try:
            await call.context.write(granted.reply)
        except BaseException as error:
            call.give_back(granted.op, granted.records)
            if not isinstance(error, Exception):
                raise
            log.info("%s went before it had its tasks", call.peer.address)

    return handler(desk, perform)


async def refuse(context: Context, error: PenstockError) -> None:
    """End a call with the status of an error."""
    await context.abort(*status.trailer(error))
