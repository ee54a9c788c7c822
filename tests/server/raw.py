"""A client of Tarantool's protocol that may send anything."""

from __future__ import annotations

import socket
import struct
from typing import Any, NamedTuple

import msgpack

PING, CALL, CALL_16, AUTH, EVAL, SELECT, ID = 64, 10, 6, 7, 8, 1, 73
GREETING = 128


class Answer(NamedTuple):
    code: int
    sync: int
    body: dict[int, Any]
    header: dict[int, Any]

    @property
    def error(self) -> int | None:
        """Tarantool's number, or None."""
        return self.code - 0x8000 if self.code >= 0x8000 else None

    @property
    def text(self) -> str:
        return str(self.body[0x31])

    @property
    def data(self) -> Any:
        return self.body[0x30]


def packed(value: Any) -> bytes:
    made: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return made


def framed(content: bytes) -> bytes:
    return b"\xce" + struct.pack(">I", len(content)) + content


def frame(kind: int, sync: int, body: Any = None) -> bytes:
    return framed(packed({0: kind, 1: sync}) + (b"" if body is None else packed(body)))


def call(sync: int, name: str, *args: Any, kind: int = CALL) -> bytes:
    return frame(kind, sync, {0x22: name, 0x21: list(args)})


class Raw:
    """A connection; what it does not read stays unread."""

    def __init__(self, port: int, timeout: float = 90.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._buffer = bytearray()
        try:
            self.greeting = self._take(GREETING)
        except BaseException:
            self.close()
            raise

    def send(self, content: bytes) -> None:
        self.socket.sendall(content)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            more = self.socket.recv(1 << 20)
            if not more:
                raise EOFError
            self._buffer += more
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def answer(self) -> Answer:
        """The next one; EOFError if the server has closed the connection."""
        prefix = self._take(5)
        assert prefix[0] == 0xCE
        content = self._take(int.from_bytes(prefix[1:], "big"))
        unpacker = msgpack.Unpacker(strict_map_key=False, unicode_errors="surrogateescape")
        unpacker.feed(content)
        header, body = unpacker
        return Answer(header[0], header[1], body, header)

    def ask(self, content: bytes) -> Answer:
        self.send(content)
        return self.answer()

    def call(self, name: str, *args: Any) -> Any:
        """What a function returns; its error is an AssertionError."""
        answer = self.ask(call(1, name, *args))
        assert answer.error is None, answer
        return answer.data

    def is_closed(self) -> bool:
        """Wait until the server closes the connection."""
        try:
            while self.socket.recv(1 << 20):
                pass
        except ConnectionError:
            return True
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
