"""Connections to one server: the one for ordinary calls, some for the rest, and what to do when they break."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from penstock.engines.postgres.place import Place
from penstock.model.errors import AccessDenied, EngineUnavailable, NotWritable, PenstockError, SchemaMismatch

Connection = psycopg.Connection[Any]
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
IDLE = 60.0
"""Seconds after which a connection that nobody borrows is closed."""
AT_ONCE = 0.2
CROWDED = 10.0
"""Seconds for which a server that has no more connections for us is not asked again."""
DEFAULTS: dict[str, Any] = {
    "fallback_application_name": "penstock",
    "connect_timeout": 5,
    # A server that is gone without a word is noticed in half a minute rather than in two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# What we send and read is UTF8, whatever the environment, the role or the database would have a client use.
FORCED = {"client_encoding": "UTF8"}
OLDEST_SERVER = 14
FINAL = (
    *("does not exist", "could not translate host", "failed to resolve host", "invalid connection option"),
    *("invalid integer value", "invalid port number", "invalid sslmode", "does not support SSL"),
)
PASSWORD = ("authentication failed", "no password supplied")
DENIED = (*PASSWORD, "permission denied", "not permitted to log in", "pg_hba.conf")
PASSING = "Temporary failure in name resolution"
_NO_SUCH = re.compile(r'(database|role) "(.*)" does not exist')
_MAKERS = {"database": "createdb", "role": "createuser"}
MISSING = (
    *(psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedColumn),
    *(psycopg.errors.UndefinedObject, psycopg.errors.InvalidSchemaName),
)
_inherited: list[Connection] = []
"""Of a parent process. Kept for ever: whatever ends them would speak to the parent's server."""


class Pauses:
    """Longer and longer ones, until the patience is over."""

    def __init__(self, patience: float, stop: threading.Event) -> None:
        self._until = time.monotonic() + patience
        self._next = FIRST_PAUSE
        self._stop = stop

    def wait(self) -> bool:
        """False, at once, if the time is over or nobody wants to wait any more."""
        left = self._until - time.monotonic()
        if left <= 0 or self._stop.wait(min(self._next, left)):
            return False
        self._next = min(LONGEST_PAUSE, self._next * 2)
        return True


LOCK_PATIENCE = 250
"""Milliseconds that the main connection waits for another's transaction before the call is made aside."""


