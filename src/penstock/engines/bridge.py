"""The async engine over a blocking one.

Ops that tasks of the loop ask for while one group is on its way form the next group: many small calls cost
one transaction and one hop to the worker thread. Change callbacks hop the other way: they run in the loop.

A thread cannot be cancelled. What a cancelled call has set going is left to end and then undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar

from penstock.engines import Engine, open_engine
from penstock.engines.line import Answer, Waiter, raised
from penstock.engines.refund import Grant, grants, refunds
from penstock.engines.store import Callback, log
from penstock.engines.transactor import AwaitedTransactor, Transactor
from penstock.model import ops
from penstock.model.clock import Clock
from penstock.model.errors import PenstockError, UsageError
from penstock.model.session import Session
from penstock.model.state import Event
from penstock.model.task import Record
from penstock.model.tube import TubeConfig

R = TypeVar("R")
Group = list[tuple[ops.Op[Any], "asyncio.Future[Any]"]]
MANY = 16
"""Answers of a server that are told in two turns of the loop."""
_inside: ContextVar[tuple[Transactor, ...]] = ContextVar("penstock transactions", default=())
"""Transactions that this task, or the one that started it, has entered."""


class AsyncTransactor:
    """A transaction whose ops are awaited."""

    def __init__(self, transactor: Transactor, thread: Executor | None = None) -> None:
        self._transactor = transactor
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._transactor)

    @property
    def connection(self) -> Any:
        """The engine's own connection, for statements of the caller in the same transaction."""
        return self._transactor.connection

    @property
    def begun(self) -> bool:
        """False for a connection of the caller's on which no transaction is open."""
        return self._transactor.begun

    async def execute(self, op: ops.Op[R]) -> R:
        if isinstance(self._transactor, AwaitedTransactor):
            return await self._transactor.perform(op)
        # A connection of the caller's may have to wait for another one, so neither may keep the other from a thread.
        thread = self._thread or ThreadPoolExecutor(1, "penstock join")
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, self._transactor.execute, op)
        finally:
            if self._thread is None:
                thread.shutdown(wait=False)


