"""A transaction of the store that a remote engine runs: it has a thread of its own, and not for ever."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.errors import EngineUnavailable

Then = Callable[[Any], None]
"""Gets an answer or an exception; called in the transaction's thread."""


class _Undone(Exception):
    """Leaves the transaction without a commit."""


class Spell:
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


def over(seconds: float) -> EngineUnavailable:
    """The refusal of what comes behind the end of a transaction."""
    return EngineUnavailable(
        "this transaction is over and nothing of it was done: a server keeps one open for at most "
        f"{seconds:g} seconds, and only as long as the connection lasts"
    )


def _nobody(answer: Any) -> None:
    """For when nobody has asked."""
