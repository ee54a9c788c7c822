"""A process that runs handlers: `python -m penstock.worker.child <fd to read> <fd to write> ..`, started by a worker."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import msgspec

from penstock import payload
from penstock.handlers import Definition
from penstock.model import duration
from penstock.model.errors import UsageError
from penstock.outcomes import Bury, Cancelled, Release, abort_in
from penstock.shape import BadPayload

_modules: dict[str, Any] = {}


class ChildRun:
    """What a handler in a process can ask about its task; the worker kills it when it is to stop."""

    cancelled = False
    why = None

    def __init__(self, facts: dict[str, Any]) -> None:
        left = facts.pop("time_left")
        self.task = SimpleNamespace(**facts)
        self.attempt: int = facts["attempt"]
        self.last_attempt: bool = facts["last_attempt"]
        self.deadline = None if left is None else time.monotonic() + left

    @property
    def time_left(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise Cancelled(f"task {self.task.id!r} is to stop: late")

    def wait(self, seconds: float | None = None) -> bool:
        threading.Event().wait(seconds)
        return False


def answered(message: dict[str, Any]) -> dict[str, Any]:
    """Call a handler; what it did as a message."""
    try:
        definition = found(message)
        data = message["text"] if message["bytes"] is None else msgspec.convert(message["bytes"], bytes, strict=False)
        value = definition.shape.decode(data)
        more = {} if definition.run_name is None else {definition.run_name: ChildRun(message["task"])}
        result = definition.function(value, **more)
        if definition.stores_result:
            payload.encode_result(result)
        return {"kind": "returned", "value": result if definition.stores_result else None}
    except Release as release:
        return {"kind": "release", "value": delay_of(release)}
    except Bury as bury:
        return {"kind": "bury", "value": bury.reason}
    except BadPayload as bad:
        return {"kind": "payload", "value": str(bad)}
    except BaseException as error:
        return {"kind": "abort" if abort_in(error) else "error", "value": payload.error_text(error)}


def delay_of(release: Release) -> list[Any] | None:
    """A delay as plain values."""
    delay = duration.delay(release.delay)
    if delay is None:
        return None
    return ["at", delay.moment] if isinstance(delay, duration.At) else ["after", delay]


def found(message: dict[str, Any]) -> Definition[Any, Any]:
    """The handler of that name."""
    thing: Any = _module(message["module"], message["main"])
    for part in message["name"].split("."):
        thing = getattr(thing, part)
    if not isinstance(thing, Definition):
        raise UsageError(f"{message['module']}.{message['name']} is no handler: a decorator above @handler hides it")
    return thing


def _module(name: str, main: list[str | None] | None) -> Any:
    if main is None:
        return importlib.import_module(name)
    if name not in _modules:
        spec_name, file = main
        if spec_name is not None:
            _modules[name] = importlib.import_module(spec_name.removesuffix(".__main__") or spec_name)
        else:
            assert file is not None
            # Not under the name __main__, so that what the program does when it is started is not done again.
            spec = importlib.util.spec_from_file_location("__penstock_main__", file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules["__penstock_main__"] = module
            spec.loader.exec_module(module)
            _modules[name] = module
    return _modules[name]


def main() -> None:
    read, write = int(sys.argv[1]), int(sys.argv[2])
    sys.argv = sys.argv[3:]
    os.set_inheritable(read, False)
    os.set_inheritable(write, False)
    with os.fdopen(read, "rb") as messages, os.fdopen(write, "wb") as answers:
        for line in messages:
            answers.write(msgspec.json.encode(answered(msgspec.json.decode(line))) + b"\n")
            answers.flush()


if __name__ == "__main__":
    main()
