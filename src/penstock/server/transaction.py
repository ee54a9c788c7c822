"""A transaction of the store that a remote engine runs: it has a thread of its own, and not for ever."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.errors import EngineUnavailable

if TYPE_CHECKING:
    from penstock.server.core import Core

MOST = 100
"""Transactions that one connection may have open."""
Then = Callable[[Any], None]
"""Gets an answer or an exception; called in the transaction's thread."""


class _Undone(Exception):
    """Leaves the transaction without a commit."""


class OpenTransaction:
    """One transaction. What is asked of it is done in order."""

    def __init__(self, engine: Engine, seconds: float, begun: Then, ended: Callable[[], None]) -> None:
        self._engine = engine
        self._seconds = seconds
        self._ended = ended
        self._over = False
        self._asked: queue.SimpleQueue[tuple[ops.Op[Any] | bool, Then]] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(begun,), name="penstock transaction", daemon=True).start()

    def perform(self, op: ops.Op[Any], then: Then) -> None:
        """Do something inside."""
        self._ask(op, then)

    def commit(self, then: Then) -> None:
        """End it well."""
        self._ask(True, then)

    def undo(self, then: Then = lambda answer: None) -> None:
        """End it as though it had not been."""
        self._ask(False, then)

    def _ask(self, what: ops.Op[Any] | bool, then: Then) -> None:
        self._asked.put((what, then))
        if self._over:
            self._refuse()

    def _run(self, begun: Then) -> None:
        told: Then = begun
        try:
            with self._engine.transaction() as transaction:
                begun(None)
                told = _nobody
                end = time.monotonic() + self._seconds
                while True:
                    what, then = self._asked.get(timeout=max(0.0, end - time.monotonic()))
                    if isinstance(what, bool):
                        told = then
                        if not what:
                            raise _Undone
                        break
                    try:
                        then(transaction.execute(what))
                    except Exception as error:
                        then(error)
        except (_Undone, queue.Empty):
            told(None)
        except Exception as error:
            told(error)
        else:
            told(None)
        finally:
            self._over = True
            self._refuse()
            self._ended()

    def _refuse(self) -> None:
        while True:
            try:
                what, then = self._asked.get_nowait()
            except queue.Empty:
                return
            then(None if what is False else over(self._seconds))


class Transactions:
    """The transactions of one connection, by the number of the request that began them."""

    def __init__(self, core: Core, seconds: float) -> None:
        self._core = core
        self._seconds = seconds
        self._most = MOST if core.engine.name.startswith("postgres") else 1
        """In a file one transaction keeps all others waiting, so that a connection has one at a time."""
        self._open: dict[int, OpenTransaction] = {}
        self._waiting: dict[int, Then] = {}
        """Those that have not begun yet, and who is told when they have."""
        self._gone = False

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._open or self._waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(self._open)

    def __getitem__(self, number: int) -> OpenTransaction:
        """One that has not ended; EngineUnavailable."""
        try:
            return self._open[number]
        except KeyError:
            raise over(self._seconds) from None

    def get(self, number: int) -> OpenTransaction | None:
        """One, if it has not ended."""
        return self._open.get(number)

    def begin(self, number: int, then: Then) -> None:
        """Begin one, as soon as there is room for it; `then` is called in the loop."""
        if len(self._open) + len(self._waiting) >= MOST:
            raise EngineUnavailable(f"this connection has {MOST} transactions open: the server's limit")
        self._waiting[number] = then
        self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting and len(self._open) < self._most and not self._gone:
            number = next(iter(self._waiting))
            then = self._waiting.pop(number)
            self._open[number] = OpenTransaction(
                self._core.engine,
                self._seconds,
                partial(self._core.soon, then),
                partial(self._core.soon, self._ended, number),
            )

    def _ended(self, number: int) -> None:
        self._open.pop(number, None)
        self._begin_next()

    def drop(self, number: int) -> bool:
        """One shall not begin; answers False if it has begun."""
        return self._waiting.pop(number, None) is not None

    def undo(self) -> list[int]:
        """The connection is closed. Answers those that have not begun: they may be asked for again."""
        self._gone = True
        for transaction in list(self._open.values()):
            transaction.undo()
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting


def over(seconds: float) -> EngineUnavailable:
    """The refusal of what comes behind the end of a transaction."""
    return EngineUnavailable(
        "this transaction is over and nothing of it was done: a server keeps one open for at most "
        f"{seconds:g} seconds, and only as long as the connection lasts"
    )


def _nobody(answer: Any) -> None:
    """For when nobody has asked."""
