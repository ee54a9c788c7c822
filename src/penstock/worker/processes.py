"""Processes for handlers that keep a core busy: started afresh, told what to do in JSON, killed when they run too long.

Nothing is pickled: a child gets the name of the handler's module and function, and the task as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any

import msgspec

from penstock.handlers import Definition
from penstock.model.duration import date
from penstock.model.errors import UsageError
from penstock.outcomes import Abort, Bury, Release
from penstock.shape import BadPayload
from penstock.worker.errand import errand
from penstock.worker.run import Run

log = logging.getLogger("penstock.worker")
MAX_MESSAGE = 1 << 31
TIME_TO_END = 5.0
"""Seconds that an idle process has to end by itself: it writes out what it has printed, and calls what wants to be."""
AT_ONCE = 4096
"""Bytes that go into an empty pipe, whoever reads it or not."""
BOOT = """
import json, os, sys
messages = os.fdopen(int(sys.argv[1]), "rb")
answers = os.fdopen(int(sys.argv[2]), "wb")
first = messages.readline()
if not first:
    sys.exit()
sys.path[:], sys.argv[:] = json.loads(first)
from penstock.worker.child import main
main(messages, answers)
"""
"""What a child does first. It finds modules where the worker does, and nothing of that is in its environment."""


class Unstorable(Exception):
    """A handler in a process has returned what no result can be."""


class HandlerError(Exception):
    """What a handler raised in its process: the text of it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Crashed(HandlerError):
    """A process ended in the middle of a task; there is no more to be told than that."""


