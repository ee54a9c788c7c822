"""Data to text and back: JSON that means the same on every engine, or plain bytes."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from penstock.model.errors import UsageError, shown
from penstock.model.task import Data

MAX_DEPTH = 64
SHORT = 2 * MAX_DEPTH
"""Characters: a text that has no more has no room to be nested too deep."""
MAX_ERROR = 4096
MAX_CAUSES = 20
_encoder = msgspec.json.Encoder()
_encode = _encoder.encode
_decode = msgspec.json.Decoder().decode


def encode(data: Any, payload: Literal["json", "bytes"] = "json") -> Data:
    """Encode a task's data; what would not come back equal is refused.

    >>> encode({"url": "http://a.example/"})
    '{"url":"http://a.example/"}'
    """
    if payload == "bytes":
        if not isinstance(data, bytes | bytearray | memoryview):
            raise UsageError(f"this tube has payload='bytes' and takes bytes, got {type(data).__name__}")
        return bytes(data)
    _check(data, MAX_DEPTH)
    return _encode(data).decode()


def encode_unpacked(data: Any) -> str:
    """The same as encode() for what was unpacked from msgpack, and so has no types of anybody's own."""
    try:
        text = _encode(data)
        plain = b"\\u0000" not in text and text.count(b"[") + text.count(b"{") <= MAX_DEPTH
        if plain and _decode(text) == data:
            return text.decode()
    except (TypeError, ValueError, RecursionError):
        pass
    _check(data, MAX_DEPTH)
    return _encode(data).decode()


def checked_json(text: str) -> Any:
    """The value of a JSON text of somebody's who may have made it in any way; UsageError if it is none that is stored.

    >>> checked_json('{"n": 1}')
    {'n': 1}
    """
    try:
        value = _decode(text)
    except _NO_JSON as error:
        raise UsageError(f"json is no JSON text: {error}") from None
    if _is_suspicious(text) or _is_deep(text):
        _check(value, MAX_DEPTH)
    return value


def plain_json(texts: Sequence[str]) -> list[Any] | None:
    """The values of many such texts at once; None if one of them is none, or needs a closer look.

    >>> plain_json(['{"n": 1}', "[ ]"]), plain_json(["{", "1"])
    ([{'n': 1}, []], None)
    """
    try:
        values = [_decode(text) for text in texts]
    except _NO_JSON:
        return None
    return None if _is_suspicious("\n".join(texts)) or any(map(_is_deep, texts)) else values


def encode_plain(values: list[Any]) -> list[str]:
    """Such values as they are stored, each as encode() makes it.

    >>> encode_plain([{"n": 1}, []])
    ['{"n":1}', '[]']
    """
    return _encoder.encode_lines(values).decode().split("\n")[:-1]


_NO_JSON = (msgspec.DecodeError, UnicodeEncodeError, RecursionError)
_DIGITS = bytes.maketrans(b"0123456789", b"0" * 10)
_LONG = b"0" * 19


def _is_suspicious(text: str) -> bool:
    """Only what is escaped can be a NUL or half a character, and only what is long an integer that no store holds."""
    return "\\" in text or _LONG in text.encode().translate(_DIGITS)


def _is_deep(text: str) -> bool:
    """Whether it may be nested too deep."""
    return len(text) > SHORT and text.count("[") + text.count("{") > MAX_DEPTH


def decode(data: Data) -> Any:
    """The value that was put."""
    return data if isinstance(data, bytes) else _decode(data)


def encode_result(value: Any) -> str | None:
    """A result is JSON whatever the tube's payload; None is no result."""
    if value is None:
        return None
    _check(value, MAX_DEPTH)
    return _encode(value).decode()


def _check(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str:
        _check_text(value)
    elif kind is dict or kind is list:
        if depth == 0:
            raise UsageError(f"data may be nested at most {MAX_DEPTH} deep")
        if kind is dict:
            _check_keys(value, depth)
        for item in value if kind is list else value.values():
            if type(item) is str:
                _check_text(item)
            else:
                _check(item, depth - 1)
    elif kind is int:
        if not -(1 << 63) <= value < 1 << 64:
            raise UsageError(f"integers in data must be between -2**63 and 2**64-1, got {shown(value)}")
    elif kind is float:
        if not math.isfinite(value):
            raise UsageError(f"numbers in data must be finite, got {value!r}")
    elif value is not None and kind is not bool:
        hint = "; make it a list" if isinstance(value, tuple | set | frozenset) else ""
        if isinstance(value, bytes | bytearray | memoryview):
            hint = '; a tube with payload="bytes" takes bytes as they are'
        raise UsageError(
            f"data may hold None, bool, int, float, text, lists and dicts, not {kind.__name__}: {shown(value)}{hint}"
        )


def _check_keys(value: dict[Any, Any], depth: int) -> None:
    for key in value:
        if type(key) is not str:
            _check(key, depth - 1)
            raise UsageError(f"keys in data must be text, got {key!r}")
        _check_text(key)


def _check_text(value: str) -> None:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"text in data must not contain lone surrogates: {value!r}") from None
    if "\0" in value:
        raise UsageError("text in data must not contain NUL characters")


def error_text(error: BaseException | str | None) -> str | None:
    """An error as text: type, message, the end of the traceback, what caused it. Nothing is ever rebuilt from it."""
    if error is None:
        return None
    if isinstance(error, BaseException):
        trace = "".join(traceback.format_tb(error.__traceback__))[-MAX_ERROR:]
        text = f"{_headline(error)}\n{trace}".rstrip() + "".join(_more(error))[:MAX_ERROR]
    elif isinstance(error, str):
        text = error[:MAX_ERROR]
    else:
        raise UsageError(f"error must be text or an exception, got {error!r}")
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def message(error: BaseException) -> str:
    """What an error says; it may be unable to."""
    try:
        return str(error)[:MAX_ERROR]
    except Exception as worse:
        return f"<no text: its __str__ raised {type(worse).__name__}>"


def _headline(error: BaseException) -> str:
    return f"{type(error).__name__}: {message(error)}"


def _more(error: BaseException) -> Iterator[str]:
    """Notes, the errors of a group, and the causes, a line each."""
    seen = [error]
    for one in seen:  # grows as it is read
        yield from (f"\n{note}" for note in getattr(one, "__notes__", ()))
        more: list[tuple[str, BaseException | None]] = [("caused by", one.__cause__)]
        if not one.__suppress_context__:
            more.append(("while handling", one.__context__))
        if isinstance(one, BaseExceptionGroup):
            more += [("with", part) for part in one.exceptions]
        for how, other in more:
            if other is not None and len(seen) < MAX_CAUSES and not any(other is known for known in seen):
                seen.append(other)
                yield f"\n{how} {_headline(other)}"
