"""Tarantool's binary protocol: the greeting, the frames, the numbers in them.

A frame is a length, a header and a body, all of them msgpack. Servers and the library's own clients use it. The header
of an answer is always of the same size; its schema version never changes, so no client reads the schema again.
"""

from __future__ import annotations

import struct
from base64 import b64encode

import msgspec

SELECT, CALL_16, AUTH, EVAL, CALL, PING, ID, CHUNK = 1, 6, 7, 8, 10, 64, 73, 128
"""Kinds of requests, and of the one frame that is no answer."""
TYPE, SYNC, SCHEMA_VERSION = 0x00, 0x01, 0x05
"""Keys of headers."""
SPACE_ID, LIMIT, KEY, TUPLE, FUNCTION, USER, EXPRESSION = 0x10, 0x12, 0x20, 0x21, 0x22, 0x23, 0x27
DATA, ERROR_TEXT, ERROR, VERSION, FEATURES, AUTH_TYPE = 0x30, 0x31, 0x52, 0x54, 0x55, 0x5B
"""Keys of bodies."""
UNKNOWN_ERROR, INVALID_MSGPACK, PROC_LUA, NO_SUCH_PROC, NO_SUCH_SPACE = 0, 20, 32, 33, 36
ACCESS_DENIED, NO_SUCH_USER, WRONG_PASSWORD, UNKNOWN_TYPE, MISSING_FIELD = 42, 45, 47, 48, 69
"""Codes of errors."""
GREETED_AS = "2.6.0"
"""With a later version clients would ask for what came later: streams, watchers."""
GREETING_SIZE = 128
SALT_SIZE = 32
LOGIN_SALT_SIZE = 20
"""So many bytes of the salt are used to log in."""
PREFIX_SIZE = 5
"""Several clients read exactly so many bytes for the length, whatever the length."""
_HEAD = struct.Struct(">BI2sBI2sQ6s")
_HEADER_SIZE = _HEAD.size - PREFIX_SIZE
_SCHEMA = b"\x05\xce\x00\x00\x00\x01"
_OK = struct.Struct(">BI9sQ8s").pack
_OK_HEADER = b"\x83\x00\xce\x00\x00\x00\x00\x01\xcf"
_OK_DATA = _SCHEMA + b"\x81\x30"
_BIN = (struct.Struct(">BB"), struct.Struct(">BH"), struct.Struct(">BI"))
_encode = msgspec.msgpack.Encoder().encode


class IprotoError(Exception):
    """An answer that is an error, with Tarantool's number for it."""

    def __init__(self, code: int, text: str, kind: str = "ClientError", **fields: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.kind = kind
        self.fields = fields


def invalid(part: str) -> IprotoError:
    """A part of a frame is not what the protocol says it is."""
    return IprotoError(INVALID_MSGPACK, f"Invalid MsgPack - {part}")


def missing(field: str) -> IprotoError:
    """A body lacks what a request of its kind must have."""
    return IprotoError(MISSING_FIELD, f"Missing mandatory field '{field}' in request")


def greeting(uuid: str, salt: bytes) -> bytes:
    """The two lines that a server sends first.

    >>> len(greeting("f" * 36, bytes(32)))
    128
    """
    first = f"Tarantool {GREETED_AS} (Binary) {uuid}".ljust(63) + "\n"
    return first.encode() + b64encode(salt).ljust(63) + b"\n"


def prefix(data: bytes, at: int) -> tuple[int, int] | None:
    """The length of the frame that begins there, and where its header begins; None: more bytes are needed.

    >>> prefix(b"\\xce\\x00\\x00\\x00\\x05", 0), prefix(b"\\x05", 0), prefix(b"\\xcd\\x00", 0)
    ((5, 5), (5, 1), None)
    """
    first = data[at]
    if first < 0x80:
        return first, at + 1
    if not 0xCC <= first <= 0xCF:
        raise invalid("packet length")
    start = at + 1 + (1 << (first - 0xCC))
    return (int.from_bytes(data[at + 1 : start], "big"), start) if len(data) >= start else None


def data_frame(sync: int, packed: bytes) -> bytes:
    """The answer to a request; `packed` is an array."""
    return _OK(0xCE, _HEADER_SIZE + 2 + len(packed), _OK_HEADER, sync, _OK_DATA) + packed


def bin_header(size: int) -> bytes:
    """What comes before so many bytes of binary data.

    >>> bin_header(3), bin_header(300)
    (b'\\xc4\\x03', b'\\xc5\\x01,')
    """
    wide = 0 if size < 1 << 8 else 1 if size < 1 << 16 else 2
    return _BIN[wide].pack(0xC4 + wide, size)


def frame(sync: int, body: bytes, code: int = 0) -> bytes:
    """An answer with any body; `code` of an error begins at 0x8000."""
    size = _HEADER_SIZE + len(body)
    return _HEAD.pack(0xCE, size, b"\x83\x00", 0xCE, code, b"\x01\xcf", sync, _SCHEMA) + body


def push_frame(packed: bytes) -> bytes:
    """A frame that answers nothing; `packed` is an array."""
    return frame(0, b"\x81\x30" + packed, CHUNK)


def error_frame(sync: int, error: IprotoError) -> bytes:
    """An error, once as text for older clients and once with all that is known of it."""
    text = _readable(error.text)
    entry: dict[int, object] = {0: error.kind, 2: 0, 1: "penstock", 3: text, 4: 0, 5: error.code}
    if error.fields:
        entry[6] = {name: _readable(value) for name, value in error.fields.items()}
    return frame(sync, _encode({ERROR_TEXT: text, ERROR: {0: [entry]}}), 0x8000 | error.code)


def _readable(text: str) -> str:
    """What a client sent may be in it, and that may be no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()
