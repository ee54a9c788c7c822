"""What runs in a process for handlers. A worker starts it, sends it tasks through a pipe, and kills it if need be."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import importlib.util
import inspect
import os
import select
import signal
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, BinaryIO

import msgspec

from penstock import payload, signature
from penstock.handlers import Definition
from penstock.model import duration
from penstock.model.errors import UsageError
from penstock.model.task import Data
from penstock.outcomes import Bury, Release, abort_in, alone
from penstock.shape import BadPayload, Shape
from penstock.worker import processes
from penstock.worker.run import Run, enter
from penstock.worker.trace import text_of

MAIN = "__penstock_main__"
"""The program that was started has this name here, so that what it does when it is started is not done again."""
LOOK = 2.0
"""Seconds between two looks whose child this is: something else may hold the pipe of a dead worker open."""


class ChildTask:
    """What a handler in a process knows about its task; the worker ends it."""

    def __init__(self, facts: dict[str, Any], data: Data) -> None:
        self.__dict__.update(facts)
        self.id = tuple(facts["id"]) if isinstance(facts["id"], list) else facts["id"]
        self._raw = data
        self._record = SimpleNamespace(deadline=None)

    @functools.cached_property
    def data(self) -> Any:
        return payload.decode(self._raw)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UsageError(
            f"task.{name} is not there in a process: a handler with process=True ends its task by returning or raising"
        )

    def __repr__(self) -> str:
        return f"<Task {self.id!r} in a process>"


class Handler:
    """The function of that name, and how it is called."""

    def __init__(self, thing: Any, tube: str) -> None:
        definition = thing._queue.handlers.get(tube) if isinstance(thing, Definition) else None
        if definition is None or definition.function.__qualname__ != thing.function.__qualname__:
            definition = thing
        self.shape: Shape
        self.function: Callable[..., Any] = getattr(definition, "function", definition)
        self.shape, self.run_name, _ = signature.read(self.function)

    def call(self, message: dict[str, Any]) -> Any:
        data = message["text"] if message["bytes"] is None else b64decode(message["bytes"])
        value = self.shape.decode(data)
        left = message["time_left"]
        task: Any = ChildTask(message["task"], data)
        run = Run(task, self, None if left is None else time.monotonic() + left)  # type: ignore[arg-type]
        enter(run)
        answer = self.function(value, **({} if self.run_name is None else {self.run_name: run}))
        if inspect.isawaitable(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer):
            getattr(answer, "close", str)()
            raise UsageError(f"a handler in a process is a plain function, and this one gave {answer!r}")
        return answer


def answered(message: dict[str, Any]) -> dict[str, Any]:
    """Call a handler; what it did as a message."""
    try:
        value = contextvars.copy_context().run(lambda: found(message).call(message))
        return _stored(value) if message["stored"] else {"kind": "returned", "value": None}
    except BaseException as error:
        return _raised(error)


def _stored(value: Any) -> dict[str, Any]:
    try:
        payload.encode_result(value)
    except UsageError as error:
        text = payload.error_text(f"the work was done, but its result cannot be stored: {error}")
        return {"kind": "unstorable", "value": text}
    return {"kind": "returned", "value": value}


def _raised(error: BaseException) -> dict[str, Any]:
    said = alone(error)
    try:
        if isinstance(said, Release):
            return {"kind": "release", "value": delay_of(said)}
    except UsageError as wrong:
        error = wrong
    if isinstance(said, Bury):
        return {"kind": "bury", "value": said.text}
    if isinstance(error, BadPayload):
        return {"kind": "payload", "value": payload.error_text(str(error))}
    return {"kind": "abort" if abort_in(error) else "error", "value": text_of(error)}


def delay_of(release: Release) -> list[Any] | None:
    """A delay as plain values."""
    delay = duration.delay(release.delay)
    if delay is None:
        return None
    return ["at", delay.moment] if isinstance(delay, duration.At) else ["after", delay]


_handlers: dict[tuple[str, str, str], Handler] = {}


def found(place: dict[str, Any]) -> Handler:
    """The handler of that name."""
    module, name, tube = place["module"], place["name"], place["tube"]
    handler = _handlers.get((module, name, tube))
    if handler is None:
        thing: Any = importlib.import_module(module) if place["main"] is None else _main(*place["main"])
        for part in name.split("."):
            thing = getattr(thing, part)
        while not isinstance(thing, Definition) and hasattr(thing, "__wrapped__"):
            thing = thing.__wrapped__  # a decorator above @handler, which workers do not call either
        handler = _handlers[module, name, tube] = Handler(thing, tube)
    return handler


def _main(name: str | None, file: str | None) -> Any:
    """The program that was started."""
    if name is not None:
        return importlib.import_module(name)
    if MAIN not in sys.modules:
        assert file is not None
        spec = importlib.util.spec_from_file_location(MAIN, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[MAIN] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[MAIN]
            raise
    return sys.modules[MAIN]


def _prepared(places: list[dict[str, Any]]) -> dict[str, Any]:
    """Import what will be needed; a task is told what is wrong with it."""
    for place in places:
        with contextlib.suppress(BaseException):
            found(place)
    return {}


def _watch(answers: int, worker: int) -> None:
    """End this process and what it has started when the worker is gone: its tasks are somebody else's then."""
    pipe = select.poll()
    pipe.register(answers, 0)  # which tells of errors alone: nobody reads it any more
    while not pipe.poll(LOOK * 1000) and os.getppid() == worker:
        pass
    with contextlib.suppress(OSError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def main(messages: BinaryIO, answers: BinaryIO) -> None:
    """Do tasks until the worker has no more."""
    processes.enter()
    watching = (answers.fileno(), os.getppid())
    threading.Thread(target=_watch, args=watching, name="penstock watch", daemon=True).start()
    for line in messages:
        answers.write(b"{}\n")  # it has begun
        answers.flush()
        message = msgspec.json.decode(line)
        answer = _prepared(message["prepare"]) if "prepare" in message else answered(message)
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
