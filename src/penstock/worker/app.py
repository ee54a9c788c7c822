"""The program that has the handlers: found by name, and loaded again when its code has changed."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.aio import AsyncQueue, aconnect
from penstock.blocking import Queue
from penstock.model.errors import UsageError, shown

USUAL = ("q", "queue", "app")


class App:
    """A queue with handlers, named `module:queue`; the queue may be a function that makes it.

    >>> App("shop.tasks:q").module
    'shop.tasks'
    """

    def __init__(self, target: str) -> None:
        self.module, _, self._name = target.partition(":")
        if self.module.endswith(".py"):
            module = self.module.removesuffix(".py").removeprefix("./").replace("/", ".")
            raise UsageError(f"{shown(self.module)} is a file, an app is a module: write {module}:{self._name or 'q'}")
        if not self.module or not all(part.isidentifier() for part in self.module.split(".")):
            raise UsageError(f"an app is named module:queue, such as shop.tasks:q, got {shown(target)}")
        self.queue: Any = None

    def load(self) -> Any:
        """Import the program and find its queue."""
        here = os.getcwd()
        if here not in sys.path:
            sys.path.insert(0, here)
        if importlib.util.find_spec(self.module.partition(".")[0]) is None:
            raise UsageError(f"there is no module {self.module!r} in {here} or on the path")
        try:
            self.queue = self._find(importlib.import_module(self.module))
        except ModuleNotFoundError as error:
            if error.name is None or not f"{self.module}.".startswith(f"{error.name}."):
                raise
            raise UsageError(f"there is no module {self.module!r} in {here} or on the path") from None
        except AttributeError as error:
            # `q = penstock.aconnect(..)`, and then `@q.handler(..)`.
            self._refuse_coroutine(error.obj)
            raise
        return self.queue

    def reload(self) -> Any:
        """Import the program's own modules anew. Fails without a trace: the old ones stay then."""
        root = self._root()
        old = self._own(root)
        for name, module in old.items():
            sys.modules.pop(name, None)
            _forget_compiled(module)
        importlib.invalidate_caches()
        try:
            queue = self._find(importlib.import_module(self.module))
            if _store(queue) is not _store(self.queue):
                raise UsageError(
                    f"the new code has another queue, {queue!r}; restart the worker to change {self.queue!r}"
                )
        except BaseException:
            for name in self._own(root):
                sys.modules.pop(name, None)
            sys.modules.update(old)
            raise
        self.queue = queue
        return queue

    def files(self) -> list[str]:
        """The files of the program's own modules."""
        return [str(module.__file__) for module in self._own(self._root()).values()]

    def _own(self, root: Path) -> dict[str, ModuleType]:
        """The modules that are part of the program: beside its first one, written in Python, and not installed."""
        # Another thread may import something meanwhile.
        return {name: module for name, module in list(sys.modules.items()) if _is_own(module, root)}

    def _root(self) -> Path:
        top = sys.modules.get(self.module.partition(".")[0])
        spec = importlib.util.find_spec(self.module.partition(".")[0]) if top is None else top.__spec__
        if spec is not None and spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations))).resolve().parent
        assert spec is not None and spec.origin is not None
        return Path(spec.origin).resolve().parent

    def _find(self, module: ModuleType) -> Any:
        names = [self._name] if self._name else USUAL
        for name in names:
            thing = getattr(module, name, None)
            if callable(thing) and not isinstance(thing, Queue | AsyncQueue) and _needs_nothing(thing):
                thing = thing()
            if isinstance(thing, Queue | AsyncQueue):
                return thing
            self._refuse_coroutine(thing)
        if self._name:
            raise UsageError(f"{self.module}:{self._name} is no queue; it should be what penstock.connect(..) gave")
        raise UsageError(f"{self.module} has no queue called {', '.join(USUAL)}; say which: {self.module}:name")

    def _refuse_coroutine(self, thing: Any) -> None:
        if not inspect.iscoroutine(thing) or thing.cr_code is not aconnect.__code__:
            return
        thing.close()  # nobody will await it
        raise UsageError(
            f"the queue of {self.module} is a penstock.aconnect(..) that nobody awaits; use penstock.connect(..): "
            "a worker makes its own loop, and runs async handlers in it"
        ) from None


def _needs_nothing(function: Any) -> bool:
    """Whether a function can be called without arguments; a handler, for one, can not."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


def _is_own(module: ModuleType | None, root: Path) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or getattr(module, "__name__", "").partition(".")[0] in ("penstock", "__main__"):
        return False
    path = Path(file).resolve()
    return path.suffix == ".py" and path.is_relative_to(root) and not {"site-packages", "dist-packages"} & {*path.parts}


def _forget_compiled(module: ModuleType) -> None:
    """Compiled code is taken for new while its source has the same size and was changed in the same second."""
    with contextlib.suppress(OSError, NotImplementedError):  # not compiled, or no bytecode cache here
        os.unlink(importlib.util.cache_from_source(str(module.__file__)))


def _store(queue: Any) -> Any:
    return getattr(queue._engine, "engine", queue._engine).store
