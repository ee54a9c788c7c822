"""Connections of callers: those of psycopg, and those of SQLAlchemy and Django that are psycopg's underneath.

SQLAlchemy and Django are known by their looks, never imported: nobody has to have them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from penstock.model.errors import UsageError

Raw = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


class Visitor(ABC):
    """A connection of the caller's, of whatever make."""

    awaited = False
    remedy = "call inside `with connection.transaction():`"
    """What opens a transaction on a connection of this make."""

    @property
    @abstractmethod
    def begun(self) -> bool:
        """True while a transaction is open."""

    @abstractmethod
    def check(self) -> None:
        """Refuse what cannot be used, as far as that can be seen without asking the server."""

    def connection(self) -> psycopg.Connection[Any]:
        """The driver's connection."""
        raise AssertionError("this one is awaited")

    async def awaited_connection(self) -> psycopg.AsyncConnection[Any]:
        """The same."""
        raise AssertionError("this one is not awaited")

    def translated(self) -> AbstractContextManager[object]:
        """Errors of the driver as the caller knows them."""
        return nullcontext()

    def check_state(self, connection: Raw) -> None:
        """Refuse a connection on which a put could not be part of a transaction."""
        status = connection.info.transaction_status
        if connection.closed or status == TransactionStatus.UNKNOWN:
            raise UsageError("the connection of the transaction is closed")
        if status == TransactionStatus.INERROR:
            raise UsageError("the transaction has failed before; roll it back and begin another")
        if status == TransactionStatus.IDLE and connection.autocommit:
            raise UsageError(f"the connection is in autocommit and has no transaction open: {self.remedy}")
        if getattr(connection, "_tpc", None):
            raise UsageError("a transaction of two phases cannot hold tasks: PostgreSQL prepares none that notifies")


def is_open(connection: Raw) -> bool:
    return not connection.closed and connection.info.transaction_status in (
        TransactionStatus.ACTIVE,
        TransactionStatus.INTRANS,
    )


class Psycopg(Visitor):
    def __init__(self, connection: Raw) -> None:
        self._connection = connection
        self.awaited = isinstance(connection, psycopg.AsyncConnection)
        if self.awaited:
            self.remedy = "call inside `async with connection.transaction():`"

    @property
    def begun(self) -> bool:
        return is_open(self._connection)

    def check(self) -> None:
        self.check_state(self._connection)

    def connection(self) -> psycopg.Connection[Any]:
        assert isinstance(self._connection, psycopg.Connection)
        return self._connection

    async def awaited_connection(self) -> psycopg.AsyncConnection[Any]:
        assert isinstance(self._connection, psycopg.AsyncConnection)
        return self._connection


class Sqlalchemy(Visitor):
    """A Session or a Connection, or an async one. Sessions open their connection when it is first asked for."""

    remedy = "its isolation level is AUTOCOMMIT; take one that has transactions"

    def __init__(self, target: Any) -> None:
        self.awaited = hasattr(target, "sync_session") or hasattr(target, "sync_connection")
        self._target = target
        self._session = hasattr(target, "get_bind")

    @property
    def begun(self) -> bool:
        return bool(self._target.in_transaction())

    def check(self) -> None:
        target = self._target
        if self._session and not target.is_active:
            raise UsageError("the transaction of the session has failed before; roll it back")
        if not self._session and target.closed:
            raise UsageError("the connection of the transaction is closed")
        two_phases = type(target.get_transaction()).__name__ == "TwoPhaseTransaction"
        if two_phases or getattr(getattr(target, "sync_session", target), "twophase", False):
            raise UsageError("a transaction of two phases cannot hold tasks: PostgreSQL prepares none that notifies")

    def connection(self) -> psycopg.Connection[Any]:
        with _sqlalchemy_errors():
            target = self._target.connection() if self._session else self._target
            raw = target.connection.driver_connection
        if not isinstance(raw, psycopg.Connection):
            raise _another_driver(target.dialect, raw)
        self.check_state(raw)
        if not target.in_transaction():
            target.begin()  # so that its commit() commits what is done underneath
        return raw

    async def awaited_connection(self) -> psycopg.AsyncConnection[Any]:
        with _sqlalchemy_errors():
            target = await self._target.connection() if self._session else self._target
            raw = (await target.get_raw_connection()).driver_connection
        if not isinstance(raw, psycopg.AsyncConnection):
            raise _another_driver(target.dialect, raw)
        self.check_state(raw)
        if not target.in_transaction():
            await target.begin()
        return raw


@contextmanager
def _sqlalchemy_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if type(error).__module__ != "sqlalchemy.exc" or hasattr(error, "orig"):
            raise
        raise UsageError(f"SQLAlchemy gives no connection: {error}") from error


def _another_driver(dialect: Any, raw: object) -> UsageError:
    return UsageError(
        f"the connection is one of the driver {dialect.driver} ({type(raw).__module__}); "
        "a task can only be put through psycopg 3: make the engine with postgresql+psycopg://"
    )


class Django(Visitor):
    """What `django.db.connection` stands for in this thread."""

    remedy = "call inside `with transaction.atomic():`"

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    @property
    def begun(self) -> bool:
        raw = self._wrapper.connection
        return isinstance(raw, psycopg.Connection) and is_open(raw)

    def check(self) -> None:
        wrapper = self._wrapper
        if wrapper.vendor != "postgresql":
            raise UsageError(f"the connection {wrapper.alias!r} of Django is one of {wrapper.vendor}, not PostgreSQL")
        if wrapper.in_atomic_block and wrapper.needs_rollback:
            raise UsageError("the atomic block has failed before; leave it and begin another")
        if wrapper.connection is not None:
            self._check_driver()

    def _check_driver(self) -> psycopg.Connection[Any]:
        raw = self._wrapper.connection
        if not isinstance(raw, psycopg.Connection):
            driver = type(raw).__module__.partition(".")[0]
            raise UsageError(
                f"the connection {self._wrapper.alias!r} of Django is one of the driver {driver}; "
                "a task can only be put through psycopg 3"
            )
        self.check_state(raw)
        return raw

    def connection(self) -> psycopg.Connection[Any]:
        if self._wrapper.connection is None:
            self._wrapper.ensure_connection()
        return self._check_driver()

    def translated(self) -> AbstractContextManager[object]:
        wrapped: AbstractContextManager[object] = self._wrapper.wrap_database_errors
        return wrapped


def visitor(transaction: object) -> Visitor | None:
    """Recognise a connection; None for what is none."""
    if isinstance(transaction, psycopg.Connection | psycopg.AsyncConnection):
        return Psycopg(transaction)
    if isinstance(transaction, psycopg.Transaction | psycopg.AsyncTransaction):
        return Psycopg(transaction.connection)
    if _is_of("django", transaction) and hasattr(transaction, "ensure_connection"):
        # A proxy means another connection in every thread, and this may be performed in one of ours.
        return Django(transaction.ensure_connection.__self__)
    if _is_of("sqlalchemy", transaction):
        if hasattr(transaction, "registry") and callable(transaction):
            return visitor(transaction())  # a scoped session: this thread's
        if hasattr(transaction, "in_transaction") and hasattr(transaction, "get_transaction"):
            return Sqlalchemy(transaction)
    return None


def _is_of(package: str, value: object) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(value).__mro__)