class Connections:
    def __init__(self, place: Place, prepare: Callable[[Connection], None]) -> None:
        self._place = place
        self._prepare = prepare
        self._main: Connection | None = None
        self._idle: list[tuple[float, Connection]] = []
        """Not borrowed, and since when; the last one given back is lent first."""
        self._lock = threading.Lock()
        self._room = threading.Semaphore(place.pool)
        self._all: set[Connection] = set()
        self._closing = threading.Event()
        self._crowded_until = 0.0
        self.down = False
        """The last attempt to connect failed."""

    def connect(self) -> Connection:
        """A new connection that knows nothing of the store."""
        connection = reach(self._place)
        with self._lock:
            self._all.add(connection)
        return connection

    def open(self) -> Connection:
        """A new connection, checked and ready."""
        connection = self.connect()
        try:
            check_server(connection)
            connection.prepare_threshold = 1 if self._place.prepare else None
            connection.prepared_max = 500
            connection.add_notice_handler(_log_refusal)
            self._prepare(connection)
        except BaseException:
            self.drop(connection)
            raise
        return connection

    def drop(self, connection: Connection) -> None:
        """Close a connection, whatever state it is in."""
        with self._lock:
            self._all.discard(connection)
        with contextlib.suppress(Exception):
            connection.close()

    # -- the one for ordinary calls ----------------------------------------------------------------

    def main(self) -> Connection:
        """The connection of ordinary calls, one after the other; one that was lost while idle is replaced first."""
        if self._main is not None and (_is_lost(self._main) or not _is_sound(self._main)):
            self.drop_main()
        if self._main is None:
            self._main = self.patiently(self._place.patience, LOCK_PATIENCE)
        return self._main

    def _limited(self, connection: Connection, patience: int) -> Connection:
        """A new connection that waits for transactions of others for so many milliseconds."""
        if self._place.prepare:  # behind a pooler a setting would be somebody else's too
            try:
                connection.execute(f"set lock_timeout = {patience}")
            except BaseException:
                self.drop(connection)
                raise
        return connection

    @property
    def is_crowded(self) -> bool:
        """The server gave us one connection and lately no other, so everything has to go over that."""
        return self._main is not None and time.monotonic() < self._crowded_until

    def drop_main(self) -> None:
        main, self._main = self._main, None
        if main is not None:
            self.drop(main)

    def pauses(self, patience: float | None = None) -> Pauses:
        return Pauses(self._place.patience if patience is None else patience, self._closing)

    def patiently(self, patience: float, lock_patience: int) -> Connection:
        """Connect, trying again for a while: a server that restarts is back in a moment.

        lock_patience: milliseconds that the connection waits for transactions of others.
        """
        pauses = self.pauses(patience)
        while True:
            try:
                connection = self._limited(self.open(), lock_patience)
            except psycopg.Error as error:
                self.down = True
                if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                    raise refused(error) from None
                if _is_final(error):
                    raise unreached(error) from None
                if not pauses.wait():
                    whole_time = patience == self._place.patience and not self._closing.is_set()
                    raise unreached(error, patience if whole_time else None) from None
            else:
                self.down = False
                return connection

    # -- those for the rest ------------------------------------------------------------------------

    @contextmanager
    def borrowed(self, patience: float | None = None) -> Iterator[Connection]:
        """A connection of one's own for a while."""
        connection = self.borrow(patience)
        try:
            yield connection
        finally:
            self.give_back(connection)

    def borrow_soon(self, patience: float | None = None) -> Connection:
        """For calls that can be made on the main connection too: is_crowded, if none is to be had at once."""
        if self._main is None:
            return self.borrow(patience)
        try:
            return self.borrow(AT_ONCE)
        except EngineUnavailable:
            self._crowded_until = time.monotonic() + CROWDED
            raise

    def borrow(self, patience: float | None = None) -> Connection:
        patience = self._place.patience if patience is None else patience
        if not self._room.acquire(timeout=patience):
            raise EngineUnavailable(
                f"all {self._place.pool} connections for transactions are in use; pool= in the URL allows for more"
            )
        try:
            # Whoever holds what a call waits for may be the very caller, in a transaction that goes on after it.
            return self._rested() or self.patiently(patience, max(1, int(self._place.patience * 1000)))
        except BaseException:
            self._room.release()
            raise

    def _rested(self) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                _, connection = self._idle.pop()
            if not _is_lost(connection):
                return connection
            self.drop(connection)

    def give_back(self, connection: Connection) -> None:
        """Whoever has borrowed a connection gives it back, sound or not."""
        self._room.release()
        now = time.monotonic()
        with self._lock:
            old = [one for since, one in self._idle if now - since > IDLE]
            self._idle = [(since, one) for since, one in self._idle if now - since <= IDLE]
            sound = not self._closing.is_set() and _is_sound(connection)
            if sound:
                self._idle.append((now, connection))
        for one in old if sound else [*old, connection]:
            self.drop(one)

    # -- the end -----------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Wait for no server any more."""
        self._closing.set()

    def close(self) -> None:
        self.hurry()
        self.drop_main()
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            self.drop(connection)

    def disown(self) -> None:
        """In a child after fork: the sockets are the parent's, so no word must go out on them from here."""
        self._lock = threading.Lock()
        self._main, self._idle = None, []
        nothing = os.open(os.devnull, os.O_RDWR)
        for connection in self._all:
            _inherited.append(connection)
            with contextlib.suppress(OSError, psycopg.Error):
                # The number stays taken: a library that still believes in it writes to nobody else's file.
                os.dup2(nothing, connection.fileno())
        os.close(nothing)
        self._all = set()


def full_conninfo(place: Place) -> str:
    """What the driver is told: the URL's, and ours where that is silent or would not do."""
    given = conninfo_to_dict(place.conninfo)
    silent = {name: value for name, value in DEFAULTS.items() if name not in given}
    return make_conninfo(place.conninfo, **silent, **FORCED)


def reach(place: Place, **options: str) -> Connection:
    """A new connection; raises what the driver does."""
    try:
        return psycopg.connect(make_conninfo(full_conninfo(place), **options), autocommit=True)
    except UnicodeError as error:  # of a host that no name server can be asked for
        raise psycopg.OperationalError(f"failed to resolve host: {error}") from None


