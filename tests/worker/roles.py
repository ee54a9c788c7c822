"""What processes of workers do in tests: they say what their handlers do, and hear what they shall do next."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Any

from tests.crash.children import Wire
from tests.worker.later import Later

import penstock
from penstock import Run, Worker
from penstock.worker import fetch, signals, slots, worker
from penstock.worker import run as runs
from penstock.worker.app import App

SESSION_TTL = 600.0
"""Seconds that a session lives without a sign of life: so long that none ends because the machine is slow."""
PATIENCE = 90.0
_wire: Wire


class Program:
    """A program with handlers for the tubes quick, loop, thread, stuck and bad."""

    def __init__(self, wire: Wire, url: str, **options: Any) -> None:
        self.wire = wire
        self.q = penstock.connect(url, durability="relaxed", session_ttl=SESSION_TTL)
        self.go = threading.Event()
        self.later = Later()
        for module in (fetch, runs, slots):
            vars(module)["time"] = self.later
        slots.LAST_WORDS = worker.LAST_WORDS = PATIENCE
        for name in ("quick", "loop", "thread", "stuck", "bad"):
            self.q.handler(name, **{"retry": 0, **options})(getattr(self, name))
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Orders are to let handlers go on, and that it is much later now."""
        while order := self.wire.hear():
            if order == "go":
                self.go.set()
            else:
                self.later(order)

    async def quick(self, n: Any, run: Run) -> None:
        self.wire.say("ran", "quick", n, run.attempt)

    async def loop(self, n: Any, run: Run) -> None:
        self.wire.say("began", "loop", n, run.attempt)
        try:
            while not self.go.is_set():
                await asyncio.get_running_loop().run_in_executor(None, self.go.wait, 0.01)
        except asyncio.CancelledError:
            self.wire.say("told", "loop", n, run.why)
            raise
        self.wire.say("ran", "loop", n, run.attempt)

    def thread(self, n: Any, run: Run) -> None:
        self.wire.say("began", "thread", n, run.attempt)
        while not self.go.is_set():
            if run.wait(0.01):
                self.wire.say("told", "thread", n, run.why)
                return
        self.wire.say("ran", "thread", n, run.attempt)

    def stuck(self, n: Any, run: Run) -> None:
        self.wire.say("began", "stuck", n, run.attempt)
        threading.Event().wait()

    async def bad(self, n: Any, run: Run) -> None:
        """It keeps the loop for itself."""
        self.wire.say("began", "bad", n, run.attempt)
        try:
            threading.Event().wait()
        finally:
            signals.STUCK = 1000.0  # once is enough

    def run(self, **options: Any) -> None:
        worker = Worker(self.q, **options)
        worker.on_start = lambda: self.wire.say("started", worker._queue._session.uuid)  # type: ignore[union-attr]
        tally = worker.run()
        self.wire.say("ended", tally.ok, tally.trouble, tally.given_back)


def program(wire: Wire, url: str, options: dict[str, Any], handlers: dict[str, Any], stuck: float = 1000.0) -> None:
    """A process that works until a signal ends it; its loop is taken for stuck after so many seconds."""
    signals.STUCK = stuck
    Program(wire, url, **handlers).run(**options)


def inside(wire: Wire, url: str, tube: str, options: dict[str, Any]) -> None:
    """A process whose handlers say how many of the tube's tasks are taken while they run, until nothing is left."""
    q = penstock.connect(url, durability="relaxed")

    @q.handler(tube, **options)
    def job(n: Any) -> None:
        wire.say("taken", q.tube(tube).statistics().tasks["taken"])

    wire.say("ready")
    wire.hear()
    Worker(q, concurrency=4).run(until_empty=True)


def say(*values: Any) -> None:
    """For programs that a test writes: they import this."""
    _wire.say(*values)


def app(wire: Wire, folder: str, target: str, options: dict[str, Any]) -> None:
    """A process that works for a program in a folder, as `penstock worker target` does."""
    global _wire
    _wire = wire
    os.chdir(folder)
    logging.getLogger("penstock.worker").addHandler(Told(wire))
    logging.getLogger("penstock.worker").setLevel(logging.INFO)
    program = App(target)
    worker = Worker(program.load(), **options)
    worker.app = program
    worker.on_start = lambda: wire.say("started", os.getpid())
    worker.run()
    wire.say("ended")


class Told(logging.Handler):
    """Says what is logged."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        self._wire.say("log", record.levelname, record.getMessage())
