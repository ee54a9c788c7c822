"""inline(): while it lasts, a put to a tube with a handler runs the task before it returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

from penstock.aio import AsyncQueue
from penstock.engines.line import Producer, Waiter
from penstock.model import ops
from penstock.model.errors import UsageError
from penstock.testing.draining import adrain, check_loop, drain
from penstock.worker.run import current_run


def inline(queue: Any) -> Inline:
    """Run tasks where they are put: `with inline(q):`, or `async with inline(q):` for an async queue.

    A put to a tube with a handler drains the tubes with handlers before it returns, and raises what a handler raises.
    Tasks that handlers put run when the handler that put them is over. Delayed tasks wait; see drain().

    >>> import penstock
    >>> q = penstock.connect("memory:")
    >>> @q.handler("greetings")
    ... def greet(name: str) -> None:
    ...     print("hello", name)
    >>> with inline(q):
    ...     task = greet.put("ann")
    hello ann
    """
    return Inline(queue)


class Inline:
    """What inline() answers: entering changes the queue, leaving restores it."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._before: list[dict[str, Any]] = []

    def __enter__(self) -> Inline:
        if isinstance(self._queue, AsyncQueue):
            raise UsageError("this queue is awaited: use `async with inline(q)`")
        engine = self._queue._engine
        self._replace(
            execute=self._executing(engine.execute),
            wait=self._waiting(engine.wait),
            transaction=self._committing(engine.transaction),
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    async def __aenter__(self) -> Inline:
        if not isinstance(self._queue, AsyncQueue):
            raise UsageError("this queue is not awaited: use `with inline(q)`")
        engine = self._queue._engine
        self._replace(
            execute=self._awaited_executing(engine.execute),
            wait=self._awaited_waiting(engine.wait),
            transaction=self._awaited_committing(engine.transaction),
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        self._restore()

    # Tubes keep their queue's engine, so it is the engine, this one alone, that has to be changed.

    def _replace(self, **methods: Callable[..., Any]) -> None:
        own = vars(self._queue._engine)
        self._before.append({name: own[name] for name in methods if name in own})
        own.update(methods)

    def _restore(self) -> None:
        own = vars(self._queue._engine)
        for name in ("execute", "wait", "transaction"):
            del own[name]
        own.update(self._before.pop())

    def _starts(self, op: ops.Op[Any]) -> bool:
        """Whether an op puts tasks that are to be run by this very call."""
        return isinstance(op, ops.Put | ops.Load) and op.tube in self._queue.handlers and not _in_handler()

    def _check(self) -> None:
        """Refuse before anything is stored that could not be run afterwards."""
        check_loop(self._queue.handlers, self._queue.handlers)

    def _drain(self) -> None:
        __tracebackhide__ = True
        drain(self._queue, *self._queue.handlers, raise_errors=True)

    async def _adrain(self) -> None:
        __tracebackhide__ = True
        await adrain(self._queue, *self._queue.handlers, raise_errors=True)

    # -- blocking ----------------------------------------------------------------------------------

    def _executing(self, perform: Callable[[ops.Op[Any]], Any]) -> Callable[[ops.Op[Any]], Any]:
        def execute(op: ops.Op[Any]) -> Any:
            __tracebackhide__ = True
            if not self._starts(op):
                return perform(op)
            self._check()
            answer = perform(op)
            self._drain()
            return answer

        return execute

    def _waiting(self, perform: Callable[[Waiter, float | None], Any]) -> Callable[[Waiter, float | None], Any]:
        def wait(waiter: Waiter, seconds: float | None) -> Any:
            __tracebackhide__ = True
            starts = isinstance(waiter, Producer) and self._starts(waiter.op)
            if starts:
                self._check()
            answer = perform(waiter, seconds)
            if starts:
                self._drain()
            return answer

        return wait

    def _committing(
        self, begin: Callable[[], AbstractContextManager[Any]]
    ) -> Callable[[], AbstractContextManager[Any]]:
        @contextmanager
        def transaction() -> Iterator[Any]:
            __tracebackhide__ = True
            with begin() as transactor:
                yield transactor
            if self._queue.handlers and not _in_handler():
                self._drain()

        return transaction

    # -- awaited -----------------------------------------------------------------------------------

    def _awaited_executing(self, perform: Callable[[ops.Op[Any]], Any]) -> Callable[[ops.Op[Any]], Any]:
        async def execute(op: ops.Op[Any]) -> Any:
            __tracebackhide__ = True
            answer = await perform(op)
            if self._starts(op):
                await self._adrain()
            return answer

        return execute

    def _awaited_waiting(self, perform: Callable[[Waiter, float | None], Any]) -> Callable[[Waiter, float | None], Any]:
        async def wait(waiter: Waiter, seconds: float | None) -> Any:
            __tracebackhide__ = True
            starts = isinstance(waiter, Producer) and self._starts(waiter.op)
            answer = await perform(waiter, seconds)
            if starts:
                await self._adrain()
            return answer

        return wait

    def _awaited_committing(
        self, begin: Callable[[], AbstractAsyncContextManager[Any]]
    ) -> Callable[[], AbstractAsyncContextManager[Any]]:
        @asynccontextmanager
        async def transaction() -> AsyncIterator[Any]:
            __tracebackhide__ = True
            async with begin() as transactor:
                yield transactor
            if self._queue.handlers and not _in_handler():
                await self._adrain()

        return transaction


def _in_handler() -> bool:
    try:
        current_run()
    except LookupError:
        return False
    return True
