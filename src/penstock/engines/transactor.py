"""Transactions that callers end themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.model import ops
from penstock.model.errors import UsageError

if TYPE_CHECKING:
    from penstock.engines.store import Store

R = TypeVar("R")


class Transactor(ABC):
    """A transaction the caller ends; ops given to it happen inside."""

    connection: Any = None
    """The engine's own connection, for statements of the caller in the same transaction; None in memory."""
    store: Store
    ended = False

    @property
    def begun(self) -> bool:
        """False for a connection of the caller's on which no transaction is open."""
        return True

    def __repr__(self) -> str:
        return f"<transaction on {self.store.name}, {'ended' if self.ended else 'open'}>"

    @abstractmethod
    def execute(self, op: ops.Op[R]) -> R: ...


class AwaitedTransactor(Transactor):
    """A transaction on a connection that belongs to an event loop."""

    def execute(self, op: ops.Op[R]) -> R:
        raise UsageError("this connection is awaited: pass it to a queue that aconnect() has opened")

    @abstractmethod
    async def perform(self, op: ops.Op[R]) -> R: ...