class Child:
    """One process. It does one task at a time."""

    def __init__(self, process: asyncio.subprocess.Process, down: Any, generation: int) -> None:
        self._process = process
        self._down = down
        self._reader = asyncio.StreamReader(limit=MAX_MESSAGE)
        self._up: asyncio.ReadTransport | None = None
        self._ended = asyncio.ensure_future(process.wait())
        self.generation = generation
        self.is_tried = False
        """It has done a task."""

    @classmethod
    async def start(cls, generation: int) -> Child:
        with contextlib.ExitStack() as pipes:
            down_read, down = (pipes.enter_context(end) for end in _pipe())
            up, up_write = (pipes.enter_context(end) for end in _pipe())
            numbers = (down_read.fileno(), up_write.fileno())
            # Signals of the terminal are for the worker, which ends its children itself.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", BOOT, *map(str, numbers)), pass_fds=numbers, start_new_session=True
            )
            down_read.close()
            up_write.close()
            pipes.pop_all()
        child = cls(process, down, generation)
        loop = asyncio.get_running_loop()
        child._up, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(child._reader), up)
        # A program may read its arguments while it is imported: the child has those of the worker.
        await child._send([[path or os.getcwd() for path in sys.path], sys.argv])
        return child

    @property
    def is_alive(self) -> bool:
        return not self._ended.done()

    async def call(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Let it do a task; None if it has ended before it began."""
        await self._send(message)
        if await self._line() is None:
            return None
        answer = await self._line()
        if answer is None:
            raise Crashed(f"the process of the handler {_end(await self._ended)} in the middle of the task")
        found: dict[str, Any] = msgspec.json.decode(answer)
        return found

    async def _send(self, message: Any) -> None:
        text = msgspec.json.encode(message) + b"\n"
        with contextlib.suppress(OSError):  # it has ended, which is noticed where its answer is read
            if len(text) <= AT_ONCE:
                self._write(text)
            else:
                await errand(self._write, text)

    def _write(self, text: bytes) -> None:
        self._down.write(text)
        self._down.flush()

    async def _line(self) -> bytes | None:
        """What it says next; None if it has ended. A process that it has left behind may hold the pipe open."""
        reading = asyncio.ensure_future(self._reader.readline())
        try:
            await asyncio.wait({reading, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=0.5)
            line = reading.result() if reading.done() else b""
        finally:
            reading.cancel()
        return line if line.endswith(b"\n") else None

    async def end(self) -> None:
        """Let it end by itself: there is nothing more to do."""
        with contextlib.suppress(OSError):
            self._down.close()
        await asyncio.wait({self._ended}, timeout=TIME_TO_END)
        if self.is_alive:
            await self.kill()
        else:
            self._close()

    async def kill(self) -> None:
        """End it, and whatever it has started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:  # there is no such group any more
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await asyncio.wait({self._ended})
        self._close()

    def when_ended(self, then: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: then())

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._down.close()
        if self._up is not None:
            self._up.close()


class Processes:
    """A pool of children. Where all have work another one is made ready, so that no task waits for Python to start."""

    def __init__(self, most: int | None) -> None:
        self.most = most or os.cpu_count() or 1
        self._room = asyncio.Semaphore(self.most)
        self._places: list[dict[str, Any]] = []
        self._tell: Callable[[int], None] = lambda number: None
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._starting: set[asyncio.Task[Child]] = set()
        self._warming: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._generation = 0
        self._is_broken = False
        """A child died before it did anything: none is made ready until a task has shown why, or that it works."""
        self._is_closed = False

    @property
    def ready(self) -> int:
        """How many tasks can be in processes at once without waiting for one to start."""
        number = len(self._busy) + len(self._starting) + len(self._idle)
        return max(1, number) if self._is_broken else number

    def prepare(self, handlers: Iterable[Definition[Any, Any]], tell: Callable[[int], None]) -> None:
        """Have a process ready for these handlers; `tell` is called with the number of ready ones as it changes."""
        self._places = [_place(handler.function, handler.tube_name) for handler in handlers]
        self._tell = tell
        self._changed()

    def renew(self) -> None:
        """Code has changed: processes are started anew."""
        self._generation += 1
        self._is_broken = False
        idle, self._idle = self._idle, []
        for child in idle:
            self._beside(child.end())
        self._changed()

    def _changed(self) -> None:
        """Make processes ready if none is, twice as many as there were, and say how many there are."""
        if self._places and not (self._is_closed or self._is_broken or self._idle or self._warming or self._starting):
            for _ in range(min(self.most - len(self._busy), max(1, len(self._busy)))):
                warming = asyncio.ensure_future(self._warm(self._generation))
                self._warming.add(warming)
                warming.add_done_callback(self._warmed)
        self._tell(self.ready)

    async def _warm(self, generation: int) -> None:
        child = await self._started(generation)
        try:
            is_ready = await child.call({"prepare": self._places}) is not None
        except BaseException:
            await asyncio.shield(child.kill())
            raise
        if is_ready and child.generation == self._generation and not self._is_closed:
            self._rest(child)
            return
        await child.kill()
        if not is_ready:
            raise Crashed("it ended when it was started")

    def _warmed(self, warming: asyncio.Task[None]) -> None:
        self._warming.discard(warming)
        if warming.cancelled():
            return
        if (error := warming.exception()) is not None:
            self._is_broken = True
            log.warning("no process for handlers can be made ready: %s", error)
        self._changed()

    def _rest(self, child: Child) -> None:
        """It has nothing to do."""
        if not child.is_alive or child.generation != self._generation or self._is_closed:
            self._beside(child.end())
            return
        self._idle.append(child)

    def _left(self, child: Child) -> None:
        """It has ended; if that was while it had nothing to do, nobody else notices."""
        if child in self._idle:
            self._idle.remove(child)
            self._is_broken = not child.is_tried
            self._beside(child.kill())
            self._changed()

    def _beside(self, ending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def call(self, run: Run) -> Any:
        """Run a task in a process of its own; a process whose call is cancelled is killed."""
        async with self._room:
            answer = await self._called(run) or await self._called(run, afresh=True)
        if answer is None:
            raise Crashed("the process for the handler ends when it is started: see what it says on stderr")
        return _value(answer)

    async def _called(self, run: Run, afresh: bool = False) -> dict[str, Any] | None:
        child = await self._child(afresh)
        self._busy.add(child)
        self._changed()
        answer = None
        try:
            answer = await child.call(_message(run))
        except BaseException:
            await asyncio.shield(child.kill())
            raise
        finally:
            self._busy.discard(child)
            if answer is not None:
                child.is_tried, self._is_broken = True, False
                self._rest(child)
            self._changed()
        if answer is None:
            await child.kill()
        return answer

    async def _child(self, afresh: bool) -> Child:
        while self._warming and (afresh or not self._idle):
            await asyncio.wait(self._warming, return_when=asyncio.FIRST_COMPLETED)
            afresh = False
        if self._idle and not afresh:
            return self._idle.pop()
        starting = asyncio.ensure_future(self._started(self._generation))
        self._starting.add(starting)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._came_late)
            raise
        finally:
            if starting.done():
                self._starting.discard(starting)

    async def _started(self, generation: int) -> Child:
        starting = asyncio.ensure_future(Child.start(generation))
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The system has been asked for a process already: it must not be left behind.
            await asyncio.wait({starting})
            if not starting.cancelled() and starting.exception() is None:
                await starting.result().kill()
            raise
        child.when_ended(lambda: self._left(child))
        return child

    def _came_late(self, starting: asyncio.Task[Child]) -> None:
        """Whoever wanted a process was cancelled while it started: the next one can have it."""
        self._starting.discard(starting)
        if not starting.cancelled() and starting.exception() is None:
            self._rest(starting.result())
        self._changed()

    async def close(self) -> None:
        self._is_closed = True
        for warming in self._warming:
            warming.cancel()
        if self._starting or self._warming:
            await asyncio.wait([*self._starting, *self._warming])
            await asyncio.sleep(0)  # those who wait for them come first
        idle, self._idle = self._idle, []
        ends = [*(child.end() for child in idle), *(child.kill() for child in self._busy), *self._ending]
        await asyncio.gather(*ends)


def _pipe() -> tuple[Any, Any]:
    read, write = os.pipe()
    return os.fdopen(read, "rb"), os.fdopen(write, "wb")


def _end(code: int) -> str:
    """How a process has ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}, code {code},"
    return f"was ended by signal {-code}"


def _message(run: Run) -> dict[str, Any]:
    task, data = run.task, run.task._record.data
    facts = ("id", "tube", "attempt", "max_attempts", "last_attempt", "pri", "lane", "key", "token")
    return {
        **_place(run.handler.function, task.tube),
        "stored": run.handler.stores_result,
        "text": data if isinstance(data, str) else None,
        "bytes": b64encode(data).decode() if isinstance(data, bytes) else None,
        "time_left": run.time_left,
        "task": {name: getattr(task, name) for name in facts},
    }


def _place(function: Callable[..., Any], tube: str) -> dict[str, Any]:
    """Where a child finds a handler."""
    main = _main() if function.__module__ == "__main__" else None
    return {"module": function.__module__, "main": main, "name": function.__qualname__, "tube": tube}


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
    kind, value = answer["kind"], answer["value"]
    if kind == "returned":
        return value
    if kind == "release":
        raise Release(_delay(value))
    if kind == "bury":
        raise Bury(value)
    if kind == "payload":
        raise BadPayload(value)
    if kind == "unstorable":
        raise Unstorable(value)
    if kind == "abort":
        raise Abort(value) from HandlerError(value)
    raise HandlerError(value)


_inside = False


def enter() -> None:
    """This process is a child."""
    global _inside
    _inside = True


def refuse_inside() -> None:
    """A child imports the program, and must not become a worker by that."""
    if _inside:
        raise UsageError(
            "this process runs a handler and was importing the program: "
            'start workers under `if __name__ == "__main__":` there'
        )
