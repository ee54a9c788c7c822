"""The SQLite engine: an embedded file that several processes may have open at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import apsw

from penstock.engines import verbs
from penstock.engines.keeper import Bell
from penstock.engines.line import Answer, raised
from penstock.engines.sqlite import bulk, crowd, fast, merge
from penstock.engines.sqlite.bell import WriteBell
from penstock.engines.sqlite.database import Database, unavailable
from penstock.engines.sqlite.place import Place
from penstock.engines.sqlite.presence import Presence
from penstock.engines.sqlite.transaction import SQL, SqliteTransaction
from penstock.engines.store import Committed, Store
from penstock.engines.transactor import Transactor
from penstock.model import ops, rules
from penstock.model.clock import Clock, ManualClock, next_epoch
from penstock.model.errors import (
    EngineUnavailable,
    NotWritable,
    PenstockError,
    SchemaMismatch,
    TaskNotFound,
    UsageError,
)
from penstock.model.task import Record

R = TypeVar("R")
HEARING_POLL = 0.1
"""Seconds between two looks for changes of others where the system tells of them."""
FAST: dict[type[Any], Any] = {
    ops.Put: fast.put,
    ops.Take: fast.take,
    ops.Ack: fast.ack,
    ops.Load: bulk.load,
    ops.Promote: bulk.promote,
}


class SqliteStore(Store):
    """One per process and file: one connection that writes, one that looks out for other processes."""

    scanner = "penstock.engines.sqlite.scan"
    holdings = "penstock.engines.sqlite.holdings"
    poll_seconds = 0.002
    """Between two looks for changes of others, where nobody tells of them or somebody has just written."""

    def __init__(self, place: Place, clock: Clock) -> None:
        super().__init__(place.name, clock)
        self._place = place
        self._state = "STARTUP"
        self._watches: list[Database] = []
        """Connections that only look out for changes: of the main file and, once there is one, the temporary."""
        self._watching = threading.Lock()
        self._main: Database = None  # type: ignore[assignment]  # set by what follows
        self._presence: Presence | None = None
        self._seen: list[int] = []
        self._bell: WriteBell | None = None
        self._heard = 0
        """How many of the watches have a file that the bell hears of."""
        if place.read_only or not _may_write(place):
            self._open_to_read()
        else:
            self._open_to_write()
        self.start()

    def _open_to_read(self) -> None:
        self.writable = False
        if not os.path.exists(self._place.path):
            why = "does not exist, or is in a folder that you may not enter"
            raise EngineUnavailable(f"{self._place.path} {why}, so it cannot be read")
        self._main = Database(self._place.path, "NORMAL", read_only=True)
        self._tx = self._transaction(self._main)
        self._state = "WAITING"

    def _open_to_write(self) -> None:
        presence = self._presence = self._arrive()
        try:
            with presence.arriving() as alone, self._translated():
                self._main = Database(self._place.path, "FULL")
                if alone and self._main.schema_version() and not self._main.value("SELECT clean FROM penstock_store"):
                    self._main.check_integrity()
                    self._check_temporary()
                self._main.migrate("migrations")
                self._tx = self._transaction(self._main)
                if alone:
                    self._begin_run()
        except BaseException:
            if self._main is not None:
                self._main.close()
            presence.vanish()
            raise
        self._state = "RUNNING"

    def _arrive(self) -> Presence:
        try:
            if self._place.path.is_dir():
                raise EngineUnavailable(f"{self._place.path} is a folder, not a file; name a file in it")
            return Presence(self._place.beside("-lock"))
        except OSError as error:
            raise EngineUnavailable(
                f"cannot open {self._place.path}: {error.strerror}; does its folder exist, and may you write there?"
            ) from None

    def _transaction(self, database: Database, own: bool = True) -> SqliteTransaction:
        tx = SqliteTransaction(database, self._open_temporary if own else lambda: None)
        tx.listened = self._listeners.keys() if own else ()
        tx.watched = self._lines.watched if own else ()
        tx.waiting = self.waiting
        tx.lives = self.lives
        tx.now = self.clock.now
        return tx

    def _begin_run(self) -> None:
        """Nobody has the store open: a run begins. Fully synced, whatever the durability. [rules 4, 13]"""
        tx = self._tx
        tx.begin()
        epoch, token, _, _ = self._main.rows(SQL["load_store"])[0]
        epoch = next_epoch(max(epoch, token >> 32))
        self._main.execute(SQL["begin_run"], (epoch, epoch << 32))
        tx.renew_temporary(self.clock.now())
        tx.begin_run(self.clock.now())
        for name in tx.tube_names():
            tx.tube(name).head.token_end = 0
        tx.commit()

    def _check_temporary(self) -> None:
        """A file that is never synced may not survive a power cut; what it held is over anyway."""
        path = self._place.beside("-temporary")
        try:
            if path.exists():
                database = Database(path, "OFF")
                database.check_integrity()
                database.close()
        except (EngineUnavailable, UsageError):
            for suffix in ("-temporary", "-temporary-wal", "-temporary-shm"):
                self._place.beside(suffix).unlink(missing_ok=True)

    def _open_temporary(self) -> Database | None:
        """The second file; None where it can neither be read nor made."""
        if not self.writable:
            path = self._place.beside("-temporary")
            return Database(path, "OFF", read_only=True) if path.exists() else None
        database = Database(self._place.beside("-temporary"), "OFF")
        database.migrate("migrations")
        return database

    # -- performing ops ----------------------------------------------------------------------------

    def execute_many(self, requests: Sequence[ops.Op[Any]], strict: bool = True) -> list[Answer]:
        if len(requests) == 1 and type(requests[0]) in UNLOCKED and self.writable:
            self.check_usable()
            try:
                return [verbs.VERBS[type(requests[0])](self._tx, requests[0], self.clock.now())]
            except PenstockError as error:
                return [error]
        return super().execute_many(requests, strict)

    def commit(self, requests: Sequence[ops.Op[Any]], strict: bool) -> Committed:
        tx = self._tx
        answers: list[Answer] = []
        try:
            if not self.writable:
                return self._read(requests)
            weak = not strict or (requests[0].weak if len(requests) == 1 else all(op.weak for op in requests))
            self._main.require("NORMAL" if weak else "FULL")
            tx.begin()
            answers = [self._answer(requests[0])] if len(requests) == 1 else self._merged(requests)
            tx.commit()
            return Committed(answers, tx.touched, tx.announced, tx.next_due(), tx.ended)
        except apsw.Error as error:
            self._roll_back()
            raise unavailable(self._place.path, error) from error
        except BaseException as error:
            if not answers or not tx.finish():
                self._roll_back()
                raise
            self._group.late = error  # of a signal: those whose ops were done are told so first
            return Committed(answers, tx.touched, tx.announced, tx.next_due(), tx.ended)

    def _merged(self, requests: Sequence[ops.Op[Any]]) -> list[Answer]:
        return merge.perform(requests, self._answer, lambda batch: crowd.perform(self._tx, batch, self.clock.now()))

    def _roll_back(self) -> None:
        with suppress(apsw.Error):
            self._tx.rollback()

    def _answer(self, op: ops.Op[Any]) -> Any:
        """Perform one op inside the transaction; a refusal is an answer too."""
        return self._state if type(op) is ops.GetState else perform(self._tx, op, self.clock.now())

    def _read(self, requests: Sequence[ops.Op[Any]]) -> Committed:
        """A store that can only be read answers what it can. Nothing that is due is written down."""
        tx = self._tx
        answers: list[Any] = []
        self._main.execute("BEGIN")
        try:
            tx.joined()
            for op in requests:
                if type(op) is ops.GetState:
                    answers.append(self._state)
                elif type(op) in READABLE:
                    answers.append(_read_one(tx, op, self.clock.now()))
                elif type(op) is ops.Tick:
                    answers.append(None)
                else:
                    answers.append(
                        NotWritable(f"{self._place.path} can only be read, so {type(op).__name__} is refused")
                    )
        finally:
            tx.end_reading()
        return Committed(answers, set(), [], None)

    def foreign_change(self) -> bool:
        with self._watching:
            paths = (self._place.path, self._place.beside("-temporary"))
            for path in paths[len(self._watches) :]:
                if path.exists():
                    self._watches.append(Database(path, "NORMAL", read_only=True))
            seen = [watch.value("PRAGMA data_version") for watch in self._watches]
            if self._bell is not None and self._heard < len(self._watches):
                path = paths[self._heard]
                self._heard += self._bell.watch(path.with_name(f"{path.name}-wal"))
        changed = seen != self._seen
        self._seen = seen
        return changed

    def bell(self) -> Bell:
        lines = self._lines  # not the store itself, which must not be held by what its keeper waits for
        self._bell = WriteBell.made(lambda: lines.count)
        return self._bell or Bell()

    def poll_pause(self, now: int) -> float | None:
        if self._bell is None or not self._heard or self._heard < len(self._watches) or self._bell.is_alert:
            return super().poll_pause(now)
        return HEARING_POLL

    # -- transactions of callers -------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transactor]:
        self.check_usable()
        if not self.writable:
            raise NotWritable(f"{self._place.path} can only be read")
        with self._group.alone():
            self._owner = threading.get_ident()
            tx = self._tx
            transactor = OwnTransactor(self, tx)
            try:
                with self._translated():
                    self._main.require("FULL")
                    tx.begin()
                yield transactor  # what the caller's own statements raise is the caller's
                with self._translated():
                    tx.take_edits()
                    tx.settle_sessions(self.clock.now())
                    tx.commit()
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._owner = None
                transactor.ended = True
            done = Committed([], tx.touched, tx.announced, tx.next_due())
            self.note(done)
            if self._lines.count:
                self._serve(done.touched, strict=False)
        self._announce()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of SQLite become errors of Penstock."""
        try:
            yield
        except apsw.Error as error:
            raise unavailable(self._place.path, error) from error

    def join(self, transaction: object) -> Transactor:
        """The caller's own apsw connection, inside its own transaction."""
        if not isinstance(transaction, apsw.Connection):
            hint = ""
            if type(transaction).__module__ == "sqlite3":
                hint = ": two SQLite libraries on one file in one process can corrupt it"
            raise UsageError(
                f"transaction= takes an apsw.Connection or what q.transaction() gave, "
                f"not {type(transaction).__module__}.{type(transaction).__name__}{hint}"
            )
        if not transaction.in_transaction:
            raise UsageError("the connection has no transaction: BEGIN IMMEDIATE first, COMMIT after")
        if Place.parse(transaction.filename).path != self._place.path:
            raise UsageError(f"the connection is on {transaction.filename}, the queue on {self._place.path}")
        return JoinedTransactor(self, transaction)

    # -- the end -----------------------------------------------------------------------------------

    def shut(self) -> None:
        self._state = "ENDING"
        for watch in self._watches:
            watch.close()
        if self._presence is None:
            self._main.close()
            return
        with self._presence.leaving() as last:
            if last:
                with suppress(apsw.Error):
                    self._main.require("NORMAL")
                    self._main.execute(SQL["end_run"])
            self._tx.close()

    def hold(self) -> None:
        self._watching.acquire()
        super().hold()

    def let_go(self) -> bool:
        self._watching.release()
        return super().let_go()

    def disown(self) -> None:
        """SQLite keeps book of its locks per process, and the child has inherited the book but not the locks."""
        self._tx.disown()
        for watch in self._watches:
            watch.disown()
        if self._bell is not None:
            self._bell.close()
        if self._presence is not None:
            self._presence.vanish()

    def abandon(self) -> None:
        self.closed = True
        if self._keeper is not None:
            self._keeper.stop()
        if isinstance(self.clock, ManualClock):
            self.clock.unfollow(self)
        with self._group.alone():
            for watch in self._watches:
                watch.close()
            self._tx.close()
            if self._presence is not None:
                self._presence.vanish()


