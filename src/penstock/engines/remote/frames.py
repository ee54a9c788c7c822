"""Frames of Tarantool's binary protocol, out of bytes that come in pieces."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from penstock.model.errors import EngineUnavailable
from penstock.wire import iproto

PAIR = b"\x92"
"""Makes an array of a header and a body."""


class Frames:
    """Keeps what is not whole yet. Many pieces are put together in place, and looked at when all are there."""

    def __init__(self) -> None:
        self._unread = bytearray()
        self._wanted = iproto.PREFIX_SIZE
        """Bytes that there must be before there is anything to see."""

    def cut(self, data: bytes) -> Iterator[bytes]:
        """What is whole now: a header and a body each."""
        if self._unread:
            self._unread += data
            if len(self._unread) >= self._wanted:
                at = yield from self._whole(self._unread)
                del self._unread[:at]
        else:
            at = yield from self._whole(data)  # most come whole
            if at < len(data):
                self._unread += data[at:] if at else data

    def _whole(self, data: bytes | bytearray) -> Generator[bytes, None, int]:
        at = 0
        while (end := frame_end(data, at)) is not None and end <= len(data):
            yield PAIR + data[at + iproto.PREFIX_SIZE : end]
            at = end
        self._wanted = iproto.PREFIX_SIZE if end is None else end - at
        return at


def frame_end(data: bytes | bytearray, at: int) -> int | None:
    """Where the frame that begins there ends; None: more bytes are needed to tell."""
    if len(data) - at < iproto.PREFIX_SIZE:
        return None
    if data[at] != 0xCE:
        raise EngineUnavailable("the server does not speak as it should")
    return at + iproto.PREFIX_SIZE + int.from_bytes(data[at + 1 : at + iproto.PREFIX_SIZE], "big")
