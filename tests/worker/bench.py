"""A store under test, a program with handlers on it, and workers that run them. Time is the real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.support import engines
from tests.support.blocking import Blocking, unwrap
from tests.worker.later import Later

import penstock
from penstock import Tally, Worker
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.session import Session
from penstock.worker import fetch, slots, worker
from penstock.worker import run as runs

PATIENCE = 90.0
"""Seconds after which what does not come is taken for stuck: less than a test may last."""
GRACE = 1000.0
"""Workers of tests give nothing up because the machine is slow."""


class AsyncApp(Blocking):
    """An async queue for blocking tests: its handlers can be called and put to like blocking ones."""

    def handler(self, tube: str, **options: Any) -> Callable[[Any], Any]:
        return self._defining(self._target.handler(tube, **options))

    def periodic(self, tube: str, **options: Any) -> Callable[[Any], Any]:
        return self._defining(self._target.periodic(tube, **options))

    def _defining(self, define: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda function: AsyncHandler(self._loop, define(unwrap(function)))


class AsyncHandler(Blocking):
    """A handler of an async queue."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._target(*args, **kwargs)


class Bench(engines.Bench):
    """Opens queues on one store with the real clock."""

    manual = False

    def connect(self, **options: Any) -> Any:
        queue = super().connect(**{"clock": None, **options})
        return AsyncApp(self._loop, queue._target) if self._loop is not None else queue


class Still(Bench):
    """Opens queues on one store whose time goes on when a test says so."""

    manual = True

    def connect(self, **options: Any) -> Any:
        return super().connect(**{"clock": self.clock, **options})


def work(q: Any, **options: Any) -> Tally:
    """Let a worker run until nothing is left to do; options are the worker's, and horizon."""
    horizon = options.pop("horizon", None)
    return _run(q, Worker(unwrap(q), **options), until_empty=True, horizon=horizon)


def _run(q: Any, worker: Worker, **options: Any) -> Tally:
    """The worker of an async program runs in the loop of that."""
    if isinstance(q, AsyncApp):
        tally: Tally = q._loop.run(worker.arun(**options))
        return tally
    return worker.run(signals=False, **options)


def put_forward(monkeypatch: pytest.MonkeyPatch) -> Later:
    """The time of workers from now on. They look at what runs many times a second."""
    later = Later()
    for module in (fetch, runs, slots):
        monkeypatch.setattr(module, "time", later)
    monkeypatch.setattr(slots, "LOOK", 0.05)
    return later


def pass_by(q: Any, session: str) -> None:
    """The time of a session that nobody keeps alive is over, but for a moment."""
    q._engine.execute(ops.KeepAlive(Session(session, "nobody", SECOND // 10)))


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that stop have all the time that a slow machine takes to give back what they hold."""
    for module in (slots, worker):
        monkeypatch.setattr(module, "LAST_WORDS", PATIENCE)


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that run until nothing is left look for that all the time: else most tests would wait for that look."""
    monkeypatch.setattr(worker, "EMPTY_LOOK", 0.002)
    monkeypatch.setattr(worker, "RARE_LOOK", 0.02)


class Working:
    """A worker in a thread of its own, for tests that look at it while it works: `with Working(q) as worker:`.

    Leaving stops it and waits for its end.
    """

    def __init__(self, q: Any, **options: Any) -> None:
        self._q = q
        self.worker = Worker(unwrap(q), **{"grace": GRACE, **options})
        self.tally = self.worker.tally
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="worker under test", daemon=True)

    def _run(self) -> None:
        try:
            _run(self._q, self.worker)
        except BaseException as error:
            self.error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> Working:
        self._thread.start()
        return self

    def stop(self, now: bool = False) -> Tally:
        """Stop it and wait until it has ended."""
        self.worker.stop(now)
        return self.ended()

    def ended(self) -> Tally:
        """Wait until it has ended; what it raised is raised here."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the worker does not end"
        if self.error is not None:
            raise self.error
        return self.tally

    def __enter__(self) -> Working:
        return self.start()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.worker.stop(now=error is not None)
        self._thread.join(PATIENCE)
        if error is None:
            self.ended()


def until(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Wait until something is true; answers it."""
    end = time.monotonic() + patience
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come true"
        pause.wait(0.002)
    return found


def until_state(tube: Any, id: Any, state: str) -> Any:
    """Wait until a task is in a state, or, with state "gone", no longer there; answers it."""

    def look() -> Any:
        try:
            task = tube.peek(id)
        except penstock.TaskNotFound:
            return state == "gone"
        return task if task.state == state else None

    return until(look)
