"""A line between a remote engine and its server that fails when told to."""

from __future__ import annotations

import socket
import threading
from typing import Any

import msgspec
from tests.support.proxy import LIMIT, REQUEST, Listening, call, read_exactly, reset

from penstock.model import ops
from penstock.wire import codec, iproto, talk


class Line(Listening):
    """Passes frames on. `lose()` breaks the connection at the next request of a sort, before or after it is done."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.made = 0
        """How many connections there were."""
        self._fault: tuple[str, Any] | None = None
        self._for_good = False
        self._struck = threading.Event()
        self.flowing = threading.Event()
        """While it is not set no answer comes through."""
        self.flowing.set()
        self._unnoticed: list[socket.socket] = []
        self._silent: set[socket.socket] = set()
        super().__init__()

    @property
    def address(self) -> str:
        """The URL of the server through this line."""
        return f"penstock://127.0.0.1:{self.port}"

    def lose(self, what: str, at: Any, for_good: bool = False) -> None:
        """Lose the request, or the reply to it: at is the type of an op, or the name of a kind of request.

        for_good: nobody gets through after that, until open().
        """
        self._struck.clear()
        self._for_good = for_good
        self._fault = (what, at)

    def wait(self) -> None:
        """Until that has happened."""
        assert self._struck.wait(LIMIT), "no such request comes"

    def break_all(self) -> None:
        """Every connection is reset."""
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            reset(client)

    def break_unnoticed(self) -> None:
        """Every connection is reset, and the server hears nothing of that."""
        with self._lock:
            self._silent |= self._clients
        self.break_all()

    def close(self) -> None:
        super().close()
        for server in self._unnoticed:
            reset(server)

    def _end(self, client: socket.socket, server: socket.socket) -> None:
        if client in self._silent:
            self._unnoticed.append(server)
        else:
            reset(server)

    def serve(self, client: socket.socket) -> None:
        self.made += 1
        server = call(self.to)
        swallowed: list[int] = []
        threading.Thread(target=self._reply, args=(client, server, swallowed), daemon=True).start()
        try:
            while True:
                frame = read_frame(client)
                fault = self._fault
                if fault is not None and matches(frame, fault[1]):
                    self._fault = None
                    if self._for_good:
                        self.shut()
                    if fault[0] == REQUEST:
                        reset(client)
                        reset(server)  # nothing that the server says from now on arrives
                        self._struck.set()
                        return
                    swallowed.append(number_of(frame))
                server.sendall(frame)
        finally:
            if not swallowed:
                self._end(client, server)

    def _reply(self, client: socket.socket, server: socket.socket, swallowed: list[int]) -> None:
        try:
            client.sendall(read_exactly(server, iproto.GREETING_SIZE))
            while True:
                frame = read_frame(server)
                self.flowing.wait(LIMIT)
                if swallowed and number_of(frame) == swallowed[0]:  # others may come first, as signs of life
                    reset(client)
                    self._struck.set()
                    return
                client.sendall(frame)
        except (EOFError, OSError):
            pass
        finally:
            self._end(client, server)
            reset(client)


def read_frame(stream: socket.socket) -> bytes:
    """One whole frame."""
    head = read_exactly(stream, iproto.PREFIX_SIZE)
    return head + read_exactly(stream, int.from_bytes(head[1:], "big"))


def parts(frame: bytes) -> Any:
    """Its header and its body."""
    return msgspec.msgpack.decode(b"\x92" + frame[iproto.PREFIX_SIZE :], strict=False)


def number_of(frame: bytes) -> int:
    """What a request and its answer have in common."""
    number: int = parts(frame)[0][iproto.SYNC]
    return number


def matches(frame: bytes, at: Any) -> bool:
    """Whether a request is of a sort."""
    _, body = parts(frame)
    name, (_, _, payload) = body[iproto.FUNCTION], body[iproto.TUPLE]
    kind = name.removeprefix("penstock.")
    if isinstance(at, str):
        return bool(kind == at)
    asked: list[ops.Op[Any]] = []
    if kind == "do":
        asked = codec.decode_ops(payload)
    elif kind == "wait":
        asked = [talk.decode_wait(payload).op]
    return any(isinstance(op, at) for op in asked)
