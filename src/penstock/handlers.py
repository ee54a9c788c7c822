"""Handlers: functions for tubes, and what they ask of their tubes. Workers run them."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

from penstock.model.errors import UsageError
from penstock.model.retry import Exponential
from penstock.model.tube import Kind, TubeConfig, check_name
from penstock.shape import Shape, signature

P = ParamSpec("P")
R = TypeVar("R")
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
        if not callable(function):
            raise UsageError(f"@handler({tube!r}) goes over a function, got {function!r}")
        self._queue = queue
        self.tube_name = check_name(tube)
        self.function = function
        self.kind = kind
        self.options = _tube_options(options or {})
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )
        self.process = process
        self.stores_result = bool(self.options.get("keep")) if result is None else result
        if process and self.is_async:
            raise UsageError(f"the handler of {tube!r} is an async function: those run in the loop, not in a process")
        self.shape: Shape
        self.shape, self.run_name = signature(function)
        functools.update_wrapper(self, function)

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
        whole = config.altered(asked)
        return {name: value for name, value in asked.items() if getattr(whole, name) != getattr(config, name)}


def _defaults(of: Kind | TubeConfig, said: Callable[[str], Any]) -> dict[str, Any]:
    """The defaults for a tube that says nothing about failures, or about time, as far as its kind has them."""
    names = list[str]()
    if said("retry") is None and said("max_attempts") is None:
        names += ["retry", "max_attempts"]
    if said("ttr") is None and not of.ttr_is_ttl:
        names.append("ttr")
    return {name: DEFAULTS[name] for name in names if name not in NEEDS or getattr(of.features, NEEDS[name])}


def _tube_options(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value is not UNSET}
    if "attempt_limit" in given:
        if "ttr" in given:
            raise UsageError("attempt_limit is the tube's ttr: give one of them")
        limit = given.pop("attempt_limit")
        given["ttr"] = DEFAULTS["ttr"] if limit == 0 else limit
    return given


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
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
