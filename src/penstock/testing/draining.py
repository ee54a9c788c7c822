"""drain(): the handlers of a queue, called in this thread, one task at a time, until nothing is ready."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from penstock.aio import AsyncQueue
from penstock.blocking import Queue, Task, Tube
from penstock.handlers import Definition, Registry
from penstock.model import ops
from penstock.model.clock import ManualClock
from penstock.model.duration import SECOND, Seconds, length, moment
from penstock.model.errors import LeaseLost, PenstockError, TaskNotFound, TubeNotFound, UsageError, shown
from penstock.model.state import State
from penstock.model.tube import check_count
from penstock.outcomes import Release
from penstock.schedules import SCHEDULES
from penstock.shape import BadPayload
from penstock.worker import settling
from penstock.worker.run import Run, enter
from penstock.worker.schedule import Scheduler
from penstock.worker.settling import Ending
from penstock.worker.worker import _tube, _twin

log = logging.getLogger("penstock.worker")
LIMIT = 10_000
PAGE = 1000
Context = contextvars.Context
Middleware = list[Callable[..., Any]]


class Ran(NamedTuple):
    """One run of a handler."""

    task: Task
    """The task as the run left it."""
    ended: str
    """ack, fail, abort, bury, release, unknown_handler; nothing if the handler ended it itself; lost if it could not
    be ended any more."""
    value: Any = None
    """What the handler returned."""
    error: BaseException | None = None
    """What it raised, or why it was not called."""

    @property
    def ok(self) -> bool:
        """Whether a worker would count it as done well."""
        return self.ended != "lost" and Ending(self.ended).ok


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
        first = "".join(f"; first: {type(error).__name__}: {error}" for error in self.errors[:1])
        return f"<Drained ok {self.ok}, trouble {self.trouble}{first}>"


def drain(
    queue: Queue,
    *tubes: Any,
    clock: ManualClock | None = None,
    horizon: Seconds | None = None,
    raise_errors: bool = False,
    limit: int = LIMIT,
) -> Drained:
    """Call the handlers of a queue for every task that is ready, also for those that handlers put meanwhile.

    Tasks end as they do under a worker. Everything happens in this thread: no other thread, no process, no sleep.
    Tubes take turns, one task each. Schedules that are due put their tasks.

    tubes: names of tubes, or handlers; all that have handlers if left out, and then schedules too
    clock, horizon: move the queue's ManualClock on to retries and other delayed tasks, so many seconds at most
    raise_errors: raise what the first handler that fails has raised, once its task has ended
    limit: how many runs are too many

    >>> import penstock
    >>> q = penstock.connect("memory:", clock=ManualClock())
    >>> @q.handler("halves", retry=60, max_attempts=2)
    ... def halve(n: int) -> float:
    ...     return 1 / n
    >>> tasks = halve.put_many([2, 0])
    >>> drain(q)
    <Drained ok 1, trouble 1; first: ZeroDivisionError: division by zero>
    >>> [run.task.state.value for run in drain(q, horizon=60)]
    ['buried']
    """
    __tracebackhide__ = True
    if isinstance(queue, AsyncQueue):
        raise UsageError("this queue is awaited: use `await adrain(q)`")
    work = Draining(queue, tubes, clock, horizon, raise_errors, limit)
    check_loop(queue.handlers, work.names)
    with Caller() as caller:
        try:
            work.open()
            while run := work.next():
                try:
                    outcome = caller.call(run, work.middleware)
                except BaseException:
                    work.give_back(run)
                    raise
                work.end(run, outcome)
        finally:
            work.close()
    return work.done


async def adrain(
    queue: Any,
    *tubes: Any,
    clock: ManualClock | None = None,
    horizon: Seconds | None = None,
    raise_errors: bool = False,
    limit: int = LIMIT,
) -> Drained:
    """The same inside a running event loop, for queues of both colours. Sync handlers are called in the loop itself.

    >>> import asyncio, penstock
    >>> async def main():
    ...     async with await penstock.aconnect("memory:") as q:
    ...         square = q.handler("squares")(lambda n: n * n)
    ...         await square.put(4)
    ...         return [run.value for run in await adrain(q)]
    >>> asyncio.run(main())
    [16]
    """
    __tracebackhide__ = True
    work = Draining(queue, tubes, clock, horizon, raise_errors, limit)
    # The store is asked in a thread: it may have to wait for a transaction that this loop is to end.
    try:
        await asyncio.to_thread(work.open)
        while run := await asyncio.to_thread(work.next):
            try:
                outcome = await _called_in_loop(run, work.middleware)
            except BaseException:
                await asyncio.to_thread(work.give_back, run)
                raise
            await asyncio.to_thread(work.end, run, outcome)
    finally:
        await asyncio.to_thread(work.close)
    return work.done


# -- tasks ---------------------------------------------------------------------------------------------


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
    def middleware(self) -> Middleware:
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
            handler = self._scheduler.handler if task.tube == SCHEDULES else self._registry.get(task.tube)
            if handler is None:
                self._unknown(task)
            elif task.tube == SCHEDULES:
                self._scheduler.fire(task.data, _run(task, handler))
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
            self.done.append(Ran(task, ending.verb, value, error))
        ran = self.done[-1]
        if not ran.ok:
            what = (task.id, task.tube, ran.ended, type(ran.error).__name__, ran.error)
            log.warning("task %r of %r: %s: %s: %s", *what)
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


# -- calls ---------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What a handler did."""

    value: Any = None
    error: BaseException | None = None