UNLOCKED = (ops.Stage, ops.Discard, ops.ListStaged)
"""Ops on files beside the database: whoever holds its write lock need not be waited for."""
READABLE = (
    ops.GetTube,
    ops.ListTubes,
    ops.Peek,
    ops.Watch,
    ops.ListTasks,
    ops.GetExtent,
    ops.ListLanes,
    ops.GetStatistics,
    ops.ReadHistory,
    ops.MarkHistory,
    ops.ReadLedger,
    ops.LastNotes,
    ops.GetMoment,
    ops.ListLedgers,
)


def perform(tx: SqliteTransaction, op: ops.Op[Any], now: int) -> Any:
    """One op by the fast way if there is one, else by the one that knows every rule."""
    try:
        short = FAST.get(type(op))
        if short is not None:
            if tx.first_end <= now:
                tx.settle_sessions(now)
            answer = short(tx, op, now)
            if answer is not None:
                return answer
        return verbs.execute(tx, op, now)
    except PenstockError as error:
        return error


def _read_one(tx: SqliteTransaction, op: ops.Op[Any], now: int) -> Any:
    """A store that cannot be written cannot be settled; one task is shown as it would be."""
    try:
        if isinstance(op, ops.Peek | ops.Watch):
            return _as_of(tx, op, now)
        return verbs.VERBS[type(op)](tx, op, 0)
    except PenstockError as error:
        return error
    except apsw.SQLError as error:  # a table that a later version has
        return SchemaMismatch(
            f"{tx.main.path} has schema {tx.main.schema_version()} and was opened to be read, so it cannot be brought "
            f"up to date ({error}); open it once for writing, or run `penstock migrate` on it"
        )