class AsyncEngine:
    """Awaits what Engine blocks for."""

    def __init__(self, engine: Engine, side: ThreadPoolExecutor) -> None:
        self.engine = engine
        self._side = side
        self.clock = engine.clock
        self._loop = asyncio.get_running_loop()
        self._group: Group = []
        self._busy = False
        self._closed = False
        self._give_backs: set[asyncio.Task[None]] = set()
        self._callbacks: set[asyncio.Task[None]] = set()
        self._jobs: queue.SimpleQueue[Group | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="penstock bridge", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def writable(self) -> bool:
        return self.engine.writable

    @property
    def usable(self) -> bool:
        return self.engine.usable

    @property
    def cancelled(self) -> set[int]:
        return self.engine.cancelled

    def listen(self, tube: str, callback: Callback | None) -> Callback | None:
        """Set the change callback of a tube; it runs in the loop, before the call that made the change returns."""
        if callback is None:
            return self.engine.listen(tube, None)

        @functools.wraps(callback)
        def hop(config: TubeConfig, record: Record, event: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                self._loop.call_soon_threadsafe(self._tell, callback, config, record, event)

        hop.hops = True  # type: ignore[attr-defined]
        return self.engine.listen(tube, hop)

    def _tell(self, callback: Callable[..., Any], config: TubeConfig, record: Record, event: Event) -> None:
        try:
            outcome = callback(config, record, event)
        except Exception:
            log.exception("the on_task_change callback of tube %r failed", config.name)
        else:
            if inspect.isawaitable(outcome):
                self._spawn(_listened(outcome, config.name), self._callbacks)

    def _spawn(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        """Run something beside the callers; the loop alone would not keep it from being collected."""
        task = self._loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def keep(self, session: Session) -> None:
        self.engine.keep(session)

    def lose(self, session: Session) -> None:
        self.engine.lose(session)

    def check_owner(self) -> None:
        """A task inside its own transaction would wait for itself."""
        if any(tx.store is self.engine.store and not tx.ended for tx in _inside.get()):
            raise UsageError("this task is inside q.transaction(): pass transaction= to every call until it ends")

    async def execute(self, op: ops.Op[R]) -> R:
        """Perform an op; what it refuses is raised."""
        self.check_owner()
        if self._closed:
            raise UsageError("this queue is closed; connect() again")
        future = self._ask(op)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():  # the answer was there, but the caller had not seen it yet
                self._undo(op, future.exception() or future.result())
            raise

    def _ask(self, op: ops.Op[R]) -> asyncio.Future[R]:
        future: asyncio.Future[R] = self._loop.create_future()
        self._group.append((op, future))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._send)
        return future

    def _send(self) -> None:
        group = self._group
        self._group = []
        if self._closed:
            error = UsageError("this queue is closed; connect() again")
            self._deliver(group, [error] * len(group))
        elif self.engine.store.prompt:
            self._busy = False  # the next group need not wait for this one
            try:
                self.engine.ask([op for op, _ in group], functools.partial(self._told, group))
            except Exception as error:
                self._deliver(group, [error] * len(group))
        else:
            self._jobs.put(group)

    def _told(self, group: Group, answers: Callable[[], list[Answer]]) -> None:
        """The answers to a group are there; called in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            self._loop.call_soon_threadsafe(self._look_at, group, answers)

    def _look_at(self, group: Group, answers: Callable[[], list[Answer]]) -> None:
        try:
            found = answers()
        except Exception as error:
            found = [error] * len(group)
        half = len(group) // 2 if len(group) >= MANY else 0
        if half:
            # What the first ask for next is on its way while the others are told: neither side waits for the other.
            self._deliver(group[:half], found[:half])
            self._loop.call_soon(self._deliver, group[half:], found[half:])
        else:
            self._deliver(group, found)

    def _work(self) -> None:
        while (group := self._jobs.get()) is not None:
            try:
                answers = self.engine.execute_many([op for op, _ in group])
            except Exception as error:
                answers = [error] * len(group)
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                self._loop.call_soon_threadsafe(self._done, group, answers)

    def _done(self, group: Group, answers: list[Answer]) -> None:
        """The thread is free for the next group."""
        if self._group:
            self._loop.call_soon(self._send)
        else:
            self._busy = False
        self._deliver(group, answers)

    def _deliver(self, group: Group, answers: list[Answer]) -> None:
        for (op, future), answer in zip(group, answers, strict=True):
            if future.cancelled():
                self._undo(op, answer)
            elif isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _undo(self, op: ops.Op[Any], answer: Answer) -> None:
        """A cancelled take that was granted meanwhile gives the task back."""
        if granted := grants((op,), (answer,)):
            self._spawn(self._give_back(granted), self._give_backs)

    async def _give_back(self, granted: list[Grant]) -> None:
        for asked in [self._ask(op) for op in refunds(granted)]:
            with contextlib.suppress(PenstockError):  # the lease may have ended in another way
                await asked

    async def wait(self, waiter: Waiter, seconds: float | None) -> Answer:
        """Wait until served or until the time is over."""
        self.check_owner()
        served = asyncio.Event()
        loop = self._loop

        def wake() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(served.set)

        waiter.on_wake(wake)
        enlisted = self._enlist(waiter)
        try:
            await asyncio.shield(enlisted)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self.clock.manual else seconds):
                    await served.wait()
            await self._withdraw(waiter, served)
        except asyncio.CancelledError:
            await asyncio.shield(self._spawn(self._leave(waiter, enlisted, served), self._give_backs))
            raise
        return raised(waiter.answer)

    def _enlist(self, waiter: Waiter) -> asyncio.Future[None]:
        if not self.engine.store.prompt:
            return self._loop.run_in_executor(self._side, self.engine.enlist, waiter)
        enlisted: asyncio.Future[None] = self._loop.create_future()
        try:
            self.engine.enlist(waiter)
            enlisted.set_result(None)
        except Exception as error:
            enlisted.set_exception(error)
        return enlisted

    async def _withdraw(self, waiter: Waiter, served: asyncio.Event) -> None:
        """Leave the line; the waiter's answer is final after this."""
        if not waiter.done and self.engine.store.prompt:
            # Thousands may leave at once: none has to wait until the one before has left.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.engine.store.leave(waiter)):
                    await served.wait()
        if waiter.done:
            self.engine.forget(waiter)
        else:
            await self._loop.run_in_executor(self._side, self.engine.withdraw, waiter)

    async def _leave(self, waiter: Waiter, enlisted: asyncio.Future[None], served: asyncio.Event) -> None:
        """A call that was cancelled while it waited leaves the line; what it was granted goes back."""
        with contextlib.suppress(PenstockError):
            await enlisted
        await self._withdraw(waiter, served)
        await self._give_back(grants((waiter.op,), (waiter.answer,)))

    async def dismiss(self) -> None:
        """Nobody waits here any more, and what cancelled calls were granted has been given back."""
        self.check_owner()
        await self._through(self._side, self.engine.dismiss)
        await self.execute(ops.GetState())  # by now everything asked for before is answered
        if self._give_backs:
            await asyncio.wait(self._give_backs)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransactor]:
        """A transaction the caller ends. Its steps run in a thread of their own, so the loop never blocks."""
        self.check_owner()
        manager = self.engine.transaction()
        thread = ThreadPoolExecutor(1, "penstock transaction")
        try:
            transactor = await _begun(manager, thread)
            token = _inside.set((*_inside.get(), transactor))
            try:
                yield AsyncTransactor(transactor, thread)
            except BaseException as error:
                transactor.ended = True  # for tasks that still use it: nothing may come after the end
                await self._through(thread, manager.__exit__, type(error), error, error.__traceback__)
                raise
            else:
                transactor.ended = True
                await self._through(thread, manager.__exit__, None, None, None)
            finally:
                with contextlib.suppress(ValueError):  # left in another context than it was entered in
                    _inside.reset(token)
        finally:
            thread.shutdown(wait=False)

    async def _through(self, thread: Executor, step: Callable[..., object], *args: object) -> None:
        """Do a step in a thread and come back when it is over, even if cancelled meanwhile."""
        over = self._loop.run_in_executor(thread, step, *args)
        try:
            await asyncio.shield(over)
        except asyncio.CancelledError:
            await asyncio.wait([over])
            raise

    def join(self, transaction: object) -> AsyncTransactor:
        """The caller's own transaction, as something that performs ops."""
        if isinstance(transaction, AsyncTransactor):
            self.engine.join(transaction._transactor)
            return transaction
        return AsyncTransactor(self.engine.join(transaction))

    async def close(self) -> None:
        self.check_owner()
        self._closed = True
        self._jobs.put(None)
        try:
            await self._through(self._side, self._close)
        finally:
            self._side.shutdown(wait=False)

    def detach(self) -> None:
        """Await nothing more; the blocking engine goes on."""
        self._closed = True
        self._jobs.put(None)
        self._side.shutdown(wait=False)

    def _close(self) -> None:
        self._thread.join(timeout=5)
        self.engine.close()


async def _listened(outcome: Awaitable[object], tube: str) -> None:
    """What a callback that is an async function does."""
    try:
        await outcome
    except Exception:
        log.exception("the on_task_change callback of tube %r failed", tube)


async def _begun(manager: AbstractContextManager[Transactor], thread: Executor) -> Transactor:
    """Enter a transaction; a caller that is cancelled meanwhile leaves it again as soon as it is had."""
    entering = thread.submit(manager.__enter__)
    try:
        return await asyncio.wrap_future(entering)
    except asyncio.CancelledError:
        error = asyncio.CancelledError()
        thread.submit(_undo_late, entering, lambda _: manager.__exit__(type(error), error, None))
        raise


def _undo_late(started: Future[R], undo: Callable[[R], object]) -> None:
    """Undo what was started, if it succeeded. Comes after it in a pool of one thread."""
    if not started.cancelled() and started.exception() is None:
        undo(started.result())


async def open_async_engine(url: str | os.PathLike[str], clock: Clock | None, durability: str) -> AsyncEngine:
    """Open the engine that a URL names."""
    # A thread of its own: the loop's default pool may be full of other people's work.
    side = ThreadPoolExecutor(1, "penstock side")
    opening = side.submit(open_engine, url, clock, durability)
    try:
        opened = await asyncio.wrap_future(opening)
    except BaseException:
        side.submit(_undo_late, opening, Engine.close)
        side.shutdown(wait=False)
        raise
    return AsyncEngine(opened, side)
