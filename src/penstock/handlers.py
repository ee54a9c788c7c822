"""Handlers: functions for tubes, and what they ask of their tubes. Workers run them."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from penstock import calls, payload, signature
from penstock.model import duration
from penstock.model.errors import AccessDenied, UsageError, shown
from penstock.model.retry import Exponential
from penstock.model.tube import FIXED, OPTIONS, Kind, TubeConfig, check_name, lacks, parse_options
from penstock.schedules import SCHEDULES

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
Takes = Callable[Concatenate[D, ...], Any]
"""A handler as its put() sees it: by the type of its first parameter."""
log = logging.getLogger("penstock.worker")
UNSET: Any = ...
DEFAULTS: dict[str, Any] = {"max_attempts": 25, "retry": Exponential(jitter=0.1), "ttr": 3600}
"""What tubes of handlers have that say nothing else, as far as their kind has it."""
NEEDS = {"retry": "delay", "ttr": "ttr"}


class Definition(Generic[P, R]):
    """A function, its tube, and the options of both. Calling it calls the function."""

    def __init__(
        self,
        queue: Any,
        tube: str,
        function: Callable[P, R],
        *,
        kind: str | None = None,
        options: Mapping[str, Any] | None = None,
        process: bool = False,
        result: bool | None = None,
    ) -> None:
        self._queue = queue
        self.tube_name = check_name(tube)
        self.function: Callable[P, R] = function.function if isinstance(function, Definition) else function
        self.shape, self.run_name, self.is_async = signature.read(self.function)
        self.kind = kind
        self.options = _tube_options(options or {}, None if kind is None else calls.kind_named(queue._kinds, kind))
        if self.shape.wanted is bytes:
            self.options.setdefault("payload", "bytes")
        self.process = process
        if process:
            _check_importable(self.function, self.is_async)
        self.stores_result = bool(self.options.get("keep")) if result is None else result
        functools.update_wrapper(self, self.function, updated=())  # attributes of the function are not options of ours

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self.function, '__qualname__', self.function)} of {self.tube_name!r}>"

    def first_options(self, kind: Kind) -> dict[str, Any]:
        """The options of a tube that is made for this handler."""
        return {**_defaults(kind, kind.defaults.get), **self.options}

    def changes(self, config: TubeConfig) -> dict[str, Any]:
        """What an existing tube lacks of what the handler asks for.

        Defaults count only where the tube says nothing about failures, or about time, itself.
        """
        if self.kind is not None and self.kind != config.kind:
            raise UsageError(
                f"the handler of {self.tube_name!r} asks for kind {self.kind!r}, the tube has {config.kind!r}, "
                "which is fixed; drop the tube or leave kind= out"
            )
        asked = {**_defaults(config, lambda option: getattr(config, option)), **self.options}
        for name in FIXED:
            wanted = asked.pop(name, getattr(config, name))
            wanted = "function" if callable(wanted) else wanted
            if wanted != getattr(config, name):
                raise UsageError(
                    f"the handler of {self.tube_name!r} asks for {name}={wanted!r}, the tube has "
                    f"{getattr(config, name)!r}, which is fixed; drop the tube, or let the handler take what it has"
                )
        whole = config.altered(asked)
        return {name: value for name, value in asked.items() if getattr(whole, name) != getattr(config, name)}


def denied(error: AccessDenied, changes: Mapping[str, Any]) -> AccessDenied:
    """The refusal of a login that may not alter the tube of a handler, with what has to be done for it."""
    told = ", ".join(f"{name}={value!r}" for name, value in changes.items())
    return AccessDenied(f"{error}; its handler asks for {told}: let a login that may alter the tube so, once")


def check_tube(name: Any) -> str:
    """What a decorator was given first."""
    if callable(name):
        raise UsageError(f'write @q.handler("name") with the name of a tube, not @q.handler alone over {shown(name)}')
    if name == SCHEDULES:
        raise UsageError(f"tube {name!r} is where workers keep schedules: choose another name")
    return check_name(name)


def periodic_data(function: Any, data: Any) -> Any:
    """What a periodic task has as data; what the handler would not take is refused now, not at every fire."""
    own = function.function if isinstance(function, Definition) else function
    shape = signature.read(own).shape
    try:
        stored = shape.encode(data)
    except UsageError:
        if data is not None:
            raise
        name = getattr(own, "__qualname__", own)
        raise UsageError(
            f"{name}() takes {shape}, and gets data None at every fire: annotate it with None, or give data=.."
        ) from None
    payload.encode(stored)
    return stored


def _defaults(of: Kind | TubeConfig, said: Callable[[str], Any]) -> dict[str, Any]:
    """The defaults for a tube that says nothing about failures, or about time, as far as its kind has them."""
    names = list[str]()
    if said("retry") is None and said("max_attempts") is None:
        names += ["retry", "max_attempts"]
    if said("ttr") is None and not of.ttr_is_ttl:
        names.append("ttr")
    return {name: DEFAULTS[name] for name in names if name not in NEEDS or getattr(of.features, NEEDS[name])}


def _tube_options(options: Mapping[str, Any], kind: Kind | None) -> dict[str, Any]:
    """What the handler asks of its tube, checked as far as that can be without the tube."""
    given = {name: value for name, value in options.items() if value is not UNSET}
    if "attempt_limit" in given:
        if "ttr" in given:
            raise UsageError("attempt_limit is the tube's ttr: give one of them")
        limit = given.pop("attempt_limit")
        duration.length(limit, "attempt_limit")
        if limit is not None and kind is not None and not kind.features.ttr:
            raise lacks("attempt_limit", "ttr", f"kind {kind.name!r}")
        given["ttr"] = DEFAULTS["ttr"] if limit == 0 else limit
    for name, value in given.items():
        if name not in OPTIONS and name != "temporary":
            raise UsageError(f"unknown option {name!r} of a handler; there are attempt_limit, {', '.join(OPTIONS)}")
        if name in OPTIONS and not callable(value):
            OPTIONS[name](value, name)
    if kind is not None:
        parse_options({name: value for name, value in given.items() if name not in FIXED}, kind.features)
    return given


def _check_importable(function: Any, is_async: bool) -> None:
    """A process finds the function by its name."""
    name = getattr(function, "__qualname__", "<")
    owner = getattr(function, "__self__", None)
    if is_async:
        raise UsageError(f"{name}() is an async function: those run in the loop; leave out process=True, or async")
    if "<" in name or not (owner is None or isinstance(owner, type | ModuleType)):
        raise UsageError(
            f"a handler with process=True is found by its name, so it must be a function at the top of a module, "
            f"not {shown(function)}"
        )
    main = sys.modules.get("__main__")
    if _module(function) == "__main__" and not hasattr(main, "__file__"):
        raise UsageError(
            f"a handler with process=True must be in a file, and {name}() was typed in; put it in a module"
        )


def _module(function: Any) -> str:
    return getattr(function, "__module__", None) or "?"


class Registry(dict[str, Definition[Any, Any]]):
    """The handlers of a queue, by tube."""

    def __init__(self) -> None:
        super().__init__()
        self.middleware: list[Any] = []
        self.schedules: list[Any] = []

    def add(self, definition: Definition[Any, Any]) -> None:
        """A tube has one handler; defining it again under the same name, as after a reload, replaces it."""
        old = self.get(definition.tube_name)
        if old is not None and _full_name(old) != _full_name(definition):
            raise UsageError(
                f"tube {definition.tube_name!r} has the handler {_full_name(old)} already; "
                f"{_full_name(definition)} needs a tube of its own"
            )
        self[definition.tube_name] = definition


def _full_name(definition: Definition[Any, Any]) -> str:
    function = definition.function
    name = getattr(function, "__qualname__", None) or shown(function)
    code = getattr(function, "__code__", None)
    where = f" of line {code.co_firstlineno}" if code is not None and name.endswith("<lambda>") else ""
    return f"{_module(function)}.{name}{where}"