def _as_of(tx: SqliteTransaction, op: ops.Peek | ops.Watch, now: int) -> Record:
    config = tx.tube(op.tube).config
    record: Record | None = verbs.VERBS[ops.Peek](tx, ops.Peek(op.tube, op.id), 0)
    while record is not None and (what := rules.due(record)) is not None and what.at <= now:
        changes = rules.settle(config, record, what)
        record = changes[-1].after if changes and not rules.is_gone(changes[-1].after) else None
    if record is None:
        raise TaskNotFound(f"tube {op.tube!r} has no task with the id {op.id!r}")
    return record


def _may_write(place: Place) -> bool:
    path = place.path
    # Path.exists() raises where a folder on the way may not be entered.
    there = os.path.exists(path)
    return os.access(path if there else path.parent, os.W_OK) or not os.path.exists(path.parent)


class OwnTransactor(Transactor):
    """q.transaction(): the store's own connection, held by the caller for a while."""

    def __init__(self, store: SqliteStore, tx: SqliteTransaction) -> None:
        self.store: SqliteStore = store
        self._tx = tx
        self.connection = tx.main.connection

    def execute(self, op: ops.Op[R]) -> R:
        with self.store._translated():
            # The caller may have changed anything through the connection, rows of adopted tables included.
            self._tx.take_edits()
            answer: R = raised(perform(self._tx, op, self.store.clock.now()))
        return answer


class JoinedTransactor(Transactor):
    """A transaction on the caller's connection. A savepoint keeps it usable whatever happens to the op."""

    def __init__(self, store: SqliteStore, connection: apsw.Connection) -> None:
        self.store: SqliteStore = store
        self.connection = connection

    def execute(self, op: ops.Op[R]) -> R:
        store = self.store
        database = Database.over(store._place.path, self.connection)
        tx = store._transaction(database, own=False)
        try:
            database.execute("SAVEPOINT penstock")
            tx.joined()
            tx.take_edits()
            answer = perform(tx, op, store.clock.now())
            tx.flush()
            database.execute("RELEASE penstock")
        except apsw.Error as error:
            with suppress(apsw.Error):
                database.execute("ROLLBACK TO penstock")
                database.execute("RELEASE penstock")
            raise unavailable(store._place.path, error) from error
        result: R = raised(answer)
        return result
