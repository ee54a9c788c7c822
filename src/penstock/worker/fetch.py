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
from penstock.model.errors import (
    EngineUnavailable,
    LeaseLost,
    NotOwner,
    NotTaken,
    NotWritable,
    PayloadTooLarge,
    PenstockError,
    TaskNotFound,
    TubeNotFound,
    UsageError,
    WrongState,
)
from penstock.model.state import State
from penstock.worker import settling
from penstock.worker.lines import FIRST_PAUSE, LONGEST_PAUSE, Line, shares
from penstock.worker.run import facts
from penstock.worker.settling import Ending

log = logging.getLogger("penstock.worker")
GONE = (LeaseLost, TaskNotFound, TubeNotFound, NotTaken, NotOwner, WrongState)
"""Answers that say that a task is not ours to end any more."""
PROBE = 0.05
"""Seconds between two looks into tubes that had nothing, while others have more than there is room for."""
RENEW = 1.0
"""Seconds after which the options of a tube are read again, while tasks are fetched ahead from it."""


class Request(NamedTuple):
    """An op, and what its answer is given to."""

    op: ops.Op[Any]
    handle: Callable[[Any], None]


class Fetcher:
    """Takes tasks and ends them, for one worker."""

    def __init__(
        self, queue: Queue, deliver: Callable[[list[Task], float, bool], None], tell: Callable[[Task], None]
    ) -> None:
        self._queue = queue
        self._engine = queue._engine
        self._deliver = deliver
        self._tell = tell
        """Called when a task is no longer ours."""
        self.lines: dict[str, Line] = {}
        self._apart = set[str]()
        """Tubes whose tasks run beside the slots."""
        self.slots = 1
        self.processes = 1
        self.prefetch = 0
        self._ahead = 0
        """How many tasks are fetched ahead in this round."""
        self._held = 0
        self._held_apart = 0
        self._probed_at = 0.0
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
        return self._held + self._held_apart + self.unended

    @property
    def unended(self) -> int:
        """How many endings the store has not been told yet."""
        return len(self._endings) + len(self._again)

    def end(self, task: Task, ending: Ending) -> None:
        """A task has ended; poke() when it is time to say so."""
        # In this order: whoever sees that there is room finds the ending that made it.
        if ending.verb != "nothing":
            self._endings.append((task, ending))
        self._hold(task.tube, -1)

    def _hold(self, tube: str, number: int) -> None:
        with self._lock:
            if tube in self._apart:
                self._held_apart += number
            else:
                self._held += number
            line = self.lines.get(tube)
            if line is not None:  # it may be another one than that which took the task
                line.held = max(0, line.held + number)
                if number < 0:
                    line.ended += 1
                    line.hot = line.hot or line.is_prompt  # what has ended makes room for the next

    def check(self, tasks: Iterable[Task]) -> None:
        """Look whether tasks are still ours."""
        self._to_check.extend(tasks)
        self.poke()

    def add_line(self, line: Line) -> None:
        """Take from a tube from now on; one that is there already has its new options."""
        with self._lock:
            if line.apart:
                self._apart.add(line.tube.name)
            old = self.lines.get(line.tube.name)
            if old is None or old.leaving:
                self.lines = {**self.lines, line.tube.name: line}
            else:
                old.tube, old.weight, old.in_process = line.tube, line.weight, line.in_process
        self.poke()

    def have_processes(self, number: int) -> None:
        """So many tasks can be in processes now."""
        if number != self.processes:
            self.processes = number
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
            self._thread.join(patience + 1)  # a store that does not answer does not let it go
        return self.unended

    # -- the thread --------------------------------------------------------------------------------

    def _work(self) -> None:
        pause: float | None = None
        while not (self._closing and (not self.unended or self._is_over())):
            self._poked.wait(pause)
            self._poked.clear()
            try:
                pause = self._round()
            except Exception:
                log.exception("the fetcher could not do its work; it tries again")
                pause = LONGEST_PAUSE / 5
        self._withdraw(list(self.lines.values()))

    def _is_over(self) -> bool:
        return self._give_up_at is not None and time.monotonic() >= self._give_up_at

    def _round(self) -> float | None:
        """Do what there is to do; answers the seconds until there may be more without being poked."""
        if not self._taking:
            self._withdraw(list(self.lines.values()))
        self._leave()
        self._collect()
        now = time.monotonic()
        # Beside a tube from which nothing may be fetched ahead nothing is: what waits here would take its slots.
        prompt = any(line.is_prompt and not line.apart for line in self.lines.values())
        self._ahead = 0 if prompt else self.prefetch
        if now >= self._resume_at:
            takes = self._takes(now)
            # Looked for after the room that they leave, and performed before it is used: a tube with limits would
            # have nothing to give otherwise.
            requests = [*self._ends(), *self._checks(), *takes]
            if requests:
                self._perform(requests)
            self._stand_in_line(now)
            if self._taking and self._hot(now):
                self.poke()
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
            try:
                request.handle(answer)
            except Exception:
                # Not the op itself: it holds the session's uuid, tokens and data.
                log.exception("the fetcher could not use the answer to %s", type(request.op).__name__)
        if any(_passes(answer) for answer in answers):
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
            if task._tube._config.hooks or task._undo is not None:
                self._ended(task, ending, _by_facade(task, ending))
            elif ending.verb == "ack":
                acks.setdefault(task.tube, []).append((task, ending))
            else:
                op = self._op(task, ending)
                if op is not None:
                    requests.append(Request(op, self._one_ended(task, ending)))
        for tube, done in acks.items():
            items = tuple(settling.finish(task, ending) for task, ending in done)
            requests.append(Request(ops.Ack(tube, items, self._queue._session), self._many_ended(done)))
        return requests

    def _op(self, task: Task, ending: Ending) -> ops.Op[Any] | None:
        """How to tell the store; None if what a handler gave cannot be told."""
        try:
            return settling.op(task, ending)
        except Exception as error:
            self._ended(task, ending, UsageError(str(error)))
            return None

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
        more = {**facts(task), "ending": ending.verb}
        if isinstance(answer, UsageError | PayloadTooLarge) and ending.verb not in ("abort", "refund"):
            log.error("task %r of %r cannot be ended as its handler asked: %s", task.id, task.tube, answer, extra=more)
            self._again.append((task, Ending("abort", str(answer))))
            self.poke()
        elif isinstance(answer, GONE):
            log.warning("what became of task %r of %r came too late: %s", task.id, task.tube, answer, extra=more)
        elif isinstance(answer, UsageError | PayloadTooLarge):
            log.error("task %r of %r could not be ended: %s", task.id, task.tube, answer, extra=more)
        else:
            if not self._pause:
                log.warning("task %r of %r could not be ended yet: %s", task.id, task.tube, answer, extra=more)
            self._again.append((task, ending))

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
        if line.apart:
            return line.apart - self._held_apart
        room = self.slots + self._ahead - self._held
        return min(room, self._free_processes()) if line.in_process else room

    def _free_processes(self) -> int:
        return self.processes - sum(line.held for line in self.lines.values() if line.in_process)

    def _hot(self, now: float) -> list[Line]:
        """Tubes that are not known to be empty, and that there is room for."""
        return [line for line in self.lines.values() if line.hot and line.may_be_asked(now) and self._room(line) > 0]

    def _takes(self, now: float) -> list[Request]:
        """What to ask tubes for that are not known to be empty, shared out by weight."""
        if not self._taking:
            return []
        requests = list[Request]()
        hot = list[Line]()
        for line in self._hot(now):
            if line.apart:
                requests += self._take(line, self._room(line), now)
            else:
                hot.append(line)
        room = max((self._room(line) for line in hot), default=0)
        free, processes = self.slots - self._held, self._free_processes()
        cold = self._cold(now) if room > 0 else None
        if cold is not None:
            requests += self._take(cold, 1, now)
            room, free = room - 1, free - 1
        for line, share in shares(hot, room) if room > 0 else ():
            asked = min(share, self._room(line), free if line.is_prompt else share)
            if line.in_process:
                asked = min(asked, processes)
                processes -= max(0, asked)
            if asked > 0:
                free -= asked if line.is_prompt else 0
                requests += self._take(line, asked, now)
        return requests

    def _cold(self, now: float) -> Line | None:
        """The tube to look into although it had nothing, since the others have more than there is room for."""
        lines = [line for line in self.lines.values() if not line.hot and line.may_be_asked(now) and not line.apart]
        lines = [line for line in lines if self._room(line) > 0]
        if not lines or now < self._probed_at + PROBE:
            return None
        self._probed_at = now
        return min(lines, key=lambda line: line.asked_at)

    def _take(self, line: Line, asked: int, now: float) -> list[Request]:
        line.asked_at = now
        op = ops.Take(line.tube.name, asked, self._queue._session)
        requests = [Request(op, self._granted(line, asked, now))]
        if self.prefetch and not line.is_prompt and now >= line.looked_at + RENEW:
            line.looked_at = now
            requests.append(Request(ops.GetTube(line.tube.name), self._renewed(line)))
        return requests

    def _renewed(self, line: Line) -> Callable[[Any], None]:
        """Somebody may have set limits meanwhile."""

        def handle(answer: Any) -> None:
            if not isinstance(answer, BaseException):
                line.tube = Tube(self._queue, answer)

        return handle

    def _granted(self, line: Line, asked: int, began: float) -> Callable[[Any], None]:
        ended = line.ended

        def handle(answer: Any) -> None:
            if isinstance(answer, BaseException):
                line.failed(answer, time.monotonic())
                return
            line.succeeded()
            # Where there are limits fewer tasks than asked for are no sign that there are no more, and none is no
            # sign if one has ended meanwhile.
            line.hot = len(answer or ()) >= (1 if line.is_prompt else asked) or (line.is_prompt and line.ended != ended)
            if not line.hot:
                line.credit = 0.0
            self._hand_over(line, answer, began)

        return handle

    def _hand_over(self, line: Line, records: Any, began: float) -> None:
        if not records:
            return
        line.learn(records)
        free = max(0, self._free_processes()) if line.in_process else len(records)
        self._hold(line.tube.name, len(records))
        tasks = [Task(line.tube, record, None, True) for record in records]
        self._deliver(tasks[:free], began, line.is_prompt)
        for task in tasks[free:]:  # several tubes gave tasks for one process
            line.hot = True
            self.end(task, settling.REFUND)
            self.poke()

    def _stand_in_line(self, now: float) -> None:
        """Wait where there was nothing, as long as there is room; give up the place where there is none.

        While one tube has more than there is room for nobody waits at the others, see _cold().
        """
        if not self._taking:
            return
        lines = list(self.lines.values())
        self._withdraw([line for line in lines if line.waiter is not None and self._room(line) <= 0])
        flooded = any(not line.apart for line in self._hot(now))
        waiting = [line for line in lines if not line.hot and line.may_be_asked(now) and self._room(line) > 0]
        for line in waiting:
            if line.apart or not flooded:
                self._enlist(line, max(1, self._room(line) // len(lines)))

    def _enlist(self, line: Line, number: int) -> None:
        waiter = Taker(ops.Take(line.tube.name, number, self._queue._session), None)
        line.woken_at = 0.0
        waiter.on_wake(lambda: self._woken(line))
        line.waiter = waiter
        try:
            self._engine.enlist(waiter)
        except Exception as error:
            line.waiter = None
            self._engine.forget(waiter)
            line.failed(error, time.monotonic())
            self.poke()

    def _woken(self, line: Line) -> None:
        line.woken_at = time.monotonic()
        self.poke()

    def _collect(self) -> None:
        """Take over what was granted to those who stood in line."""
        for line in self.lines.values():
            waiter = line.waiter
            if waiter is None or not waiter.done:
                continue
            line.waiter = None
            self._engine.forget(waiter)
            if isinstance(waiter.answer, BaseException):
                line.failed(waiter.answer, time.monotonic())
            elif waiter.answer:
                assert isinstance(waiter.op, ops.Take)
                line.succeeded()
                line.hot = len(waiter.answer) >= waiter.op.n
                self._hand_over(line, waiter.answer, line.woken_at)

    def _withdraw(self, lines: list[Line]) -> None:
        for line in lines:
            if line.waiter is not None:
                try:
                    self._engine.withdraw(line.waiter)
                except Exception:
                    log.exception("the worker could not leave the line of tube %r", line.tube.name)
        self._collect()


def _by_facade(task: Task, ending: Ending) -> Any:
    """End a task of a kind with hooks: they are the user's, and may fail before or after."""
    try:
        return settling.by_facade(task, ending)
    except Exception as error:
        log.exception("a hook of tube %r failed", task.tube)
        return None if task._ended is not None else UsageError(f"a hook failed: {type(error).__name__}: {error}")


def _passes(answer: Any) -> bool:
    """Whether an answer is an error that may be over in a moment: the store, not the call."""
    passing = isinstance(answer, EngineUnavailable | NotWritable) or not isinstance(answer, PenstockError)
    return isinstance(answer, BaseException) and passing


def _holds(task: Task, record: Any) -> bool:
    return bool(record.state == State.TAKEN and record.token == task._held)
