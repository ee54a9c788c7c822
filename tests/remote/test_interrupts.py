"""Calls that a signal interrupts: nobody has what they were granted, so it goes back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.remote.line import Line
from tests.support import remotes
from tests.worker.bench import until

import penstock
from penstock import State
from penstock.model import ops
from penstock.model.task import Draft


class Interrupted(BaseException):
    """What the handler raises."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Interrupts the thread of the test."""
    caller = threading.main_thread().ident
    assert caller == threading.get_ident()

    def handle(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    yield lambda: signal.pthread_kill(caller, signal.SIGALRM)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("timeout", [0, 600])
def test_a_take_over_a_server(q: Any, near: Any, line: Line, timeout: int, interrupt: Callable[[], None]) -> None:
    jobs, same = q.create_tube("jobs"), near.tube("jobs")

    def meanwhile() -> None:
        if timeout:
            until(lambda: q._engine.store._waits)
            until(lambda: remotes.server(near._engine.name).server.core.waiting == 1)
            line.flowing.clear()
            same.put(1)
        until(lambda: same.statistics().tasks["taken"] == 1)
        interrupt()

    if not timeout:
        same.put(1)
        line.flowing.clear()
    thread = threading.Thread(target=meanwhile)
    thread.start()
    with pytest.raises(Interrupted):
        jobs.take(timeout=timeout)
    thread.join()
    line.flowing.set()
    until(lambda: same.peek(1).state == State.READY)
    task = jobs.take(timeout=60)
    assert task.attempt == 1 and task.ack().state == State.DONE


@pytest.mark.parametrize("where", ["memory:", "file"])
def test_a_take_that_waits_in_this_process(where: str, tmp_path: Path, interrupt: Callable[[], None]) -> None:
    with penstock.connect(where if where != "file" else tmp_path / "tasks.db") as q:
        jobs = q.create_tube("jobs")
        store = q._engine.store

        def meanwhile() -> None:
            until(lambda: store.waiters == 1)
            with store._group.alone():  # the caller cannot leave the line before it is served
                interrupt()
                store._perform((ops.Put("jobs", (Draft("1"),)),), True)

        thread = threading.Thread(target=meanwhile)
        thread.start()
        with pytest.raises(Interrupted):
            jobs.take(timeout=600)
        thread.join()
        assert jobs.peek(1).state == State.READY
        assert jobs.take().attempt == 1
