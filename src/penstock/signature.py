"""How a handler is called: what its parameters are for, and whether it is awaited."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from penstock.model.errors import UsageError, shown
from penstock.shape import Shape


class Signature(typing.NamedTuple):
    """What a worker has to know about a function."""

    shape: Shape
    run: str | None
    """The parameter that gets the Run, if it has one."""
    is_async: bool


def read(function: Any) -> Signature:
    """Read a function's parameters: the first gets the data; one called `run`, or annotated Run, gets the run."""
    if isinstance(function, type):
        raise UsageError(f"a handler is a function, and {_name(function)} is a class: pass a method or an object of it")
    if not callable(function):
        raise UsageError(f"a handler is a function, got {shown(function)}")
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in _called(function)):
        raise UsageError(f"{_name(function)}() is a generator: calling it does nothing; leave out the yield")
    is_async = any(inspect.iscoroutinefunction(one) for one in _called(function))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some builtins have none
        return Signature(Shape(Any), None, is_async)
    return Signature(Shape(_wanted(function, parameters)), _run_of(function, parameters), is_async)


def _called(function: Any) -> tuple[Any, Any]:
    """The code that runs when it is called: its own, or that of its type."""
    while isinstance(function, functools.partial):
        function = function.func
    return function, getattr(type(function), "__call__", None)  # noqa: B004


def _wanted(function: Any, parameters: list[inspect.Parameter]) -> Any:
    """The type of the data."""
    if not parameters or parameters[0].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        raise UsageError(f"a handler takes the task's data as its first parameter; {_name(function)}() has none")
    first = parameters[0]
    if first.kind is first.VAR_POSITIONAL:
        return Any
    try:
        hint = _hint(function, first.name)
    except Exception as error:
        raise UsageError(f"the type of {first.name!r} of {_name(function)}() cannot be read: {error}") from None
    if _is_run(hint) or (first.name == "run" and hint is Any):
        raise UsageError(f"the first parameter of {_name(function)}() gets the data, not the run: put one before it")
    return Any if isinstance(hint, typing.TypeVar) else hint


def _run_of(function: Any, parameters: list[inspect.Parameter]) -> str | None:
    """The name of the parameter for the run; no other may be needed."""
    rest = [p for p in parameters[1:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    given = getattr(function, "keywords", {})  # by a partial
    named = [p.name for p in rest if p.kind is not p.POSITIONAL_ONLY and p.name not in given]
    run = next((name for name in named if name == "run" or _is_run(_hint_if_any(function, name))), None)
    for parameter in rest:
        if parameter.default is parameter.empty and parameter.name != run:
            raise UsageError(
                f"a handler gets the data and, as a keyword `run`, the Run; "
                f"{_name(function)}() also needs {parameter.name!r}"
            )
    return run


def _hint(function: Any, name: str) -> Any:
    """What a parameter is annotated with. The others are not looked at: what they name may exist for a checker only."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    if not inspect.isroutine(function):
        function = type(function).__call__
    annotation = getattr(function, "__annotations__", {}).get(name, Any)
    holder: Any = SimpleNamespace(__annotations__={name: annotation})
    return typing.get_type_hints(holder, getattr(function, "__globals__", {}), include_extras=True)[name]


def _hint_if_any(function: Any, name: str) -> Any:
    try:
        return _hint(function, name)
    except Exception:
        return None


def _is_run(hint: Any) -> bool:
    return getattr(hint, "__name__", None) == "Run" and getattr(hint, "__module__", None) == "penstock.worker.run"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or shown(function)
