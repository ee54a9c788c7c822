"""What a store tells about itself: its counters, and how long work has waited. Read aside, so that nobody hangs."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.state import State
from penstock.model.stats import Statistics

log = logging.getLogger("penstock.metrics")
FEW = 1000
"""So many tasks that are not ready are stepped over at every look for the oldest one that is."""
WHOLE = 20
"""Where there are more, every so many looks begin at the beginning; the others begin where the last one ended."""


class Seen(NamedTuple):
    """What a store has told in time."""

    statistics: dict[str, Statistics] | None
    """The counters by tube; None if the store did not answer."""
    oldest: dict[str, float]
    """How many seconds the oldest ready task of a tube has waited; 0 where nothing is ready."""


class Reader:
    """Reads a queue's store in threads of its own: a store that hangs keeps nobody waiting for longer than asked."""

    def __init__(self, queue: Any, oldest: bool = True) -> None:
        self._engine: Engine = getattr(queue._engine, "engine", queue._engine)
        self._oldest = Oldest(self._engine) if oldest else None
        self._lock = threading.Lock()
        self._look: Look | None = None
        self._in_trouble = False

    def read(self, seconds: float) -> Seen:
        """Look now; while an earlier look has not ended, its answer is waited for instead."""
        end = time.monotonic() + seconds
        with self._lock:
            if self._look is None or self._look.oldest.done():
                self._look = look = Look()
                threading.Thread(target=self._read, args=(look,), name="penstock metrics", daemon=True).start()
            look = self._look
        try:
            statistics = look.statistics.result(seconds)
        except Exception as error:
            self._tell(str(error) or f"no answer within {seconds:g} s")
            return Seen(None, {})
        self._tell(None)
        with contextlib.suppress(Exception):
            return Seen(statistics, look.oldest.result(max(0.0, end - time.monotonic())))
        return Seen(statistics, {})

    def _read(self, look: Look) -> None:
        try:
            statistics = self._engine.execute(ops.GetStatistics())
            look.statistics.set_result(statistics)
            look.oldest.set_result({} if self._oldest is None else self._oldest.ages(statistics))
        except BaseException as error:
            for answer in (look.statistics, look.oldest):
                if not answer.done():
                    answer.set_exception(error)

    def _tell(self, trouble: str | None) -> None:
        """Say once that there is trouble, and once that it is over."""
        if trouble is not None and not self._in_trouble:
            log.warning("the counters of %s cannot be read: %s", self._engine.name, trouble)
        elif trouble is None and self._in_trouble:
            log.info("the counters of %s can be read again", self._engine.name)
        self._in_trouble = trouble is not None


class Look:
    """One look at a store, while it goes on and afterwards."""

    def __init__(self) -> None:
        self.statistics: Future[dict[str, Statistics]] = Future()
        self.oldest: Future[dict[str, float]] = Future()


class Oldest:
    """Finds the ready task of each tube that was put first.

    No index has tasks by age, so a look steps over what was put earlier and is not ready: taken, delayed, buried, kept.
    Where that is much it begins at the task that was the oldest before. What has come back to ready further down is
    then found by the next look at the whole tube.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._marks: dict[str, int] = {}
        self._looks = 0

    def ages(self, statistics: Mapping[str, Statistics]) -> dict[str, float]:
        """How long they have waited, in seconds."""
        ages = {name: 0.0 for name, counters in statistics.items() if not counters.tasks["ready"]}
        if self._looks % WHOLE == 0:
            self._marks.clear()
        self._looks += 1
        for name in statistics:
            if _others(statistics[name]) <= FEW:
                self._marks.pop(name, None)
        waiting = [name for name in statistics if name not in ages]
        ages |= self._look(waiting)
        missed = [name for name in waiting if name not in ages and self._marks.pop(name, None) is not None]
        return ages | self._look(missed)

    def _look(self, tubes: list[str]) -> dict[str, float]:
        if not tubes:
            return {}
        found = dict[str, float]()
        asked = [ops.ListTasks(tube, State.READY, 1, self._marks.get(tube)) for tube in tubes]
        answers = self._engine.execute_many(asked)
        now = self._engine.clock.now()
        for tube, answer in zip(tubes, answers, strict=True):
            if isinstance(answer, list) and answer:
                record = answer[0]
                since = record.created_at if record.ready_at is None else record.ready_at
                found[tube] = max(0, now - since) / SECOND
                if record.id == record.seq:  # a number, of which one less can be asked for though no task has it
                    self._marks[tube] = record.seq - 1
        return found


def _others(counters: Statistics) -> int:
    return sum(counters.tasks[state] for state in ("taken", "delayed", "buried", "kept"))
