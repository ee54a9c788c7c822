"""The handler of a fleet: how it reaches executors, and how it becomes the handler of a tube there."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.aio import AsyncQueue
from penstock.blocking import Queue
from penstock.handlers import Definition
from penstock.model import ops
from penstock.model.errors import TubeNotFound, UsageError, shown


class Target(NamedTuple):
    """A handler by its name, or the function itself, which Spark then ships."""

    name: str | None
    function: Callable[..., Any] | None
    options: Mapping[str, Any]
    """What a function of @q.handler(..) asks of its tube; one that has a name is asked where it is found."""
    path: tuple[str, ...] = ()
    """Where to look for modules beside the usual places: those of the driver, where it is on the same machine."""


def target(handler: str | Callable[..., Any], path: tuple[str, ...]) -> Target:
    """What to send. Functions of modules go by their name, as Spark itself would send them.

    >>> target("shop.tasks:send", ()).name
    'shop.tasks:send'
    """
    if isinstance(handler, str):
        module, _, name = handler.partition(":")
        if not name or not all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
            raise UsageError(f"a handler is a function or named module:function or module:queue, got {shown(handler)}")
        return Target(handler, None, {}, path)
    if not callable(handler):
        raise UsageError(f"a handler is a function or named module:function or module:queue, got {shown(handler)}")
    function: Any = handler.function if isinstance(handler, Definition) else handler
    found = _name(handler, function)
    if found is not None:
        return Target(found, None, {}, path)
    return Target(None, function, _options(handler) if isinstance(handler, Definition) else {}, path)


def _name(handler: Any, function: Any) -> str | None:
    """The name under which an executor finds a function, if it can."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module in (None, "__main__") or name is None or "." in name or "<" in name:
        return None
    return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) in (handler, function) else None


def define(queue: Queue, tube: str, sent: Target, url: str, options: Mapping[str, Any]) -> Definition[Any, Any]:
    """Make what was sent the handler of a tube."""
    found = sent.function if sent.name is None else _find(sent.name, tube, sent.path, url)
    asked = dict(sent.options)
    if isinstance(found, Definition):
        asked = _options(found)
        queue.handlers.middleware[:] = found._queue.handlers.middleware
        queue._kinds, queue._makers = found._queue._kinds, found._queue._makers
        found = found.function
    if "attempt_limit" in options:
        asked.pop("ttr", None)
    asked.update(options)
    if asked.get("result") is None:
        asked["result"] = _keeps(queue, tube, asked.get("keep"))
    assert found is not None
    return queue.handler(tube, **asked)(found)


def _keeps(queue: Queue, tube: str, asked: Any) -> bool:
    """Whether tasks stay when they are done, so that their results can be read."""
    try:
        return bool(queue._engine.execute(ops.GetTube(tube)).keep if asked is None else asked)
    except TubeNotFound:
        return False


def _options(definition: Definition[Any, Any]) -> dict[str, Any]:
    more = {"kind": definition.kind, "process": definition.process, "result": definition.stores_result or None}
    return {**definition.options, **more}


def _find(name: str, tube: str, path: tuple[str, ...], url: str) -> Any:
    """The function of a name, or the handler that a queue of that name has for the tube."""
    # Programs that read it work on this very queue, as with `penstock worker --url`.
    os.environ["PENSTOCK_URL"] = url
    sys.path.extend(folder for folder in path if folder not in sys.path)
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"there is no module {module!r} here; a handler is imported where it runs, so install it on every "
            "executor, or ship it with spark.addArtifact(.., pyfile=True) or --py-files"
        ) from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"module {module!r} has no {attribute!r}; a handler is named module:function")
        found = getattr(found, part)
    if isinstance(found, Queue | AsyncQueue):
        if tube not in found.handlers:
            known = ", ".join(sorted(found.handlers)) or "none"
            raise UsageError(f"queue {name} has no handler for tube {tube!r}; it has handlers for {known}")
        return found.handlers[tube]
    if not callable(found):
        raise UsageError(f"{name} is {shown(found)}, and a handler is a function")
    return found
