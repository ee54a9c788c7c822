"""Processes for handlers that keep a core busy: started afresh, told what to do in JSON, killed when they run too long.

Nothing is pickled: a child gets the name of the handler's module and function, and the task as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from datetime import timedelta
from typing import Any

import msgspec

from penstock.model.duration import date
from penstock.model.errors import UsageError
from penstock.outcomes import Abort, Bury, Release
from penstock.shape import BadPayload
from penstock.worker.run import Run

MAX_MESSAGE = 1 << 31


class Crashed(Exception):
    """A process ended in the middle of a task."""


class Unstorable(Exception):
    """A handler in a process has returned what no result can be."""


class HandlerError(Exception):
    """What a handler raised in its process: the text of it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Child:
    """One process. It does one task at a time."""

    def __init__(self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, generation: int) -> None:
        self._process = process
        self._reader = reader
        self.generation = generation

    @classmethod
    async def start(cls, generation: int) -> Child:
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        try:
            # A program may read its arguments while it is imported: the child has those of the worker.
            words = [sys.executable, "-m", "penstock.worker.child", str(down_read), str(up_write), *sys.argv]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
            # Signals of the terminal are for the worker, which ends its children itself.
            process = await asyncio.create_subprocess_exec(
                *words, pass_fds=(down_read, up_write), start_new_session=True, env=environment
            )
        finally:
            os.close(down_read)
            os.close(up_write)
        reader = asyncio.StreamReader(limit=MAX_MESSAGE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(up_read, "rb"))
        child = cls(process, reader, generation)
        child._down = os.fdopen(down_write, "wb")
        return child

    async def call(self, message: dict[str, Any]) -> dict[str, Any]:
        text = msgspec.json.encode(message) + b"\n"
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._send, text)
            answer = await self._reader.readline()
        except (OSError, asyncio.IncompleteReadError):
            answer = b""
        if not answer:
            code = await self._process.wait()
            raise Crashed(f"the process of the handler ended with {code} in the middle of the task")
        found: dict[str, Any] = msgspec.json.decode(answer)
        return found

    def _send(self, text: bytes) -> None:
        self._down.write(text)
        self._down.flush()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        with contextlib.suppress(OSError):
            self._down.close()
        await self._process.wait()

    _down: Any


class Processes:
    """A pool of children, started as they are needed."""

    def __init__(self, most: int | None) -> None:
        self._most = most or os.cpu_count() or 1
        self._room = asyncio.Semaphore(self._most)
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._generation = 0

    async def call(self, run: Run) -> Any:
        """Run a task in a process of its own; a process whose call is cancelled is killed."""
        async with self._room:
            child = await self._child()
            self._busy.add(child)
            try:
                answer = await child.call(_message(run))
            except BaseException:
                await asyncio.shield(child.kill())
                raise
            else:
                self._idle.append(child)
            finally:
                self._busy.discard(child)
        return _value(answer)

    async def _child(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.generation == self._generation and child._process.returncode is None:
                return child
            await child.kill()
        return await Child.start(self._generation)

    def renew(self) -> None:
        self._generation += 1

    async def close(self) -> None:
        for child in [*self._idle, *self._busy]:
            await child.kill()
        self._idle = []


def _message(run: Run) -> dict[str, Any]:
    function = run.handler.function
    module, name = function.__module__, function.__qualname__
    if "<" in name:
        raise UsageError(f"a handler with process=True must be a function at the top of its module, not {name}")
    task, record = run.task, run.task._record
    data = record.data
    return {
        "module": module,
        "main": _main() if module == "__main__" else None,
        "name": name,
        "text": data if isinstance(data, str) else None,
        "bytes": data if isinstance(data, bytes) else None,
        "task": {
            "id": task.id,
            "tube": task.tube,
            "attempt": task.attempt,
            "last_attempt": task.last_attempt,
            "lane": task.lane,
            "key": task.key,
            "token": task.token,
            "time_left": run.time_left,
        },
    }


def _main() -> list[str | None]:
    """How a child can import the program that was started: by its name, or else from its file."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return [spec.name if spec is not None else None, getattr(main, "__file__", None)]


def _delay(value: list[Any] | None) -> Any:
    """What the child's delay_of() made of it."""
    if value is None:
        return None
    return date(value[1]) if value[0] == "at" else timedelta(microseconds=value[1])


def _value(answer: dict[str, Any]) -> Any:
    kind = answer["kind"]
    if kind == "returned":
        return answer["value"]
    if kind == "release":
        raise Release(_delay(answer["value"]))
    if kind == "bury":
        raise Bury(answer["value"])
    if kind == "payload":
        raise BadPayload(answer["value"])
    if kind == "abort":
        raise Abort(answer["value"]) from HandlerError(answer["value"])
    raise HandlerError(answer["value"])
