"""The async engine over a blocking one.

Ops that tasks of the loop ask for while one group is on its way form the next group: many small calls cost
one transaction and one hop to the worker thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

from penstock.engines import Engine, open_engine
from penstock.engines.line import Answer, Waiter, raised
from penstock.engines.store import Callback, Transactor
from penstock.model import ops
from penstock.model.clock import Clock
from penstock.model.errors import PenstockError, UsageError
from penstock.model.session import Session

R = TypeVar("R")
Group = list[tuple[ops.Op[Any], "asyncio.Future[Any]"]]


_inside: ContextVar[object] = ContextVar("penstock transaction", default=None)


class AsyncTransactor:
    """A transaction whose ops are awaited."""

    def __init__(self, transactor: Transactor, thread: Executor) -> None:
        self._transactor = transactor
        self._thread = thread

    def __repr__(self) -> str:
        return repr(self._transactor)

    @property
    def connection(self) -> Any:
        """The engine's own connection, for statements of the caller in the same transaction."""
        return self._transactor.connection

    async def execute(self, op: ops.Op[R]) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._transactor.execute, op)


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
        return self.engine.listen(tube, callback)

    def keep(self, session: Session) -> None:
        self.engine.keep(session)

    def lose(self, session: Session) -> None:
        self.engine.lose(session)

    async def execute(self, op: ops.Op[R]) -> R:
        """Perform an op; what it refuses is raised."""
        if _inside.get() is self.engine.store:
            raise UsageError("this task is inside q.transaction(): pass transaction= to every call until it ends")
        if self._closed:
            raise UsageError("this queue is closed; connect() again")
        future: asyncio.Future[R] = self._loop.create_future()
        self._group.append((op, future))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._send)
        return await future

    def _send(self) -> None:
        group = self._group
        self._group = []
        if self._closed:
            error = UsageError("this queue is closed; connect() again")
            self._deliver(group, [error] * len(group))
        else:
            self._jobs.put(group)

    def _work(self) -> None:
        while (group := self._jobs.get()) is not None:
            try:
                answers = self.engine.execute_many([op for op, _ in group])
            except Exception as error:
                answers = [error] * len(group)
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                self._loop.call_soon_threadsafe(self._deliver, group, answers)

    def _deliver(self, group: Group, answers: list[Answer]) -> None:
        if self._group:
            self._loop.call_soon(self._send)
        else:
            self._busy = False
        for (op, future), answer in zip(group, answers, strict=True):
            if future.cancelled():
                self._undo(op, answer)
            elif isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _undo(self, op: ops.Op[Any], answer: Answer) -> None:
        """A cancelled take that was granted meanwhile gives the task back as if it had not been offered."""
        if isinstance(op, ops.Take) and isinstance(answer, list):
            self._loop.create_task(self._give_back(op, answer))

    async def _give_back(self, op: ops.Take, records: list[Any]) -> None:
        for record in records:
            await self.execute(ops.Release(op.tube, ops.Lease(record.id, record.token), op.session, refund=True))

    async def wait(self, waiter: Waiter, seconds: float | None) -> Answer:
        """Wait until served or until the time is over."""
        served = asyncio.Event()
        loop = self._loop

        def wake() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(served.set)

        waiter.on_wake(wake)
        enlisted = loop.run_in_executor(self._side, self.engine.enlist, waiter)
        try:
            await asyncio.shield(enlisted)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self.clock.manual else seconds):
                    await served.wait()
            await loop.run_in_executor(self._side, self.engine.withdraw, waiter)
        except asyncio.CancelledError:
            await asyncio.shield(self._leave(waiter, enlisted))
            raise
        return raised(waiter.answer)

    async def _leave(self, waiter: Waiter, enlisted: asyncio.Future[None]) -> None:
        """A call that was cancelled while it waited leaves the line; what it was granted goes back."""
        with contextlib.suppress(PenstockError):
            await enlisted
        await self._loop.run_in_executor(self._side, self.engine.withdraw, waiter)
        if isinstance(waiter.op, ops.Take) and isinstance(waiter.answer, list):
            await self._give_back(waiter.op, waiter.answer)

    async def dismiss(self) -> None:
        """Nobody waits here any more."""
        await self._loop.run_in_executor(self._side, self.engine.dismiss)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransactor]:
        """A transaction the caller ends. Its steps run in a thread of their own, so the loop never blocks."""
        with ThreadPoolExecutor(1, "penstock transaction") as thread:
            manager = self.engine.transaction()
            transactor = await self._loop.run_in_executor(thread, manager.__enter__)
            token = _inside.set(self.engine.store)
            try:
                yield AsyncTransactor(transactor, thread)
            except BaseException as error:
                await asyncio.shield(
                    self._loop.run_in_executor(thread, manager.__exit__, type(error), error, error.__traceback__)
                )
                raise
            else:
                await self._loop.run_in_executor(thread, manager.__exit__, None, None, None)
            finally:
                _inside.reset(token)

    def join(self, transaction: object) -> AsyncTransactor:
        """The caller's own transaction, as something that performs ops."""
        if isinstance(transaction, AsyncTransactor):
            self.engine.join(transaction._transactor)
            return transaction
        return AsyncTransactor(self.engine.join(transaction), self._side)

    async def close(self) -> None:
        self._closed = True
        self._jobs.put(None)
        await self._loop.run_in_executor(self._side, self._close)
        self._side.shutdown(wait=False)

    def _close(self) -> None:
        self._thread.join(timeout=5)
        self.engine.close()


async def open_async_engine(url: str | os.PathLike[str], clock: Clock | None, durability: str) -> AsyncEngine:
    """Open the engine that a URL names."""
    # A thread of its own: the loop's default pool may be full of other people's work.
    side = ThreadPoolExecutor(1, "penstock side")
    try:
        opened = await asyncio.get_running_loop().run_in_executor(side, open_engine, url, clock, durability)
    except BaseException:
        side.shutdown(wait=False)
        raise
    return AsyncEngine(opened, side)
