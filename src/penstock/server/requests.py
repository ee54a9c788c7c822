"""Requests of Tarantool's protocol as they come in: unpacked quickly if they are right, judged if they are not.

Text that is no UTF-8 is let in, as surrogates; everything is unpacked by one library first, which allocates
nothing for items that are announced and do not follow.
"""

from __future__ import annotations

import functools
from typing import Any

import msgpack
import msgspec

from penstock.wire import iproto
from penstock.wire.iproto import IprotoError

Header = dict[Any, Any]
Body = dict[Any, Any] | None
PAIR = b"\x92"
"""A header and a body that follow it, read as one array of two."""
MAX_KEY = 0x0A
"""The last key of headers that this protocol has."""
decode = msgspec.msgpack.Decoder().decode
_walk = msgspec.msgpack.Decoder(msgspec.Raw).decode
_unpack = functools.partial(msgpack.unpackb, strict_map_key=False, unicode_errors="surrogateescape")


class Malformed(Exception):
    """A request that cannot be performed: what to answer, and to which number."""

    def __init__(self, sync: int, error: IprotoError) -> None:
        super().__init__(error.text)
        self.sync = sync
        self.error = error


def read(frame: bytes) -> tuple[Header, Body]:
    """Header and body of a frame without its length; Malformed if it has none."""
    try:
        header, body = decode(PAIR + frame)
        if type(header) is dict and type(body) is dict:
            return header, body
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        pass
    return _judge(frame)


def _judge(frame: bytes) -> tuple[Header, Body]:
    header, rest = _first(frame, "packet header", 0)
    sync = check_header(header)
    if not rest:
        return header, None
    body, more = _first(rest, "packet body", sync)
    if more or type(body) is not dict:
        raise Malformed(sync, iproto.invalid("packet body"))
    return header, body


def _first(data: bytes, part: str, sync: int) -> tuple[Any, bytes]:
    """The first value in the bytes, and what follows it."""
    try:
        size = _size(data)
        _walk(data[:size])
        return _unpack(data[:size]), data[size:]
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException, msgspec.DecodeError):
        raise Malformed(sync, iproto.invalid(part)) from None


def _size(data: bytes) -> int:
    unpacker = msgpack.Unpacker(max_buffer_size=len(data) or 1, strict_map_key=False, raw=True)
    unpacker.feed(data)
    unpacker.skip()
    return int(unpacker.tell())


def check_header(header: Any) -> int:
    """The number of the request; Malformed if its header is none."""
    sync = header.get(iproto.SYNC, 0) if type(header) is dict else 0
    if type(sync) is not int or sync < 0:
        raise Malformed(0, iproto.invalid("packet header"))
    if type(header) is not dict or not all(type(key) is int and 0 <= key <= MAX_KEY for key in header):
        raise Malformed(sync, iproto.invalid("packet header"))
    if type(header.get(iproto.TYPE, 0)) is not int:
        raise Malformed(sync, iproto.invalid("packet header"))
    return sync


def field(body: dict[Any, Any], key: int, kind: type, name: str | None = None) -> Any:
    """A field of a body; `name` is given for one that must be there."""
    value = body.get(key)
    if value is None and name is not None:
        raise iproto.missing(name)
    if value is not None and type(value) is not kind:
        raise iproto.invalid("packet body")
    return value


def check_body(body: Body) -> dict[Any, Any]:
    """The body of a request that needs one; its keys are numbers."""
    if body is None:
        raise iproto.invalid("missing request body")
    if not all(type(key) is int for key in body):
        raise iproto.invalid("packet body")
    return body


def rows(values: list[Any]) -> list[Any]:
    """Return values as old clients get them: each is a row, and one list of rows is just these."""
    if len(values) == 1 and isinstance(values[0], list | tuple) and values[0] and all(map(_is_row, values[0])):
        return list(values[0])
    return [value if _is_row(value) else [value] for value in values]


def _is_row(value: Any) -> bool:
    return isinstance(value, list | tuple | msgspec.Raw)
