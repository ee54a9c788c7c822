"""One connection of Tarantool's protocol.

All complete frames of a read are looked at together; answers of one turn of the loop go out in one write. Nothing a
client sends can harm another connection: what cannot be read is answered, or closes this one.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.model import ops
from penstock.model.errors import AccessDenied
from penstock.server import requests
from penstock.server.core import log
from penstock.server.peer import Peer
from penstock.server.refusal import Refusal
from penstock.server.requests import PAIR, Malformed
from penstock.server.slowness import Slowness
from penstock.server.tarantool import Facade
from penstock.server.tarantool_caller import Args, Reply, Route
from penstock.wire import iproto
from penstock.wire.iproto import CALL, IprotoError, data_frame

if TYPE_CHECKING:
    from penstock.server.iproto_door import IprotoDoor

OWN = "penstock."
"""What the functions of the library's own clients begin with."""
SCHEMA = frozenset({277, 280, 281, 288, 289})
"""Spaces that clients read when they connect; they are empty here."""
LOGIN_FRAME = 4096
"""Bytes of one request of whoever has not logged in and has to."""
PARTING = 1.0
"""Seconds for which a connection that ends with an error still takes in what was sent."""
SCRAMBLE_SIZE = 20
SCRAMBLE_METHOD = "chap-sha1"
NOTHING = b"\x80"
_decode = requests.decode
_encode = msgspec.msgpack.Encoder().encode


