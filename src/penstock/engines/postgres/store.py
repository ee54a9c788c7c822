"""A queue on PostgreSQL.

Ops of this process that come at one time are performed in one transaction on one connection, as on every store.
Calls that take long, keepalives and transactions of the caller's use connections of their own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from penstock.engines.line import Answer, Taker, one_by_one
from penstock.engines.postgres import calls, migrations, templates, tubes
from penstock.engines.postgres.answers import Tube
from penstock.engines.postgres.calls import STORE_CALLS, TUBE_CALLS
from penstock.engines.postgres.connections import Connections, Occupied, Undone, first_line, is_broken, refused, whole
from penstock.engines.postgres.doubts import SIGNS, DoubtingStore
from penstock.engines.postgres.listener import Listener
from penstock.engines.postgres.place import Place
from penstock.engines.postgres.recovery import Recovery
from penstock.engines.postgres.transactor import BEGINNING, PostgresTransactor
from penstock.engines.postgres.work import Said, Work
from penstock.engines.store import Committed
from penstock.engines.transactor import Transactor
from penstock.model import ops
from penstock.model.clock import Clock
from penstock.model.duration import SECOND
from penstock.model.errors import EngineUnavailable, NotWritable, PenstockError, TubeNotFound, UsageError
from penstock.model.tube import TubeConfig

R = TypeVar("R")
Connection = psycopg.Connection[Any]
log = logging.getLogger("penstock")
SHORTEST_POLL, LONGEST_POLL, HEARING_POLL = 0.005, 0.05, 1.0
"""Seconds between two looks for changes of others; the last one is for processes that are told of them."""
DUE_PAUSE = SECOND // 50
UNREACHED_PAUSE = 0.2
"""Seconds between two looks for a server that is not there."""
STANDBY_PAUSE = 0.2
"""Seconds between two looks whether a standby has been promoted."""
DROPS = 5
"""How often a call is made anew because tubes were dropped while it was on its way."""
VANISHED = ("cache lookup failed for", "could not open relation with OID")
"""What the server says, as an internal error, of a part that was dropped between its lookup and its use."""
ASIDE = (
    *(ops.CreateTube, ops.AlterTube, ops.TruncateTube, ops.DropTube, ops.AdoptTable),
    *(ops.Load, ops.ReleaseAll, ops.AddRetries, ops.ListTasks, ops.GetExtent, ops.ListLanes, ops.GetStatistics),
    *(ops.ReadHistory, ops.ForgetHistory, ops.MarkHistory),
    *(ops.WriteLedger, ops.ReadLedger, ops.TrimLedger, ops.ListLedgers),
    *(ops.Stage, ops.Promote, ops.Discard, ops.ListStaged),
    *(ops.KeepAlive, ops.Tick),
)
"""Ops that may take long, or must not wait for one that does."""


class PostgresStore(DoubtingStore):
    """One per process and schema."""

    kept_together = 64
    poll_seconds: float = SHORTEST_POLL
    scanner = "penstock.engines.postgres.scan"
    holdings = "penstock.engines.postgres.holdings"

    def __init__(self, place: Place, clock: Clock) -> None:
        super().__init__(place.name, clock)
        self.place = place
        self.schema = templates.quoted(place.schema)
        self._tubes: dict[str, Tube] = {}
        self._local = threading.local()
        self._polled_at = 0
        self._asked_at: dict[str, int] = {}
        self._to_ask: set[str] = set()
        """Tubes whose next moment was asked for a moment ago and may have changed since."""
        # A store that is dropped without being closed takes its connections with it, so they must not hold it.
        prepare = weakref.WeakMethod(self._prepare)
        self._connections = Connections(place, lambda connection: prepare()(connection))  # type: ignore[misc]
        weakref.finalize(self, self._connections.close).atexit = False
        self._recovery = Recovery(self, self._connections)
        self._unreached = False
        self._only_read = ""
        """Why nothing could be written when that was last so."""
        self._listener: Listener | None = None
        try:
            self._connections.main()
        except BaseException:
            self._connections.close()
            raise
        if place.notify and not clock.manual:
            self._listener = Listener(self, place, self._connections)
        self.start()

    def _prepare(self, connection: Connection) -> None:
        """Every new connection: is the schema there and up to date, has a run begun?"""
        recovers, why = self._look_at(connection)
        if why:
            migrations.check(migrations.version(connection, self.place.schema), self.place.schema)
            if recovers:
                return
            # What is due is done before anything is read, except on a standby.
            raise NotWritable(why)
        migrations.migrate(connection, self.place.schema)
        now = self.clock.now() if self.clock.manual else None
        connection.execute(f"select {self.schema}.begin_run(%s)", [now])
        if self._recovery.grants.highest is None:
            self._recovery.count_from_now(connection)
        self.writable = True

    def _look_at(self, connection: Connection) -> tuple[bool, str]:
        """Whether a server is a standby, and why it cannot be written to; "" if it can.

        Answered rather than left in the store, where another thread that looks during a promotion may find otherwise.
        """
        row = connection.execute(BEGINNING).fetchone()
        assert row is not None
        recovers, only_read = row[:2]
        if recovers:
            why = f"{self.name} is a standby: it can only be read until it is promoted"
        elif only_read:
            why = (
                f"{self.name} cannot be written to: default_transaction_read_only is on, for the role "
                f"{connection.info.user!r}, the database or the server; set it off there and connect again"
            )
        else:
            return False, ""
        self.writable, self._only_read = False, why
        return recovers, why

    def _check_writable(self, connection: Connection) -> None:
        if not self.writable:
            self._prepare(connection)
            if not self.writable:
                raise NotWritable(self._only_read)

    def settle_place(self, connection: Connection, requests: Sequence[ops.Op[Any]]) -> None:
        """Before a call, where something is not as usual: a standby may have been promoted, a reply may be lost."""
        try:
            if not self.writable and not isinstance(requests[0], ops.GetState):
                self._prepare(connection)
            if self._recovery.grants.due and any(isinstance(op, ops.Take) for op in requests):
                self._refund(connection)
        except psycopg.Error as error:
            if is_broken(connection):
                raise Undone(first_line(error)) from error
            raise

    def _refund(self, connection: Connection) -> set[str]:
        """Give back what was granted in lost replies. Called with the lock: a take on its way is not lost."""
        work = Work(self, connection, relaxed=False)
        sessions = {uuid: len(engines) for uuid, engines in list(self._keeping.items())}
        touched = self._recovery.refund(work, sessions)
        self.note(Committed([], touched, work.announced, None))
        return touched

    # -- tubes -------------------------------------------------------------------------------------

    def known(self, name: str, connection: Connection, fresh: bool = False) -> Tube:
        """A tube by name, from memory if this process has seen it."""
        tube = None if fresh else self._tubes.get(name)
        if tube is None:
            try:
                tube = self._tubes[name] = tubes.existing(connection, self.schema, name)
            except TubeNotFound:
                self.forget(name)  # not before: what happens meanwhile in a tube that is not known is not told
                raise
        return tube

    def forget(self, name: str) -> None:
        self._tubes.pop(name, None)

    def config_of(self, number: int) -> TubeConfig | None:
        return next((tube.config for tube in list(self._tubes.values()) if tube.number == number), None)

    def names_of(self, numbers: Iterable[int]) -> set[str]:
        return {tube.config.name for tube in list(self._tubes.values()) if tube.number in numbers}

    def awaited(self) -> set[str]:
        """Tubes that somebody of this process waits on."""
        return self._lines.tubes() if self._lines.count else set()

    def listened(self) -> list[int]:
        return [tube.number for name in list(self._listeners) if (tube := self._tubes.get(name)) is not None]

    # -- performing ops ----------------------------------------------------------------------------

    def execute_many(self, requests: Sequence[ops.Op[Any]], strict: bool = True) -> list[Answer]:
        if getattr(self._local, "inside", 0):
            self.check_owner()
        # Under a manual clock nothing goes on beside a call, so nothing has to get past it.
        # Signs of life come many at a time.
        few = len(requests) == 1 or all(type(op) is ops.KeepAlive for op in requests)
        if few and isinstance(requests[0], ASIDE) and not self.clock.manual:
            if self.closed or not self.usable:
                self.check_usable()
            self.check_owner()
            return self._aside(requests, strict)
        try:
            answers = super().execute_many(requests, strict)
        except Occupied as error:
            answers = [error]
        if any(isinstance(answer, Occupied) for answer in answers):
            # It waits where nobody else has to wait for it.
            pairs = zip(requests, answers, strict=True)
            return [self._aside((op,), strict)[0] if isinstance(answer, Occupied) else answer for op, answer in pairs]
        return answers

    def _aside(self, requests: Sequence[ops.Op[Any]], strict: bool) -> list[Answer]:
        """An op, or signs of life, on a connection of its own, beside what everybody else does."""
        if self._connections.is_crowded:
            return super().execute_many(requests, strict)
        try:
            done = self._recovery.perform(requests, strict, aside=True)
        except EngineUnavailable:
            if not self._connections.is_crowded:
                raise
            return super().execute_many(requests, strict)
        with self._group.alone():
            self.note(done)
            if self._lines.count and done.touched:
                self._serve(done.touched, strict)
            elif self._lines.count and isinstance(requests[0], ops.Tick):
                self._serve(self._lines.tubes(), strict)
        if self._outbox:
            self._announce()
        return done.answers

    def commit(self, requests: Sequence[ops.Op[Any]], strict: bool) -> Committed:
        return self._recovery.perform(requests, strict)

    def _transact(
        self, connection: Connection, requests: Sequence[ops.Op[Any]], strict: bool, tries: int = DROPS
    ) -> Committed:
        self._see_listened(connection)
        since = self.doubts.now() if [op for op in requests if isinstance(op, SIGNS)] else None
        work = Work(self, connection, not strict or all(op.weak for op in requests))
        alone = len(requests) == 1 and (type(requests[0]) in TUBE_CALLS or type(requests[0]) in STORE_CALLS)
        try:
            if alone:
                answers = [self._answered(work, requests[0])]
            elif (said := work.ask(requests)) is not None:
                answers = [self._answered(work, op, one) for op, one in zip(requests, said, strict=True)]
            else:
                with whole(connection):
                    answers = [self._answered(work, op) for op in requests]
        except (
            psycopg.errors.UndefinedFunction,
            psycopg.errors.UndefinedTable,
            psycopg.errors.InternalError_,
        ) as error:
            if isinstance(error, psycopg.errors.InternalError_) and not any(words in str(error) for words in VANISHED):
                raise
            if not tries:
                raise migrations.strange(self.place.schema, error) from error
            # A tube was dropped elsewhere, perhaps under this very tick, and perhaps made anew under another number.
            self._tubes.clear()
            return self._transact(connection, requests, strict, tries - 1)
        if since is not None:
            self.note_signs(requests, answers, since)
        return Committed(answers, work.touched, work.announced, work.next_due)

    def _see_listened(self, connection: Connection) -> None:
        for name in list(self._listeners):
            if name not in self._tubes:
                with contextlib.suppress(TubeNotFound):
                    self.known(name, connection)

    def _answered(self, work: Work, op: ops.Op[Any], said: Said | None = None) -> Answer:
        try:
            return work.answer(op, said)
        except PenstockError as error:
            return error
        except psycopg.errors.ReadOnlySqlTransaction:
            self.writable = False
            if work._connection.info.transaction_status == TransactionStatus.IDLE:
                self._look_at(work._connection)
            return NotWritable(self._only_read or f"{self.name} cannot be written to")

    # -- the keeper's round ------------------------------------------------------------------------

    def beat(self) -> float:
        try:
            if not self.writable or (self._connections.down and not self._connections.is_crowded):
                self._look_up()
            if not self.writable:
                return STANDBY_PAUSE
            if self._recovery.grants.due:
                self._look_for_lost()
            if self._to_ask:
                with self._group.alone():
                    self._learn(set(self._to_ask))
            pause = super().beat()
            if self._to_ask:
                pause = min(pause, DUE_PAUSE / SECOND)
        except EngineUnavailable as error:
            if not self._unreached and not self.closed:
                log.warning("%s; it is tried again", error)
            self._unreached = True
            return UNREACHED_PAUSE
        except NotWritable:
            self.writable = False
            return STANDBY_PAUSE
        if self._unreached:
            log.warning("%s is there again", self.name)
            self._unreached = False
        return pause

    def tick(self) -> int | None:
        if self.clock.manual:
            return super().tick()
        self._ticked_at = self.clock.now()
        self._next_tick = None
        then = self.execute(calls.KeepTime(), strict=False)
        if then is not None:
            # What is due and was left, because somebody has it locked, is not worth asking for without a pause.
            then = max(then, self.clock.now() + DUE_PAUSE)
        if then is not None and (self._next_tick is None or then < self._next_tick):
            self._next_tick = then
        return then

    def _look_up(self) -> None:
        """Is the server there, and has a standby been promoted? Asked without anybody's lock."""
        try:
            connection = self._connections.borrow_soon(0)
        except EngineUnavailable:
            if self.writable and self._connections.is_crowded:
                return
            raise
        try:
            if not self.writable:
                self._prepare(connection)
                if self.writable:  # sessions that could not be kept here are kept from now on
                    self._alive_at.update(dict.fromkeys(self._sessions, 0))
                    self.doubts.doubt_all()
        except psycopg.Error as error:
            raise refused(error) from None
        finally:
            self._connections.give_back(connection)

    def _look_for_lost(self) -> None:
        try:
            with self._group.alone():
                touched = self._refund(self._connections.main())
                if self._lines.count:
                    self._serve(touched, strict=False)
        except psycopg.Error as error:
            raise refused(error) from None
        self._announce()

    # -- waiting -----------------------------------------------------------------------------------

    def foreign_change(self) -> bool:
        """Look again every second; while nobody tells us of changes more often, and most often after one."""
        now = self.clock.now()
        if self._listener is not None and self._listener.hears:
            self.poll_seconds = HEARING_POLL
        elif self.poll_seconds == HEARING_POLL:
            self.poll_seconds = LONGEST_POLL
        if now - self._polled_at < self.poll_seconds * SECOND:
            return False
        self._polled_at = now
        if self.poll_seconds < LONGEST_POLL:
            self.poll_seconds = min(LONGEST_POLL, self.poll_seconds * 1.5)
        return True

    def serve_all(self) -> None:
        before = self._lines.count
        super().serve_all()
        if self._lines.count < before:
            self.poll_seconds = SHORTEST_POLL

    def enlist(self, waiter: Any, strict: bool = True) -> None:
        try:
            super().enlist(waiter, strict)
        except Occupied:
            # A put that may wait for room, and has to wait for a transaction first.
            if not waiter.offer(self._aside((waiter.op,), strict)[0]):
                super().enlist(waiter, strict)
        if isinstance(waiter, Taker) and not waiter.done and not self.clock.manual:
            # What others have delayed, nobody has told us of.
            with self._group.alone():
                self._learn({waiter.tube})
        if self.poll_seconds == LONGEST_POLL:
            self.poll_seconds = SHORTEST_POLL
        if self._listener is not None:
            self._listener.attend()

    perform_all = one_by_one

    def _serve(self, tubes: Iterable[str], strict: bool, ended: Any = None) -> None:
        names = set(tubes)
        super()._serve(names, strict)
        if not self.clock.manual:
            self._learn({name for name in names if name in self._tubes and self._tubes[name].config.features.lanes})

    def _learn(self, names: set[str]) -> None:
        """Find out when time lets a task through for those who still wait on these tubes. Called with the lock.

        A lane that its rate has shut opens without anybody's doing, and no answer of a take says when. Puts that come
        one after the other do not pay for that each: what was asked for a moment ago is left to the keeper.
        """
        now = self.clock.now()
        for name in names:
            tube = self._tubes.get(name)
            if tube is None or not self._lines.takers(name) or not self.writable:
                self._to_ask.discard(name)
            elif now - self._asked_at.get(name, 0) < DUE_PAUSE:
                if name not in self._to_ask:
                    self._to_ask.add(name)
                    if self._keeper is not None:
                        self._keeper.poke()
            else:
                self._to_ask.discard(name)
                self._asked_at[name] = now
                # Where that fails the tick of the next second finds out; an error would leave a waiter in line.
                with contextlib.suppress(psycopg.Error, EngineUnavailable):
                    row = self._connections.main().execute(f"select {self.schema}.next_due_{tube.number}()").fetchone()
                    if row is not None and row[0] is not None:
                        # What is due and still there is locked by somebody, as in tick().
                        self.note(Committed([], set(), [], row[0] if row[0] > now else now + DUE_PAUSE))

    def waits(self) -> dict[int, tuple[bool, bool]]:
        """Tubes that somebody waits on here: for tasks, for ends."""
        found = {}
        for name in self._lines.tubes():
            tube = self._tubes.get(name)
            if tube is not None:
                takes = self._lines.takers(name) > 0
                limited = tube.config.features.lanes or tube.config.concurrency is not None
                found[tube.number] = (takes, limited or self._lines.others(name) > 0)
        return found

    def changed_elsewhere(self, numbers: Iterable[int]) -> None:
        """Another process has changed these tubes."""
        names = self.names_of(numbers)
        with self._group.alone():
            if self._lines.count:
                self._serve(names & self._lines.tubes(), False)
        self._announce()

    # -- transactions ------------------------------------------------------------------------------

    def check_owner(self) -> None:
        if getattr(self._local, "inside", 0):
            raise UsageError("this thread is inside q.transaction(): pass transaction= to every call until it ends")

    def join(self, transaction: object) -> Transactor:
        from penstock.engines.postgres import joining

        return joining.join(self, transaction)

    @contextmanager
    def transaction(self) -> Iterator[Transactor]:
        self.check_usable()
        self.check_owner()
        with self._connections.borrowed() as connection:
            self._check_writable(connection)
            self._local.inside = 1
            transactor = PostgresTransactor(self, connection)
            try:
                with self._recovery.decided(connection):
                    yield transactor
            finally:
                transactor.ended = True
                self._local.inside = 0
        with self._group.alone():
            for work in transactor.works:
                self.note(Committed([], work.touched, work.announced, work.next_due))
                if self._lines.count:
                    self._serve(work.touched, strict=False)
            # The caller may have changed rows of adopted tables through the connection.
            if self._lines.count:
                self._serve({tube.config.name for tube in self._tubes.values() if tube.config.adopted}, strict=False)
        self._announce()

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        self.closed = True
        self._connections.hurry()
        if self._listener is not None and self._pid == os.getpid():
            # Not with the lock, which the listener may be about to ask for.
            self._listener.stop()
        super().close()

    def shut(self) -> None:
        self._connections.close()

    def disown(self) -> None:
        self._connections.disown()

    def abandon(self) -> None:
        """Close as though every process had been killed; the next connect begins a run.

        Their sessions end with them: a test has no time to wait for their ttl.
        """
        dead = f"array(select uuid from {self.schema}.sessions where direct)"
        now = self.clock.now() if self.clock.manual else None
        with self._connections.borrowed() as connection:
            connection.execute(f"select {self.schema}.begin_run(%s, {dead})", [now])
        self.close()
