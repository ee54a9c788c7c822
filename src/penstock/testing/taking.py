"""Tasks for drain(): which is next, how it ends, and when there will be more."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.blocking import Queue, Task, Tube
from penstock.handlers import Definition, Registry
from penstock.model import ops
from penstock.model.clock import ManualClock
from penstock.model.duration import SECOND, Seconds, length, moment
from penstock.model.errors import LeaseLost, PenstockError, TaskNotFound, TubeNotFound, UsageError, shown
from penstock.model.state import State
from penstock.model.tube import check_count
from penstock.outcomes import Release
from penstock.payload import error_text
from penstock.schedules import SCHEDULES, Schedule, due
from penstock.worker import settling
from penstock.worker.run import Run
from penstock.worker.schedule import Scheduler
from penstock.worker.settling import Ending
from penstock.worker.worker import _tube, _twin

log = logging.getLogger("penstock.worker")
PAGE = 1000


class Ran(NamedTuple):
    """One run of a handler."""

    task: Task
    """The task as the run left it."""
    ended: str
    """How: ack, fail, abort, bury, release or unknown_handler; by_hand if the handler did it, lost if nobody could."""
    value: Any = None
    """What the handler returned."""
    error: BaseException | None = None
    """What it raised, or why it was not called."""

    @property
    def ok(self) -> bool:
        """Whether a worker would count it as done well."""
        return self.ended in ("ack", "release", "by_hand")


class Drained(list[Ran]):
    """The runs of a drain, in order."""

    @property
    def ok(self) -> int:
        """How many went well."""
        return sum(run.ok for run in self)

    @property
    def trouble(self) -> int:
        """How many failed, aborted, were buried, had bad data or no handler."""
        return len(self) - self.ok

    @property
    def errors(self) -> list[BaseException]:
        """What those raised."""
        return [run.error for run in self if not run.ok and run.error is not None]

    def __repr__(self) -> str:
        first = "".join(f"; first: {_headline(error)}" for error in self.errors[:1])
        return f"<Drained ok {self.ok}, trouble {self.trouble}{first}>"


def _headline(error: BaseException | None) -> str:
    return (error_text(error) or "no error").splitlines()[0]


class Outcome(NamedTuple):
    """What a handler did."""

    value: Any = None
    error: BaseException | None = None


class Draining:
    """Takes tasks and ends them; whoever has one calls the handlers."""

    def __init__(
        self,
        queue: Any,
        tubes: Iterable[Any],
        clock: ManualClock | None,
        horizon: Seconds | None,
        raise_errors: bool,
        limit: int,
    ) -> None:
        self._app = queue
        self._registry: Registry = queue.handlers
        given = [tube_name(tube) for tube in tubes]
        self._fires = not given
        self.names = given or list(self._registry)
        if not self.names:
            raise UsageError("this queue has no handlers: drain the one that they are defined on, or name tubes")
        self._end = self._last_moment(clock, horizon)
        self._raises = raise_errors
        self._limit = check_count(limit, "limit")
        self._lines: deque[Tube] = deque()
        self._queue: Queue | None = None
        self.done = Drained()
        queue._engine.check_owner()

    @property
    def middleware(self) -> list[Any]:
        return self._registry.middleware

    def _last_moment(self, clock: ManualClock | None, horizon: Seconds | None) -> int | None:
        own = self._app._engine.clock
        if clock is not None and clock is not own:
            raise UsageError("clock must be the one that the queue was opened with; leave it out to use that one")
        if horizon is None:
            return None
        if not isinstance(own, ManualClock):
            raise UsageError("horizon moves the clock on: open the queue with connect(url, clock=ManualClock())")
        return int(own.now() + (length(horizon, "horizon") or 0))

    def open(self) -> None:
        """Make or alter the tubes, as a worker does when it starts."""
        self._queue = queue = _twin(self._app)
        self._scheduler = Scheduler(queue)
        self._lines.extend(_tube(queue, self._registry, name) for name in self.names)
        if not self._fires:
            return
        for asked in self._registry.schedules:
            queue._store_schedule(asked)
        try:
            self._lines.appendleft(queue.tube(SCHEDULES))
        except TubeNotFound:
            pass

    def close(self) -> None:
        if self._queue is not None:
            self._queue.close()

    def next(self) -> Run | None:
        """Take the next task for which there is a handler; None when nothing is ready up to the horizon."""
        while (task := self._take()) or self._move_on():
            if task is None:
                continue
            if len(self.done) >= self._limit:
                task.release(refund=True)
                raise UsageError(
                    f"{self._limit} tasks were run and there are more: a handler that always puts tasks, or releases "
                    "its own, never ends; if these are all, pass a higher limit="
                )
            if task.tube == SCHEDULES:
                self._fire(task)
            elif (handler := self._registry.get(task.tube)) is None:
                self._unknown(task)
            else:
                return _run(task, handler)
        return None

    def _take(self) -> Task | None:
        """One task; the tube it came from has its next turn after the others."""
        for _ in range(len(self._lines)):
            tube = self._lines[0]
            self._lines.rotate(-1)
            if task := tube.take():
                return task
        return None

    def _fire(self, task: Task) -> None:
        schedule = Schedule.from_data(task.data)
        fires = due(schedule, max(task._record.taken_at or 0, schedule.next))
        self._scheduler._commit(schedule, fires, task)
        task._ended = "release"

    def _unknown(self, task: Task) -> None:
        text = f"no handler of this queue is for tube {task.tube!r}"
        self._settle(task, Ending("unknown_handler", text), None, UsageError(text))

    def give_back(self, run: Run) -> None:
        """Give a task back whose handler was interrupted: by Ctrl-C, say, or by pytest.fail()."""
        if run.task._ended is None:
            settling.by_facade(run.task, settling.REFUND)

    def end(self, run: Run, outcome: Outcome) -> None:
        """End a task as a worker would."""
        __tracebackhide__ = True
        task, error = run.task, outcome.error
        if error is None:
            ending = settling.returned(task, outcome.value, run.handler.stores_result)
            error = None if ending.ok else UsageError(ending.value)
        else:
            ending = settling.raised(task, error)
        self._settle(task, ending, outcome.value, error)

    def _settle(self, task: Task, ending: Ending, value: Any, error: BaseException | None) -> None:
        __tracebackhide__ = True
        answer = None if ending.verb == "nothing" else settling.by_facade(task, ending)
        if isinstance(answer, UsageError) and ending.verb != "abort":
            ending, error = Ending("abort", str(answer)), answer
            answer = settling.by_facade(task, ending)
        if isinstance(answer, LeaseLost | TaskNotFound):
            self.done.append(Ran(task, "lost", value, error or answer))
        elif isinstance(answer, PenstockError):
            raise answer
        else:
            verb = "by_hand" if ending is settling.NOTHING else ending.verb
            self.done.append(Ran(task, verb, value, error))
        ran = self.done[-1]
        if not ran.ok:
            log.warning("task %r of %r: %s: %s", task.id, task.tube, ran.ended, _headline(ran.error))
        if self._raises and ran.error is not None and not isinstance(ran.error, Release):
            raise ran.error

    # -- time --------------------------------------------------------------------------------------

    def _move_on(self) -> bool:
        """Move the clock to the next moment at which a task may become ready; whether there is one in time."""
        if self._end is None:
            return False
        clock = self._app._engine.clock
        now = clock.now()
        coming = [at for tube in self._lines for at in _moments(tube) if now < at <= self._end]
        if not coming:
            return False
        clock.advance(timedelta(microseconds=min(coming) - now))
        return True


def _run(task: Task, handler: Definition[Any, Any]) -> Run:
    """A run that begins now, on the clock that handlers see."""
    record, now = task._record, time.monotonic()
    timed = record.deadline is not None and record.taken_at is not None
    run = Run(task, handler, now + (record.deadline - record.taken_at) / SECOND if timed else None)  # type: ignore[operator]
    run.started = now
    return run


def _moments(tube: Tube) -> Iterator[int]:
    """When delayed tasks are due, when leases of others end, and when rates let the next task through."""
    counts = tube.statistics().tasks
    for state in (State.DELAYED, State.TAKEN):
        for record in _records(tube, state) if counts[state] else ():
            at = record.ready_at if state == State.DELAYED else record.deadline
            if at is not None:
                yield at
    if counts["ready"]:
        last: str | None = None
        while page := tube.lanes(PAGE, last):
            yield from (moment(lane.next_at, "next_at") for lane in page if lane.ready and lane.next_at is not None)
            last = page[-1].name


def _records(tube: Tube, state: State) -> Iterator[Any]:
    after = None
    while page := tube._engine.execute(ops.ListTasks(tube.name, state, PAGE, after)):
        yield from page
        after = page[-1].id


def tube_name(tube: Any) -> str:
    """The name of a tube that is given by name, or as a tube or a handler."""
    name = tube.tube_name if isinstance(tube, Definition) else getattr(tube, "name", tube)
    if not isinstance(name, str):
        raise UsageError(f"a tube is given by its name, or as a tube or a handler, got {shown(tube)}")
    return name