class Connection(asyncio.Protocol):
    """Reads requests, has them performed and writes the answers."""

    transport: asyncio.Transport
    peer: Peer
    _run: Callable[[Route, Args, Reply], None]

    def __init__(self, door: IprotoDoor) -> None:
        self._door = door
        self._limits = door.limits
        self._frame = door.limits.frame
        self._core = core = door.server.core
        self._tally = core.tally
        self._facade: Facade | None = None
        self._routes: dict[str, Route] = {}
        """Functions of the facade that were called before."""
        self._salt = secrets.token_bytes(iproto.SALT_SIZE)
        self._unread = bytearray()
        self._wanted = 0
        """How many bytes there must be before it is worth looking at them."""
        self.open_requests = 0
        """Requests that have no answer yet."""
        self._out: list[bytes] = []
        self._paused = 0
        """Why nothing is read: bits of FULL and SLOW."""
        self._link: Any = None
        self._syncs: dict[int, int] = {}
        """Of requests of the library's own clients: which number a request of the link has come under."""
        self._login_timer: asyncio.TimerHandle | None = None
        self.lost = False
        self.closing = False
        """True once the connection is to end behind its last answer."""
        self._parting = False
        """True once what comes is not looked at: the end is on its way."""
        self._leaving = False
        """True once it is to end as soon as nothing is asked for and nothing held."""
        self._bade = False
        """True once a client of the library was asked to go elsewhere."""
        self._reads = 0
        self._reads_seen = -1

    # -- what the loop calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's is none by its class
        transport = self.transport
        door = self._door
        server = door.server
        try:
            login = server.welcome(transport.get_extra_info("peercert"))
        except AccessDenied as error:
            log.warning("a connection from %s was refused: %s", door.address(transport), error)
            transport.abort()
            return
        if not door.admit(self):
            return
        self.peer = Peer(door.address(transport), login)
        self._slowness = Slowness(server.core.loop, transport, self._limits, self.peer.address)
        if login.unknown:
            self._frame = min(LOGIN_FRAME, self._frame)
            self._login_timer = server.core.loop.call_later(self._limits.login_seconds, self._too_late)
        transport.set_write_buffer_limits(high=min(door.SLOW_AT, self._limits.unsent))
        transport.write(iproto.greeting(door.uuid, self._salt))

    def data_received(self, data: bytes) -> None:
        self._tally.received += len(data)
        self._reads += 1
        if self._parting:
            return
        if self._unread or self._paused:
            self._unread += data
            self._read_on()
        else:
            self._read(data)

    def pause_writing(self) -> None:
        self._pause(SLOW)
        self._slowness.begin()

    def resume_writing(self) -> None:
        self._resume(SLOW)

    def eof_received(self) -> None:
        if self._link is not None:
            self._link.end()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._door.forget(self)
        if self._login_timer is not None:
            self._login_timer.cancel()
        if self._link is not None:
            self._link.lost()
        if hasattr(self, "peer"):
            self._slowness.stop()
            self._door.leave(self.peer)

    # -- frames ------------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        at, end, limits = 0, len(data), self._limits
        try:
            while at < end:
                if data[at] == 0xCE and end - at >= 5:
                    start = at + 5
                    size = int.from_bytes(data[at + 1 : start], "big")
                else:
                    found = iproto.prefix(data, at)
                    if found is None:
                        self._keep(data, at, 0)
                        return
                    size, start = found
                if size > self._frame:
                    raise iproto.invalid(f"packet length {size} is over this server's limit of {self._frame} bytes")
                stop = start + size
                if stop > end:
                    self._keep(data, at, stop - at)
                    return
                if self.open_requests >= limits.pipeline and self._is_full():
                    self._keep(data, at, 0)
                    self._pause(FULL)
                    self._door.full.add(self)
                    return
                if self.closing:
                    return
                at = stop
                self._receive(data[start:stop])
        except IprotoError as error:
            # Where the next frame would begin cannot be known, or is too far to wait for.
            self._parting = self.closing = True
            self.send(iproto.error_frame(0, error))

    def _is_full(self) -> bool:
        """Whether too many requests are open; those that wait for a task have a limit of their own."""
        return self.open_requests - len(self.peer.waits) >= self._limits.pipeline

    def _keep(self, data: bytes, at: int, wanted: int) -> None:
        self._unread += memoryview(data)[at:]
        self._wanted = wanted

    def _receive(self, frame: bytes) -> None:
        try:
            header, body = _decode(PAIR + frame)
            name, args, sync = body[0x22], body[0x21], header[1]
            usual = header[0] == CALL and len(body) == 2 and len(header) == 2 and type(sync) is int and sync >= 0
            usual = usual and type(name) is str and type(args) is list
        except (LookupError, TypeError, ValueError, RecursionError):
            usual = False
        if not usual:
            self._receive_any(frame)
            return
        self.open_requests += 1
        route = self._routes.get(name)
        if route is None:
            self._call(sync, name, args, self._answer)
        else:
            self._run(route, args, partial(self._answer, sync))

    def _receive_any(self, frame: bytes) -> None:
        """A request of any kind, right or wrong."""
        try:
            header, body = requests.read(frame)
            sync = requests.check_header(header)
        except Malformed as malformed:
            self.send(iproto.error_frame(malformed.sync, malformed.error))
            return
        self.open_requests += 1
        try:
            kind = header.get(iproto.TYPE, 0)
            handle = HANDLERS.get(kind)
            if handle is None:
                raise IprotoError(iproto.UNKNOWN_TYPE, f"Unknown request type {kind}")
            handle(self, sync, body)
        except IprotoError as error:
            self.refuse(sync, error)

    # -- requests ----------------------------------------------------------------------------------

    def _ping(self, sync: int, body: requests.Body) -> None:
        self._done(iproto.frame(sync, NOTHING))

    def _identify(self, sync: int, body: requests.Body) -> None:
        self._done(
            iproto.frame(sync, _encode({iproto.VERSION: 1, iproto.FEATURES: [], iproto.AUTH_TYPE: SCRAMBLE_METHOD}))
        )

    def _auth(self, sync: int, body: requests.Body) -> None:
        fields = requests.check_body(body)
        user = requests.field(fields, iproto.USER, str, "user name")
        proof = requests.field(fields, iproto.TUPLE, list, "tuple")
        logins = self._door.server.logins
        if not logins.guest.unknown or (user == "guest" and not proof):
            self._done(iproto.frame(sync, NOTHING))
            return
        if len(proof) < 2:
            raise iproto.invalid("authentication request body")
        scramble = proof[1]
        if isinstance(scramble, str):
            scramble = scramble.encode(errors="surrogateescape")
        if not isinstance(scramble, bytes) or len(scramble) != SCRAMBLE_SIZE:
            raise iproto.invalid("invalid scramble size")
        try:
            self.peer.login = logins.scramble(user, self._salt[: iproto.LOGIN_SALT_SIZE], scramble)
        except AccessDenied as error:
            log.warning("%s could not log in: %s", self.peer.address, error)
            raise IprotoError(iproto.WRONG_PASSWORD, f"Incorrect password supplied for user '{user}'") from None
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._frame = self._limits.frame
        self._done(iproto.frame(sync, NOTHING))

    def _select(self, sync: int, body: requests.Body) -> None:
        fields = requests.check_body(body)
        space = requests.field(fields, iproto.SPACE_ID, int, "space id")
        requests.field(fields, iproto.LIMIT, int, "limit")
        requests.field(fields, iproto.KEY, list, "key")
        if space not in SCHEMA:
            raise IprotoError(iproto.NO_SUCH_SPACE, f"Space '{space}' does not exist")
        self._done(data_frame(sync, b"\x90"))

    def _call_any(self, sync: int, body: requests.Body, shaped: bool = False) -> None:
        fields = requests.check_body(body)
        name = requests.field(fields, iproto.FUNCTION, str, "function name")
        args = requests.field(fields, iproto.TUPLE, list) or []
        self._call(sync, name, args, self._answer_shaped if shaped else self._answer)

    def _eval(self, sync: int, body: requests.Body) -> None:
        fields = requests.check_body(body)
        text = requests.field(fields, iproto.EXPRESSION, str, "expression")
        args = requests.field(fields, iproto.TUPLE, list) or []
        if self.peer.login.unknown:
            raise self._denied("universe", "")
        self.facade.evaluate(text, args, partial(self._answer, sync))

    @property
    def facade(self) -> Facade:
        """Made when it is needed: the library's own clients do not call its functions."""
        if self._facade is None:
            self._facade = facade = Facade(self._core, self._door.server.sessions, self.peer)
            self._routes, self._run = facade.routes, facade.caller.run
        return self._facade

    def _call(self, sync: int, name: str, args: list[Any], answer: Callable[[int, Any], None]) -> None:
        if self.peer.login.unknown:
            self.refuse(sync, self._denied("function", name))
        elif name.startswith(OWN):
            self._carry(sync, name[len(OWN) :], args)
        else:
            self.facade.call(name, args, partial(answer, sync))

    def _denied(self, what: str, name: str) -> IprotoError:
        text = f"Execute access to {what} '{name}' is denied for user '{self.peer.login.name}'"
        fields = {"object_type": what, "object_name": name, "access_type": "Execute"}
        return IprotoError(iproto.ACCESS_DENIED, text, "AccessDeniedError", **fields)

    def _carry(self, sync: int, kind: str, args: list[Any]) -> None:
        """A request of the library's own clients."""
        if len(args) != 3 or type(args[0]) is not int or type(args[1]) is not int or type(args[2]) is not bytes:
            self.refuse(sync, iproto.invalid("packet body"))
            return
        number, seen, payload = args
        if self._link is None:
            self._link = self._door.link(self)
        self._syncs[number] = sync
        self._link.receive(number, seen, kind, payload)

    # -- answers -----------------------------------------------------------------------------------

    def send_answer(self, number: int, failed: bool, payload: bytes) -> None:
        """What a link says: the answer to the request of that number, or with 0 something nobody asked for."""
        packed = (b"\x92\xc3" if failed else b"\x92\xc2") + iproto.bin_header(len(payload)) + payload
        if number == 0:
            self.send(iproto.push_frame(packed))
            return
        sync = self._syncs.pop(number, None)
        if sync is not None:
            self._done(data_frame(sync, packed))

    def _answer(self, sync: int, answer: list[Any] | IprotoError) -> None:
        """What a function returned, or why it was refused."""
        if isinstance(answer, IprotoError):
            self.refuse(sync, answer)
            return
        try:
            frame = data_frame(sync, _encode(answer))
        except Exception as error:
            log.exception("an answer for %s could not be packed", self.peer.address)
            self.refuse(sync, Refusal(str(error)))
            return
        if self._leaving or self._paused:
            self._done(frame)
            return
        self.open_requests -= 1
        if not self._out:
            self._door.write_soon(self)
        self._out.append(frame)

    def _answer_shaped(self, sync: int, answer: list[Any] | IprotoError) -> None:
        """The same as functions were called once: everything returned is a row."""
        self._answer(sync, answer if isinstance(answer, IprotoError) else requests.rows(answer))

    def refuse(self, sync: int, error: IprotoError) -> None:
        """Answer with an error."""
        self._done(iproto.error_frame(sync, error))

    def _done(self, frame: bytes) -> None:
        self.open_requests -= 1
        if self._leaving and not self.open_requests:
            self._if_free(partial(self._send_last, frame), partial(self.send, frame))
        else:
            self.send(frame)
        if self._paused & FULL:
            self.go_on_reading()

    def send(self, frame: bytes) -> None:
        """Write a frame with the others of this turn."""
        if not self._out:
            self._door.write_soon(self)
        self._out.append(frame)

    def write(self) -> None:
        """Write what has come together."""
        out, self._out = self._out, []
        if self.lost:
            return
        joined = out[0] if len(out) == 1 else b"".join(out)
        self._tally.sent += len(joined)
        slow = self._paused & SLOW
        self.transport.write(joined)
        if slow:
            self._slowness.wrote(len(joined))
        if self.closing and not self.open_requests:
            self._part()

    def _part(self) -> None:
        """Close. While something comes in that is not read, the last answer could be lost with that: wait a little."""
        if self._parting and self.transport.can_write_eof():
            self.transport.write_eof()
            self._core.loop.call_later(PARTING, self.transport.abort)
        else:
            self.transport.close()

    # -- the end, and pauses -----------------------------------------------------------------------

    def close(self) -> None:
        """Read no more, and end behind the last answer."""
        self.closing = True
        self._pause(CLOSED)
        if not self._out and not self.open_requests:
            self.transport.close()

    def say_bye(self, deaf: bool = False) -> bool:
        """Tell a client of the library to go elsewhere; answers False while it has a transaction open here.

        Clients of tarantool/queue do not understand that, and stay. deaf: nothing is read from now on.
        """
        if self._link is None or self._bade:
            return True
        if self._link.busy and not deaf:
            return False
        self._bade = True
        self._link.bye(deaf)
        return True

    def leave_when_free(self) -> None:
        """Wait for nothing more, and end behind the first answer after which no task is held.

        Who has asked for nothing else cannot have sent the next request by then, and finds the end before it does.
        """
        self._leaving = True
        for wait in tuple(self.peer.waits):
            wait.leave()

    def leave_if_idle(self) -> None:
        """End if nothing is held, and nothing was asked for since the last time this was called."""
        seen, self._reads_seen = self._reads_seen, self._reads
        if seen == self._reads and not self.open_requests and not self._unread:
            self._if_free(self._end_if_idle, lambda: None)

    def _if_free(self, free: Callable[[], object], otherwise: Callable[[], object]) -> None:
        """Call the one if the session holds no task, else the other."""
        if self.peer.session is None:
            free()
            return

        def then(held: list[ops.Held] | BaseException) -> None:
            (otherwise if held else free)()

        self._door.server.core.ask(ops.ListLeases(self.peer.session), then)

    def _send_last(self, frame: bytes) -> None:
        if not self.open_requests and not self._unread:
            # The end has to arrive with the answer, or the next request may be on its way before it.
            sock = self.transport.get_extra_info("socket")
            if hasattr(socket, "TCP_CORK") and sock is not None and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            self.send(frame)
            self.close()
        else:
            self.send(frame)

    def _end_if_idle(self) -> None:
        if not self.open_requests and not self._unread and not self._out:
            self.close()

    def _too_late(self) -> None:
        if self.peer.login.unknown:
            log.warning("%s did not log in within %g s", self.peer.address, self._limits.login_seconds)
            self.transport.abort()

    def go_on_reading(self) -> None:
        """Some requests may have been answered, or wait for a task now and do not count."""
        if not self._is_full():
            self._door.full.discard(self)
            self._resume(FULL)

    def _pause(self, why: int) -> None:
        if not self._paused and not self.lost:
            self.transport.pause_reading()
        self._paused |= why

    def _resume(self, why: int) -> None:
        if not self._paused & why:
            return
        self._paused &= ~why
        if self._paused or self.lost:
            return
        self.transport.resume_reading()
        if self._unread:
            self._door.server.core.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        """What came in with a read that was too much at once."""
        if self._unread and not self._paused and not self.lost and len(self._unread) >= self._wanted:
            data = bytes(self._unread)
            self._unread.clear()
            self._read(data)


FULL, SLOW, CLOSED = 1, 2, 4
"""Reasons to read nothing: too many open requests, answers that are not read, the end."""
HANDLERS: dict[int, Any] = {
    iproto.PING: Connection._ping,
    iproto.ID: Connection._identify,
    iproto.AUTH: Connection._auth,
    iproto.SELECT: Connection._select,
    iproto.CALL: Connection._call_any,
    iproto.CALL_16: partial(Connection._call_any, shaped=True),
    iproto.EVAL: Connection._eval,
}