@contextmanager
def visit(place: Place, **options: str) -> Iterator[Connection]:
    """A connection of a program's own, tried once; it is told the same as a caller of connect()."""
    try:
        connection = reach(place, **options)
    except psycopg.Error as error:
        raise unreached(error) from None
    with connection:
        try:
            yield connection
        except psycopg.Error as error:
            raise refused(error) from error


def check_server(connection: Connection) -> None:
    """Refuse a server that lacks what our functions are written with."""
    if connection.info.server_version < OLDEST_SERVER * 10_000:
        version = (connection.info.parameter_status("server_version") or "").split()[0]
        raise EngineUnavailable(f"this server is PostgreSQL {version}; Penstock needs {OLDEST_SERVER} or later")


def _is_final(error: psycopg.Error) -> bool:
    """The same will be said the next time."""
    text = str(error)
    return any(words in text for words in (*DENIED, *FINAL)) and PASSING not in text


def unreached(error: psycopg.Error, patience: float | None = None) -> PenstockError:
    """What a caller is told who cannot be connected, with the next step. `patience`: for how long it was tried."""
    denied = _line(error, DENIED)
    if denied:
        step = "; check user and password of the URL, or ~/.pgpass" if _line(error, PASSWORD) else ""
        return AccessDenied(f"PostgreSQL does not let us in: {denied}{step}")
    missing = _NO_SUCH.search(str(error))
    if missing:
        line, maker = _line(error, (missing[0],)), f"{_MAKERS[missing[1]]} {shlex.quote(missing[2])}"
        return EngineUnavailable(
            f"PostgreSQL has no such {missing[1]}: {line}; create it (`{maker}`) or correct the URL"
        )
    tried = "" if patience is None else f"; it was tried for {patience:g} s (patience= in the URL)"
    return EngineUnavailable(f"PostgreSQL cannot be reached: {_line(error, FINAL) or first_line(error)}{tried}")


def _line(error: psycopg.Error, words: Sequence[str]) -> str | None:
    """The first line with one of these: of several addresses each has said something."""
    return next((line for line in str(error).splitlines() if any(word in line for word in words)), None)


def _is_sound(connection: Connection) -> bool:
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


def _is_lost(connection: Connection) -> bool:
    """True for an idle connection on which something came in: nobody asked, so it is the server's farewell."""
    if connection.closed:
        return True
    look = select.poll()
    look.register(connection.fileno(), select.POLLIN)
    return bool(look.poll(0))


def is_broken(connection: Connection) -> bool:
    """True when nobody can say any more what became of the statement that was on its way."""
    return connection.closed or connection.broken


class Occupied(EngineUnavailable):
    """Somebody's open transaction holds the task that a call is about."""


class Undone(Exception):
    """The connection broke before a commit was asked for: nothing was done, whatever it was."""


@contextmanager
def whole(connection: Connection) -> Iterator[None]:
    """A transaction; Undone if the connection breaks before its commit is asked for."""
    asked = False
    try:
        with connection.transaction():
            yield
            asked = True
    except psycopg.Error as error:
        if not asked and is_broken(connection):
            raise Undone(first_line(error)) from error
        raise


def _log_refusal(notice: psycopg.errors.Diagnostic) -> None:
    """What an adopted table refuses while nobody is there to be told (tube/adopted.sql)."""
    if notice.sqlstate == "PS001":
        logging.getLogger("penstock").error(notice.message_primary)


def is_passing(error: psycopg.Error) -> bool:
    """Refused by the circumstances: a deadlock, a conflict with recovery. The same call may do well at once."""
    return isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure)


def refused(error: psycopg.Error) -> PenstockError:
    """What a caller is told instead of an error of the driver. The statement has changed nothing."""
    text = first_line(error)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return AccessDenied(f"this role may not do that: {text}")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return NotWritable(f"the server can only be read: {text}")
    if isinstance(error, psycopg.errors.FeatureNotSupported):
        return NotWritable(f"a temporary tube is not there on a standby: {text}")
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return EngineUnavailable(
            f"an open transaction holds what this call is about, and the patience is over ({text}); "
            "end that transaction, or pass it as transaction= if it is your own"
        )
    if isinstance(error, MISSING):
        return SchemaMismatch(f"the schema is not the one that this version of Penstock made: {text}")
    return EngineUnavailable(f"PostgreSQL could not do it: {text}")


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
