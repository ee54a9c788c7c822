"""drain(): the handlers of a queue, called in this thread, one task at a time, until nothing is ready."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from penstock.aio import AsyncQueue
from penstock.blocking import Queue
from penstock.handlers import Registry
from penstock.model.clock import ManualClock
from penstock.model.duration import Seconds
from penstock.model.errors import UsageError
from penstock.shape import BadPayload
from penstock.testing.taking import Drained, Draining, Outcome
from penstock.worker.run import Run, enter
from penstock.worker.runners import _outcome, _whole

LIMIT = 10_000
Context = contextvars.Context
Middleware = list[Callable[..., Any]]
FAILURES = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)
"""What is the task's own affair. Anything else, Ctrl-C or what pytest.fail() raises, ends the drain."""


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


def check_loop(registry: Registry, names: Iterable[str]) -> None:
    """Refuse where handlers would have to be awaited while a loop runs already."""
    if not registry.middleware and not any(name in registry and registry[name].is_async for name in names):
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("an event loop runs here, and async handlers and middleware need one: use `await adrain(q)`")


def _context(run: Run) -> Context:
    context = contextvars.copy_context()
    context.run(enter, run)
    return context


def _invoke(run: Run, value: Any) -> Outcome:
    """Call the function: what it answered, an awaitable perhaps, or how it failed."""
    handler = run.handler
    more = {} if handler.run_name is None else {handler.run_name: run}
    answer, error = _outcome(handler.function, value, more)
    if error is not None and not isinstance(error, FAILURES):
        raise error
    return Outcome(answer, error)


async def _answer(outcome: Outcome) -> Any:
    """What came of a call in the end."""
    if outcome.error is not None:
        raise outcome.error
    return await _whole(outcome.value)


async def _awaited(run: Run, middleware: Middleware, inner: Callable[[], Coroutine[Any, Any, Any]]) -> Outcome:
    """Await a call with the middleware around it."""
    go_on: Callable[[], Any] = inner
    for layer in reversed(middleware):
        go_on = partial(layer, run, go_on)
    try:
        return Outcome(await go_on())
    except FAILURES as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # it is not the handler's own: the drain is cancelled, or somebody pressed Ctrl-C
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
        return await _answer(_invoke(run, value))

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
        run.thread = not run.handler.is_async
        if middleware:
            return self._in_steps(run, value, middleware, context)
        outcome = context.run(_invoke, run, value)
        given = outcome.value
        if not (inspect.isawaitable(given) or inspect.isgenerator(given) or inspect.isasyncgen(given)):
            return outcome
        return self._runner.run(_awaited(run, [], partial(_answer, outcome)), context=context)

    def _in_steps(self, run: Run, value: Any, middleware: Middleware, context: Context) -> Outcome:
        """Await middleware, and step out of the loop to call the handler: it may want to run a loop itself."""
        loop = self._runner.get_loop()
        asked: deque[tuple[Context, asyncio.Future[Outcome]]] = deque()
        pause = asyncio.Event()

        async def inner() -> Any:
            answer = loop.create_future()
            asked.append((contextvars.copy_context(), answer))
            pause.set()
            return await _answer(await answer)

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
                if not answer.done():  # the middleware may have stopped waiting
                    answer.set_result(where.run(_invoke, run, value))
        return whole.result()
