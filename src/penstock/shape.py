"""What a handler wants its data to be: a dataclass, a TypedDict, a struct, a pydantic model, or plain JSON."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from penstock import payload
from penstock.model.errors import UsageError, shown
from penstock.model.task import Data

PLAIN = (Any, object, inspect.Parameter.empty)


class BadPayload(Exception):
    """The data of a task are not what its handler takes."""


class Shape:
    """The type of a handler's first parameter. Data that do not fit it never reach the handler.

    >>> Shape(dict[str, int]).decode('{"n": 1}')
    {'n': 1}
    """

    def __init__(self, wanted: Any) -> None:
        self.wanted = wanted
        self.plain = wanted in PLAIN
        self._decode, self._convert, self._builtins = _codec(wanted)

    def decode(self, data: Data) -> Any:
        """The value that a handler is called with."""
        try:
            return self._decode(data)
        except Exception as error:
            name = getattr(self.wanted, "__name__", str(self.wanted))
            raise BadPayload(f"the data are no {name}: {error}") from None

    def encode(self, value: Any) -> Any:
        """What put() stores for a value; one that the handler would refuse is refused here already."""
        if self.plain:
            return value
        plain = self._builtins(value)
        try:
            self._convert(plain)
        except Exception as error:
            name = getattr(self.wanted, "__name__", str(self.wanted))
            raise UsageError(f"this handler takes {name}, got {shown(value)}: {error}") from None
        return plain


def _codec(wanted: Any) -> tuple[Callable[[Data], Any], Callable[[Any], Any], Callable[[Any], Any]]:
    """How to read JSON text as the type, how to check a plain value, and how to make a value plain."""
    if wanted in PLAIN:
        return payload.decode, _same, _same
    if wanted is bytes:
        return _bytes, _bytes, _same
    if not _holds_models(wanted):
        try:
            decoder = msgspec.json.Decoder(wanted)
        except TypeError as error:
            raise UsageError(f"a handler cannot take {wanted!r}: {error}") from None
        return decoder.decode, lambda value: msgspec.convert(value, wanted), msgspec.to_builtins
    from pydantic import TypeAdapter

    adapter: Any = TypeAdapter(wanted)
    return (
        adapter.validate_json,
        adapter.validate_python,
        lambda value: value if isinstance(value, dict | list) else adapter.dump_python(value, mode="json"),
    )


def _holds_models(wanted: Any) -> bool:
    """Whether a pydantic model is in a type; pydantic is not imported to find out."""
    if hasattr(wanted, "__pydantic_core_schema__"):
        return True
    return any(_holds_models(part) for part in typing.get_args(wanted))


def _same(value: Any) -> Any:
    return value


def _bytes(data: Any) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError("the tube has payload='json', so its tasks hold no bytes")
    return data


class Signature(typing.NamedTuple):
    """How a handler is called."""

    shape: Shape
    run: str | None
    """The parameter that gets the Run, if it has one."""


def signature(function: Callable[..., Any]) -> Signature:
    """Read a function's parameters: the first gets the data; one called `run`, or annotated Run, gets the run."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return Signature(Shape(Any), None)
    hints = _hints(function)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p for p in parameters[1:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not positional and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise UsageError(f"a handler takes the task's data as its first parameter; {_name(function)}() has none")
    run = next((p.name for p in named if p.name == "run" or _is_run(hints.get(p.name))), None)
    for parameter in named:
        if parameter.default is parameter.empty and parameter.name != run:
            raise UsageError(
                f"a handler gets the data and, if it has a parameter `run`, the Run; "
                f"{_name(function)}() also needs {parameter.name!r}"
            )
    wanted = hints.get(positional[0].name, Any) if positional else Any
    return Signature(Shape(Any if isinstance(wanted, typing.TypeVar) else wanted), run)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target)
    except (NameError, TypeError) as error:
        raise UsageError(f"the annotations of {_name(function)}() cannot be read: {error}") from None


def _is_run(hint: Any) -> bool:
    return getattr(hint, "__name__", None) == "Run" and getattr(hint, "__module__", None) == "penstock.worker.run"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
