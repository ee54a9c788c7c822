"""What a handler wants its data to be: a dataclass, a TypedDict, a struct, a pydantic model, or plain JSON."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from penstock import payload
from penstock.model.errors import UsageError, shown
from penstock.model.task import Data

PLAIN = (Any, object, inspect.Parameter.empty)
Decode = Callable[[Data], Any]
Encode = Callable[[Any], bytes]


class BadPayload(Exception):
    """The data of a task are not what its handler takes."""


class Shape:
    """The type of a handler's first parameter. Data that do not fit it never reach the handler.

    >>> Shape(dict[str, int]).decode('{"n": 1}')
    {'n': 1}
    """

    def __init__(self, wanted: Any) -> None:
        self.wanted = wanted
        self._decode: Decode
        self._encode: Encode | None
        self._decode, self._encode = _codec(wanted)

    def __str__(self) -> str:
        is_class = isinstance(self.wanted, type) and not typing.get_args(self.wanted)
        return self.wanted.__name__ if is_class else str(self.wanted)

    def decode(self, data: Data) -> Any:
        """The value that a handler is called with."""
        try:
            return self._decode(data)
        except Exception as error:
            raise BadPayload(f"the data are no {self}: {_reason(error)}") from None

    def encode(self, value: Any) -> Any:
        """What put() stores for a value; one that the handler would refuse is refused here already."""
        if self._encode is None:
            return value
        try:
            text = self._encode(value)
            self._decode(text)
        except Exception as error:
            raise UsageError(f"this handler takes {self}, got {shown(value)}: {error}") from None
        return text if self.wanted is bytes else msgspec.json.decode(text)


def _reason(error: Exception) -> str:
    """What is wrong with data. pydantic would show them too, and what is told here goes to logs."""
    if type(error).__name__ != "ValidationError" or not type(error).__module__.startswith("pydantic"):
        return payload.message(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)  # type: ignore[attr-defined]
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'all of them'}: {one['msg']}" for one in found)


def _codec(wanted: Any) -> tuple[Decode, Encode | None]:
    """How to read JSON as the type, and how to write it."""
    if wanted in PLAIN:
        return payload.decode, None
    if wanted is bytes:
        return _bytes, _bytes
    try:
        strange = list(_strange(msgspec.inspect.type_info(wanted), set()))
        decoder = msgspec.json.Decoder(wanted)
    except Exception as error:
        if _is_model(wanted):
            return _of_pydantic(wanted)
        raise UsageError(f"a handler cannot take {wanted!r}: {error}") from None
    if any(map(_is_model, strange)):
        return _of_pydantic(wanted)
    if strange:
        raise UsageError(
            f"a handler cannot take {wanted!r}, as nobody knows how to make {strange[0]!r} from JSON; "
            "a dataclass, a TypedDict, a msgspec struct or a pydantic model can be made"
        )
    return decoder.decode, msgspec.json.encode


def _strange(node: Any, seen: set[int]) -> Iterator[Any]:
    """The classes in a type that msgspec does not know, or that pydantic has made."""
    if id(node) in seen:
        return
    seen.add(id(node))
    cls = getattr(node, "cls", None)
    if cls is not None and cls is not object and (isinstance(node, msgspec.inspect.CustomType) or _is_model(cls)):
        yield cls
    parts = (
        node if isinstance(node, tuple) else [getattr(node, name) for name in getattr(node, "__struct_fields__", ())]
    )
    for part in parts:
        if isinstance(part, msgspec.Struct | tuple):
            yield from _strange(part, seen)


def _is_model(wanted: Any) -> bool:
    """Whether a pydantic model is in a type; pydantic is not imported to find out."""
    return hasattr(wanted, "__pydantic_core_schema__") or any(map(_is_model, typing.get_args(wanted)))


def _of_pydantic(wanted: Any) -> tuple[Decode, Encode]:
    from pydantic import TypeAdapter

    adapter: Any = TypeAdapter(wanted)

    def encode(value: Any) -> bytes:
        # By alias: that is how it is read. A plain value where a model could be is no reason to warn, it is checked.
        return msgspec.json.encode(adapter.dump_python(value, mode="json", by_alias=True, warnings=False))

    return adapter.validate_json, encode


def _bytes(data: Any) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"{type(data).__name__} is no bytes, which tubes with payload='bytes' hold")
    return bytes(data)
