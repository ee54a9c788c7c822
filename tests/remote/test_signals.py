"""A signal wherever the interpreter looks for one, between a call and its answer: no task is granted to nobody.

It looks when a function of Python begins and when one of C has ended, as the commit of a store; that is where profilers
are called, too.
"""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.worker.bench import until

import penstock
from penstock import State
from penstock.engines import Engine

ENGINES = str(Path(sys.modules[Engine.__module__].__file__ or "").parent)
MOST = 2000
"""More of these places than any of these calls has."""


CALM = 5
"""Calls in a row without an interruption after which no place is left. A single one proves nothing: when another thread
of the store performs a call, its own thread comes to fewer places."""


class Interrupted(BaseException):
    """What the handler of a signal raises."""


class Interruption:
    """Raises at the n-th such place that the thread comes to in an engine, once."""

    def __init__(self, place: int, files: tuple[str, ...]) -> None:
        self._place = place
        self._files = files
        self.raised = False

    def __enter__(self) -> Interruption:
        gc.disable()  # a finalizer of what another test has left behind is not the place to raise in
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(self._files):
            self._place -= 1
            if self._place == 0:
                self.raised = True
                sys.setprofile(None)
                raise Interrupted


FILES = {
    "memory:": tuple(f"{ENGINES}/{name}.py" for name in ("store", "group", "line")),
    "file": (ENGINES,),
}
"""In memory there is no transaction, so nothing undoes a verb that is interrupted."""


def opened(where: str, tmp_path: Path) -> Any:
    return penstock.connect(where if where != "file" else tmp_path / "tasks.db", durability="relaxed")


@pytest.mark.parametrize("where", FILES)
@pytest.mark.parametrize("temporary", [False, True])
def test_a_take(where: str, tmp_path: Path, temporary: bool) -> None:
    with opened(where, tmp_path) as q:
        jobs = q.create_tube("jobs", temporary=temporary)
        jobs.put(1)
        after = 0
        for place in range(1, MOST):
            try:
                with Interruption(place, FILES[where]) as interruption:
                    jobs.take()
            except Interrupted:
                record = jobs.peek(1)
                assert (record.state, record.attempt) == (State.READY, 0), f"place {place}"
            else:
                assert not interruption.raised
                break
            after = place
        assert 5 < after < MOST - 1
        assert jobs.peek(1).attempt == 1


def test_a_take_that_others_wait_for(tmp_path: Path) -> None:
    """The thread that is interrupted has performed what others asked for, too: they are answered."""
    with opened("file", tmp_path) as q:
        jobs = q.create_tube("jobs")
        store = q._engine.store
        jobs.put("mine")
        interrupted = calm = 0
        for place in range(1, MOST):
            got: list[Any] = []

            def other(place: int = place, got: list[Any] = got) -> None:
                try:
                    got.append(jobs.put(place))
                except penstock.EngineUnavailable as error:
                    got.append(error)

            thread = threading.Thread(target=other)
            store._mutex.acquire()
            thread.start()
            until(lambda: store._group._pending)
            store._mutex.release()
            interruption = Interruption(place, (ENGINES,))
            try:
                with interruption:
                    mine = jobs.take()
            except Interrupted:
                pass
            q.tick()  # who waited for the lock that the test held, and was not seen to, is seen to now
            thread.join(90)
            assert got, f"place {place}"
            [told] = got
            stored = [task for task in jobs.tasks() if task.data == place]
            if isinstance(told, penstock.EngineUnavailable):
                assert told.outcome == "unknown"
            else:
                assert len(stored) == 1
            for task in stored:
                jobs.delete(task.id)
            if interruption.raised:
                assert jobs.statistics().tasks["taken"] == 0, f"place {place}"
                interrupted, calm = interrupted + 1, 0
            else:
                mine.release()
                calm += 1
            if calm == CALM:
                break
        assert interrupted > 20 and calm == CALM


def test_a_put_that_somebody_waits_for(tmp_path: Path) -> None:
    """The thread that is interrupted serves who waits: that one has the task, or goes on waiting."""
    with opened("file", tmp_path) as q:
        jobs = q.create_tube("jobs")
        store = q._engine.store
        interrupted = calm = 0
        for place in range(1, MOST):
            got: list[Any] = []
            thread = threading.Thread(target=lambda got=got: got.append(jobs.take(600)))
            thread.start()
            until(lambda: store.waiters == 1)
            interruption = Interruption(place, (ENGINES,))
            try:
                with interruption:
                    jobs.put(place)
            except Interrupted:
                pass
            if not jobs.statistics().tasks["total"]:
                jobs.put(place)  # it was interrupted before it was done
            thread.join(90)
            assert got and got[0].data == place, f"place {place}"
            got[0].ack()
            interrupted, calm = (interrupted + 1, 0) if interruption.raised else (interrupted, calm + 1)
            if calm == CALM:
                break
        assert interrupted > 20 and calm == CALM
