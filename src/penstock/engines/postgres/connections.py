"""Connections to one server: the one for ordinary calls, a pool for the rest, and what to do when they break."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from penstock.engines.postgres.place import Place
from penstock.model import ops
from penstock.model.errors import EngineUnavailable

T = TypeVar("T")
Connection = psycopg.Connection[Any]
log = logging.getLogger("penstock")
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0


class Connections:
    def __init__(self, place: Place, prepare: Callable[[Connection], None]) -> None:
        self._place = place
        self._prepare = prepare
        self._main: Connection | None = None
        self._pool: ConnectionPool[Connection] | None = None
        self._closed = False

    def open(self) -> Connection:
        """A new connection, checked and ready."""
        connection: Connection = psycopg.connect(self._place.conninfo, autocommit=True)
        try:
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: Connection) -> None:
        connection.autocommit = True
        connection.prepare_threshold = 1 if self._place.prepare else None
        connection.prepared_max = 500
        self._prepare(connection)

    def main(self) -> Connection:
        """The connection of ordinary calls; one that was lost while idle is replaced."""
        if self._main is not None and (self._main.closed or _is_lost(self._main)):
            self.drop_main()
        if self._main is None:
            self._main = self._patiently(self.open)
        return self._main

    def drop_main(self) -> None:
        main, self._main = self._main, None
        if main is not None:
            with contextlib.suppress(Exception):
                main.close()

    def _patiently(self, connect: Callable[[], Connection]) -> Connection:
        """Try again for a while: a server that restarts is back in a moment."""
        until = time.monotonic() + self._place.patience
        pause = FIRST_PAUSE
        while True:
            try:
                return connect()
            except psycopg.OperationalError as error:
                if _is_final(error) or time.monotonic() + pause > until or self._closed:
                    raise EngineUnavailable(f"PostgreSQL cannot be reached: {_first_line(error)}") from None
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    def retrying(self, perform: Callable[[Connection], T], requests: Sequence[ops.Op[Any]]) -> T:
        """Perform on the main connection. What is safe to repeat is repeated when the connection breaks under it."""
        until = time.monotonic() + self._place.patience
        while True:
            connection = self.main()
            try:
                return perform(connection)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                broken = connection.closed or connection.broken
                self.drop_main()
                if not broken and _is_passing(error) and time.monotonic() < until:
                    continue
                if not broken:
                    raise
                if not all(map(_repeatable, requests)) or time.monotonic() >= until:
                    raise EngineUnavailable(
                        f"the connection to PostgreSQL broke during the call: {_first_line(error)}; it may have been done",
                        "unknown",
                    ) from None

    @contextmanager
    def borrowed(self) -> Iterator[Connection]:
        """A connection of one's own for a while."""
        if self._pool is None:
            self._pool = ConnectionPool(
                self._place.conninfo,
                min_size=0,
                max_size=self._place.pool,
                kwargs={"autocommit": True},
                configure=self._configure,
                check=_check,
                timeout=self._place.patience,
                reconnect_timeout=self._place.patience,
                num_workers=1,
                name="penstock",
                open=True,
            )
        try:
            with self._pool.connection() as connection:
                yield connection
        except PoolTimeout as error:
            raise EngineUnavailable(f"PostgreSQL cannot be reached: {_first_line(error)}") from None

    def close(self) -> None:
        self._closed = True
        self.drop_main()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def disown(self) -> None:
        """In a child after fork: the sockets are the parent's, so they are closed without a word to the server."""
        main, self._main = self._main, None
        if main is not None:
            with contextlib.suppress(OSError):
                os.close(main.fileno())
        self._pool = None


def _check(connection: Connection) -> None:
    if _is_lost(connection):
        raise psycopg.OperationalError("lost while idle")


def _is_lost(connection: Connection) -> bool:
    """True for an idle connection on which something came in: nobody asked, so it is the server's farewell."""
    try:
        return bool(select.select([connection.fileno()], [], [], 0)[0])
    except (OSError, ValueError, psycopg.OperationalError):
        return True


def _repeatable(op: ops.Op[Any]) -> bool:
    """True for ops whose repetition answers alike and changes nothing more."""
    if isinstance(op, ops.Put):
        return all(draft.put_id is not None for draft in op.drafts)
    return isinstance(op, ops.Peek | ops.Watch | ops.Ack | ops.Tick | ops.GetState | ops.KeepAlive | ops.OpenSession)


def _is_passing(error: psycopg.Error) -> bool:
    """Refused by the circumstances: a deadlock, a conflict with recovery. The same call may do well at once."""
    return isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure)


def _is_final(error: psycopg.OperationalError) -> bool:
    """Waiting would not help: wrong password, no such database or role."""
    text = str(error)
    return "does not exist" in text or "authentication failed" in text or "could not translate host" in text


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