def check_loop(registry: Registry, names: Iterable[str]) -> None:
    """Refuse where handlers would have to be awaited while a loop runs already."""
    if not registry.middleware and not any(name in registry and registry[name].is_async for name in names):
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("an event loop runs here, and async handlers and middleware need one: use `await adrain(q)`")


def _run(task: Task, handler: Definition[Any, Any]) -> Run:
    """A run that begins now, on the clock that handlers see."""
    record, now = task._record, time.monotonic()
    timed = record.deadline is not None and record.taken_at is not None
    run = Run(task, handler, now + (record.deadline - record.taken_at) / SECOND if timed else None)  # type: ignore[operator]
    run.started = now
    return run


def _context(run: Run) -> Context:
    context = contextvars.copy_context()
    context.run(enter, run)
    return context


def _invoke(run: Run, value: Any) -> Any:
    """Call the function: what it returns, or a coroutine."""
    handler = run.handler
    more = {} if handler.run_name is None else {handler.run_name: run}
    return handler.function(value, **more)


def _caught(call: Callable[[], Any]) -> Outcome:
    """Call something; only what a worker takes for a failure is caught."""
    try:
        return Outcome(call())
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        return Outcome(error=error)


async def _awaited(run: Run, middleware: Middleware, inner: Callable[[], Coroutine[Any, Any, Any]]) -> Outcome:
    """The same for what is awaited, with the middleware around it."""
    go_on: Callable[[], Any] = inner
    for layer in reversed(middleware):
        go_on = partial(layer, run, go_on)
    try:
        return Outcome(await go_on())
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        return Outcome(error=error)


def _decoded(run: Run) -> Outcome:
    try:
        return Outcome(run.handler.shape.decode(run.task._record.data))
    except BadPayload as error:
        return Outcome(error=error)


async def _called_in_loop(run: Run, middleware: Middleware) -> Outcome:
    """Call a handler in the running loop, in a task of its own: its context is nobody else's."""
    value, error = _decoded(run)
    if error is not None:
        return Outcome(error=error)

    async def inner() -> Any:
        answer = _invoke(run, value)
        return await answer if run.handler.is_async else answer

    calling = asyncio.get_running_loop().create_task(_awaited(run, middleware, inner), context=_context(run))
    try:
        await asyncio.wait([calling])
    except asyncio.CancelledError:
        run.tell("stopping")
        calling.cancel()
        await asyncio.wait([calling])
        raise
    return calling.result()


class Caller:
    """Calls handlers from outside of any loop; one is there, and runs, only while something has to be awaited."""

    def __init__(self) -> None:
        # With a factory the runner leaves alone what other code takes for the current loop.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.close()

    def call(self, run: Run, middleware: Middleware) -> Outcome:
        value, error = _decoded(run)
        if error is not None:
            return Outcome(error=error)
        context = _context(run)
        if run.handler.is_async:
            return self._runner.run(_awaited(run, middleware, partial(_invoke, run, value)), context=context)
        run.thread = True
        if middleware:
            return self._in_steps(run, value, middleware, context)
        return context.run(_caught, partial(_invoke, run, value))

    def _in_steps(self, run: Run, value: Any, middleware: Middleware, context: Context) -> Outcome:
        """Await middleware, and step out of the loop to call the handler: it may want to run a loop itself."""
        loop = self._runner.get_loop()
        asked: deque[tuple[Context, asyncio.Future[Outcome]]] = deque()
        pause = asyncio.Event()

        async def inner() -> Any:
            answer = loop.create_future()
            asked.append((contextvars.copy_context(), answer))
            pause.set()
            outcome: Outcome = await answer
            if outcome.error is not None:
                raise outcome.error
            return outcome.value

        async def until_asked() -> None:
            pausing = loop.create_task(pause.wait())
            await asyncio.wait([whole, pausing], return_when=asyncio.FIRST_COMPLETED)
            pausing.cancel()
            pause.clear()

        whole = loop.create_task(_awaited(run, middleware, inner), context=context)
        while not whole.done():
            self._runner.run(until_asked())
            while asked:
                where, answer = asked.popleft()
                outcome = where.run(_caught, partial(_invoke, run, value))
                if not answer.done():  # the middleware may have stopped waiting
                    answer.set_result(outcome)
        return whole.result()


__all__ = ["Drained", "Ran", "adrain", "check_loop", "drain", "tube_name"]
