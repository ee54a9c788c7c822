"""The thread of a worker that talks to the store.

It takes tasks for the slots that are free and ends those that are done: what was done since the last call and what
is wanted now go into one transaction. Where a tube has nothing it stands in line, so nobody polls.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from penstock.blocking import Queue, Task, Tube
from penstock.engines.line import Taker
from penstock.model import ops
from penstock.model.errors import EngineUnavailable, LeaseLost, PenstockError, TaskNotFound, UsageError
from penstock.model.state import State
from penstock.worker import settling
from penstock.worker.settling import Ending

log = logging.getLogger("penstock.worker")
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0


class Request(NamedTuple):
    """An op, and what its answer is given to."""

    op: ops.Op[Any]
    handle: Callable[[Any], None]


class Line:
    """A tube that a worker takes from."""

    def __init__(self, tube: Tube, weight: float) -> None:
        self.tube = tube
        self.weight = weight
        self.waiter: Taker | None = None
        self.hot = True
        """It gave as many tasks as were asked for, so there may be more."""
        self.leaving = False
        """Nothing is taken from it any more; the thread forgets it at its next round."""
        self.credit = 0.0
        self.pause = 0.0
        self.not_before = 0.0

    @property
    def is_prompt(self) -> bool:
        """Tasks of it are not taken before there is a slot: they would count as running, or use up a rate."""
        config = self.tube._config
        return config.concurrency is not None or config.lane_rate is not None or config.lane_concurrency is not None

    def failed(self, error: BaseException, now: float) -> None:
        """Ask again later, and say why once."""
        if not self.pause:
            log.error("no tasks can be taken from tube %r, trying again: %s", self.tube.name, error)
        self.pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self.pause))
        self.not_before = now + self.pause
        self.hot = True

    def succeeded(self) -> None:
        if self.pause:
            log.info("tasks can be taken from tube %r again", self.tube.name)
            self.pause = self.not_before = 0.0


class Fetcher:
    """Takes tasks and ends them, for one worker."""

    def __init__(
        self, queue: Queue, deliver: Callable[[list[Task], float], None], tell: Callable[[Task], None]
    ) -> None:
        self._queue = queue
        self._engine = queue._engine
        self._deliver = deliver
        self._tell = tell
        """Called when a task is no longer ours."""
        self.lines: dict[str, Line] = {}
        self.slots = 1
        self.prefetch = 0
        self._held = 0
        self._lock = threading.Lock()
        self._endings: deque[tuple[Task, Ending]] = deque()
        self._to_check: list[Task] = []
        self._again: list[tuple[Task, Ending]] = []
        self._pause = 0.0
        self._resume_at = 0.0
        self._taking = False
        self._closing = False
        self._give_up_at: float | None = None
        self._settled: list[Callable[[], None]] = []
        self._poked = threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock fetcher", daemon=True)

    # -- for the worker ----------------------------------------------------------------------------

    def start(self) -> None:
        self._taking = True
        self._thread.start()
        self.poke()

    def poke(self) -> None:
        """There is something to do."""
        self._poked.set()

    @property
    def pending(self) -> int:
        """Tasks that are taken, or not ended yet as far as the store knows."""
        return self._held + len(self._endings) + len(self._again)

    @property
    def unended(self) -> int:
        """How many endings the store has not been told yet."""
        return len(self._endings) + len(self._again)

    def end(self, task: Task, ending: Ending) -> None:
        """A task has ended; poke() when it is time to say so."""
        with self._lock:
            self._held -= 1
        if ending.verb != "nothing":
            self._endings.append((task, ending))

    def check(self, tasks: Iterable[Task]) -> None:
        """Look whether tasks are still ours."""
        self._to_check.extend(tasks)
        self.poke()

    def add_line(self, line: Line) -> None:
        """Take from a tube from now on; one that is there already has its new options."""
        with self._lock:
            old = self.lines.get(line.tube.name)
            if old is None or old.leaving:
                self.lines = {**self.lines, line.tube.name: line}
            else:
                old.tube = line.tube
        self.poke()

    def stop_taking(self, then: Callable[[], None]) -> None:
        """Take nothing any more; what was granted up to then is delivered before `then` is called."""
        self._taking = False
        self._settled.append(then)
        self.poke()

    def close(self, patience: float) -> int:
        """End what is to be ended, in so many seconds at most; answers how many tasks could not be."""
        self._give_up_at = time.monotonic() + patience
        self._closing = True
        self.poke()
        if self._thread.is_alive():
            self._thread.join()
        return self.unended

    # -- the thread --------------------------------------------------------------------------------

    def _work(self) -> None:
        pause: float | None = None
        while True:
            self._poked.wait(pause)
            self._poked.clear()
            if self._closing and (not self.unended or self._is_over()):
                self._withdraw(list(self.lines.values()))
                return
            try:
                pause = self._round()
            except Exception:
                log.exception("the fetcher could not do its work; it tries again")
                pause = LONGEST_PAUSE / 5

    def _is_over(self) -> bool:
        return self._give_up_at is not None and time.monotonic() >= self._give_up_at

    def _round(self) -> float | None:
        """Do what there is to do; answers the seconds until there may be more without being poked."""
        if not self._taking:
            self._withdraw(list(self.lines.values()))
        self._leave()
        self._collect()
        now = time.monotonic()
        if now >= self._resume_at:
            requests = [*self._ends(), *self._checks(), *self._takes(now)]
            if requests:
                self._perform(requests)
            self._stand_in_line()
        if not self._taking and not any(line.waiter for line in self.lines.values()):
            settled, self._settled = self._settled, []
            for then in settled:
                then()
        return self._next_look(now)

    def _next_look(self, now: float) -> float | None:
        moments = [line.not_before for line in self.lines.values() if line.not_before > now and self._taking]
        if self._resume_at > now:
            moments.append(self._resume_at)
        if self._closing and self._give_up_at is not None:
            moments.append(self._give_up_at)
        return max(0.001, min(moments) - now) if moments else None

    def _perform(self, requests: list[Request]) -> None:
        try:
            answers = self._engine.execute_many([request.op for request in requests])
        except Exception as error:
            answers = [error] * len(requests)
        for request, answer in zip(requests, answers, strict=True):
            request.handle(answer)
        if any(isinstance(answer, EngineUnavailable) for answer in answers):
            self._pause = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self._pause))
            self._resume_at = time.monotonic() + self._pause
        else:
            self._pause = 0.0

    def _leave(self) -> None:
        leaving = [line for line in self.lines.values() if line.leaving]
        if leaving:
            self._withdraw(leaving)
            with self._lock:
                self.lines = {name: line for name, line in self.lines.items() if not line.leaving}

    # -- ending ------------------------------------------------------------------------------------

    def _ends(self) -> list[Request]:
        """The tasks that are done: acks of a tube together, everything else as an op each."""
        endings, self._again = self._again, []
        while self._endings:
            endings.append(self._endings.popleft())
        acks: dict[str, list[tuple[Task, Ending]]] = {}
        requests = list[Request]()
        for task, ending in endings:
            if task._tube._config.hooks:
                self._ended(task, ending, settling.by_facade(task, ending))
            elif ending.verb == "ack":
                acks.setdefault(task.tube, []).append((task, ending))
            else:
                requests.append(Request(settling.op(task, ending), self._one_ended(task, ending)))
        for tube, done in acks.items():
            items = tuple(settling.finish(task, ending) for task, ending in done)
            requests.append(Request(ops.Ack(tube, items, self._queue._session), self._many_ended(done)))
        return requests

    def _one_ended(self, task: Task, ending: Ending) -> Callable[[Any], None]:
        return lambda answer: self._ended(task, ending, answer)

    def _many_ended(self, done: list[tuple[Task, Ending]]) -> Callable[[Any], None]:
        def handle(answers: Any) -> None:
            if isinstance(answers, BaseException):
                answers = [answers] * len(done)
            for (task, ending), answer in zip(done, answers, strict=True):
                if isinstance(answer, BaseException):
                    self._ended(task, ending, answer)

        return handle

    def _ended(self, task: Task, ending: Ending, answer: Any) -> None:
        if not isinstance(answer, BaseException):
            return
        if isinstance(answer, EngineUnavailable):
            if not self._pause:
                log.warning("task %r of %r could not be ended yet: %s", task.id, task.tube, answer)
            self._again.append((task, ending))
        elif isinstance(answer, LeaseLost | TaskNotFound):
            log.warning("what became of task %r of %r came too late: %s", task.id, task.tube, answer)
        elif isinstance(answer, UsageError) and ending.verb != "abort":
            log.error("task %r of %r cannot be ended as its handler asked: %s", task.id, task.tube, answer)
            self._again.append((task, Ending("abort", str(answer))))
            self.poke()
        else:
            log.error("task %r of %r could not be ended: %s", task.id, task.tube, answer)

    def _checks(self) -> list[Request]:
        tasks, self._to_check = self._to_check, []
        return [Request(ops.Peek(task.tube, task.id), self._checked(task)) for task in tasks]

    def _checked(self, task: Task) -> Callable[[Any], None]:
        def handle(answer: Any) -> None:
            gone = isinstance(answer, PenstockError) and not isinstance(answer, EngineUnavailable)
            if gone or (not isinstance(answer, BaseException) and not _holds(task, answer)):
                self._tell(task)

        return handle

    # -- taking ------------------------------------------------------------------------------------

    def _room(self, line: Line) -> int:
        return self.slots + (0 if line.is_prompt else self.prefetch) - self._held

    def _takes(self, now: float) -> list[Request]:
        """What to ask tubes for that are not known to be empty, shared out by weight."""
        if not self._taking:
            return []
        lines = [line for line in self.lines.values() if line.hot and line.waiter is None and line.not_before <= now]
        room = max((self._room(line) for line in lines), default=0)
        if room <= 0:
            return []
        requests = list[Request]()
        for line, share in _shares(lines, room):
            asked = min(share, self._room(line))
            if asked > 0:
                op = ops.Take(line.tube.name, asked, self._queue._session)
                requests.append(Request(op, self._granted(line, asked, now)))
        return requests

    def _granted(self, line: Line, asked: int, began: float) -> Callable[[Any], None]:
        def handle(answer: Any) -> None:
            if isinstance(answer, BaseException):
                line.failed(answer, time.monotonic())
                return
            line.succeeded()
            line.hot = len(answer or ()) >= asked
            self._hand_over(line, answer, began)

        return handle

    def _hand_over(self, line: Line, records: Any, began: float) -> None:
        if not records:
            return
        with self._lock:
            self._held += len(records)
        self._deliver([Task(line.tube, record, None, True) for record in records], began)

    def _stand_in_line(self) -> None:
        """Wait where there was nothing, as long as there is room; give up the place where there is none."""
        if not self._taking:
            return
        lines = list(self.lines.values())
        full = [line for line in lines if line.waiter is not None and self._room(line) <= 0]
        self._withdraw(full)
        waiting = [line for line in lines if not line.hot and line.waiter is None and self._room(line) > 0]
        for line in waiting:
            op = ops.Take(line.tube.name, max(1, self._room(line) // len(lines)), self._queue._session)
            waiter = Taker(op, None)
            waiter.on_wake(self.poke)
            line.waiter = waiter
            try:
                self._engine.enlist(waiter)
            except Exception as error:
                line.waiter = None
                line.failed(error, time.monotonic())
                self.poke()

    def _collect(self) -> None:
        """Take over what was granted to those who stood in line."""
        for line in self.lines.values():
            waiter = line.waiter
            if waiter is None or not waiter.done:
                continue
            line.waiter = None
            if isinstance(waiter.answer, BaseException):
                line.failed(waiter.answer, time.monotonic())
            elif waiter.answer:
                assert isinstance(waiter.op, ops.Take)
                line.hot = len(waiter.answer) >= waiter.op.n
                self._hand_over(line, waiter.answer, time.monotonic())

    def _withdraw(self, lines: list[Line]) -> None:
        for line in lines:
            if line.waiter is not None:
                try:
                    self._engine.withdraw(line.waiter)
                except Exception:
                    log.exception("the worker could not leave the line of tube %r", line.tube.name)
        self._collect()


def _shares(lines: list[Line], room: int) -> list[tuple[Line, int]]:
    """Share room out by weight; what does not come out even is settled over the next rounds."""
    total = sum(line.weight for line in lines)
    for line in lines:
        line.credit += room * line.weight / total
    shares = {line: max(0, int(line.credit)) for line in lines}
    left = room - sum(shares.values())
    for line in sorted(lines, key=lambda line: shares[line] - line.credit):
        if left <= 0:
            break
        shares[line] += 1
        left -= 1
    for line, share in shares.items():
        line.credit -= share
    return list(shares.items())


def _holds(task: Task, record: Any) -> bool:
    return bool(record.state == State.TAKEN and record.token == task._held)
