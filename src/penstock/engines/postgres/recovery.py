"""What a store does when a connection breaks under a call: connect again, find out, repeat what may be repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from penstock.engines import outcomes
from penstock.engines.postgres.answers import AT, INFO, TUBE, split
from penstock.engines.postgres.connections import (
    Connection,
    Connections,
    Occupied,
    Pauses,
    Undone,
    first_line,
    is_broken,
    is_passing,
    refused,
)
from penstock.engines.store import Committed
from penstock.model import ops
from penstock.model.errors import EngineUnavailable, PenstockError
from penstock.model.task import Record, TaskId

if TYPE_CHECKING:
    from penstock.engines.postgres.store import PostgresStore
    from penstock.engines.postgres.work import Work

LATE = 30.0
"""Seconds for which a backend that lost its client may still commit what it was doing."""
AGAIN = 1.0


class Grants:
    """Tokens that this process was given: what its sessions hold beyond them was granted in a reply that got lost.

    All takes of a process go over one connection, one after the other, so their tokens rise.
    """

    def __init__(self) -> None:
        self.highest: int | None = None
        self.after = 0
        self.known: list[int] = []
        """Given since the first loss that is not forgotten yet."""
        self._until = 0.0
        self._look_at = 0.0

    def seen(self, tokens: Sequence[int]) -> None:
        if tokens:
            self.highest = max(self.highest or 0, *tokens)
            if self._until:
                self.known += tokens

    def lose(self) -> None:
        """A reply that may have had grants in it is lost."""
        now = time.monotonic()
        if not self._until:
            self.after, self.known = self.highest or 0, []
        self._until = now + LATE
        self._look_at = now

    @property
    def due(self) -> bool:
        """True when it is time to look for lost ones."""
        return self._until > 0 and time.monotonic() >= self._look_at

    def looked(self) -> None:
        now = time.monotonic()
        self._look_at = now + AGAIN
        if now >= self._until:
            self._until, self.known = 0.0, []


class Recovery:
    def __init__(self, store: PostgresStore, connections: Connections) -> None:
        self._store = store
        self._connections = connections
        self.grants = Grants()

    # -- calls -------------------------------------------------------------------------------------

    def perform(
        self, requests: Sequence[ops.Op[Any]], strict: bool, aside: bool = False, doubt: str | None = None
    ) -> Committed:
        """Perform ops, on the main connection or aside. `doubt`: they may have been done before, and why."""
        pauses: Pauses | None = None
        while True:
            connection: Connection | None = None
            try:
                connection = self._lend(aside, doubt)
                self._store.settle_place(connection, requests)
                done = self._store._transact(connection, requests, strict)
            except (psycopg.Error, Undone) as error:
                assert connection is not None
                why = first_line(error)
                if isinstance(error, psycopg.errors.LockNotAvailable) and not aside:
                    raise Occupied(f"an open transaction holds what this call is about: {why}") from error
                if isinstance(error, psycopg.Error) and not self._is_undone(connection, error):
                    if not is_broken(connection):
                        raise (refused(error) if doubt is None else outcomes.unknown(doubt)) from error
                    doubt = why
                    self._doubt(requests, aside)
                    if len(requests) > 1 or not outcomes.is_repeatable(requests[0]):
                        return self._each(requests, strict, doubt)
                pauses = pauses or self._connections.pauses()
                if not pauses.wait():
                    raise (_gave_up(why) if doubt is None else outcomes.unknown(doubt)) from error
            except EngineUnavailable as error:
                if len(requests) == 1:
                    raise
                # One answer for all: each on its own would wait for the server all over again.
                return Committed([error] * len(requests), set(), [], None)
            except BaseException:
                self._doubt(requests, aside)
                raise
            else:
                return self._believed(done, requests, aside, doubt)
            finally:
                self._take_back(connection, aside)

    def _lend(self, aside: bool, doubt: str | None) -> Connection:
        try:
            return self._connections.borrow_soon() if aside else self._connections.main()
        except EngineUnavailable:
            if doubt is None:
                raise
            raise outcomes.unknown(doubt) from None

    def _take_back(self, connection: Connection | None, aside: bool) -> None:
        if aside and connection is not None:
            self._connections.give_back(connection)

    def _is_undone(self, connection: Connection, error: psycopg.Error) -> bool:
        return not is_broken(connection) and is_passing(error)

    def _doubt(self, requests: Sequence[ops.Op[Any]], aside: bool) -> None:
        if not aside and any(isinstance(op, ops.Take) for op in requests):
            self.grants.lose()

    def _each(self, requests: Sequence[ops.Op[Any]], strict: bool, doubt: str) -> Committed:
        """Ops that were performed together and may have been done: what can be repeated is, one by one."""
        done = Committed([], set(), [], None)
        for op in requests:
            if not outcomes.is_repeatable(op):
                done.answers.append(outcomes.unknown(doubt))
                continue
            try:
                one = self.perform((op,), strict, doubt=doubt)
            except PenstockError as error:
                done.answers.append(error)
            else:
                due = [moment for moment in (done.next_due, one.next_due) if moment is not None]
                done = Committed(
                    [*done.answers, *one.answers],
                    done.touched | one.touched,
                    [*done.announced, *one.announced],
                    min(due, default=None),
                )
        return done

    def _believed(self, done: Committed, requests: Sequence[ops.Op[Any]], aside: bool, doubt: str | None) -> Committed:
        if not aside:
            self.grants.seen(outcomes.granted_tokens(requests, done.answers))
            if any(isinstance(op, ops.Identify) for op in requests):
                self.count_from_now()
        if doubt is None:
            return done
        now = self._store.clock.now()
        answers = [
            outcomes.second_answer(op, answer, self._peek, now, doubt)
            for op, answer in zip(requests, done.answers, strict=True)
        ]
        return done._replace(answers=answers)

    def _peek(self, tube: str, task_id: TaskId) -> Record | None:
        answer = self.perform((ops.Peek(tube, task_id),), strict=False).answers[0]
        return answer if isinstance(answer, Record) else None

    # -- grants whose reply was lost ---------------------------------------------------------------

    def count_from_now(self, connection: Connection | None = None) -> None:
        """What a session that is joined now holds was granted to somebody else, and is not lost."""
        connection = connection or self._connections.main()
        row = connection.execute(f"select last_value from {self._store.schema}.tokens").fetchone()
        self.grants.highest = max(self.grants.highest or 0, row[0] if row else 0)

    def refund(self, work: Work, sessions: dict[str, int]) -> set[str]:
        """Give back what was granted to these sessions in replies that got lost; answers the tubes.

        The number of a session is how many queues of this process use it: what others use too is left alone.
        """
        self.grants.looked()
        answer = split(
            work.rows(
                f"select * from {self._store.schema}.refund"
                "(%s::bigint, %s::int[], %s::uuid[], %s::int[], %s, %s::bigint[])",
                (
                    *(work.context.now, work.context.listened, list(sessions), list(sessions.values())),
                    *(self.grants.after, self.grants.known),
                ),
            )
        )
        work._steps(answer.steps)
        numbers = {row[TUBE] for row in answer.rows if row[INFO] == "refunded" and row[AT]}
        return self._store.names_of(numbers)

    # -- transactions of the caller's --------------------------------------------------------------

    @contextmanager
    def decided(self, connection: Connection) -> Iterator[None]:
        """A transaction. When the reply to its commit is lost the server is asked what became of it."""
        mark: tuple[str, int] | None = None
        asked = False
        try:
            with connection.transaction():
                yield
                mark = self._mark(connection)
                asked = True
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if not is_broken(connection):
                raise refused(error) from error
            if not asked:
                raise _gave_up(first_line(error)) from error
            if mark is not None and not self._was_committed(*mark, first_line(error)):
                raise _gave_up(first_line(error)) from error

    def _mark(self, connection: Connection) -> tuple[str, int] | None:
        """The transaction's number and the run's; None if it has written nothing."""
        if connection.info.transaction_status == TransactionStatus.INERROR:
            raise EngineUnavailable("a statement of this transaction has failed: nothing of it was done")
        row = connection.execute(
            f"select pg_current_xact_id_if_assigned()::text, epoch from {self._store.schema}.store"
        ).fetchone()
        return None if row is None or row[0] is None else (row[0], row[1])

    def _was_committed(self, xid: str, epoch: int, why: str) -> bool:
        pauses = self._connections.pauses()
        while True:
            try:
                with self._connections.borrowed() as connection:
                    row = connection.execute(
                        f"select pg_xact_status(%s::xid8), epoch from {self._store.schema}.store",
                        [xid],
                    ).fetchone()
            except psycopg.Error as error:
                if not isinstance(error, psycopg.OperationalError):
                    raise outcomes.unknown(why) from error
                row = ("in progress", epoch)
            except EngineUnavailable:
                raise outcomes.unknown(why) from None
            # In another run the number may have been given to another transaction: the server has crashed, or is
            # another one.
            if row is None or row[1] != epoch or row[0] is None:
                raise outcomes.unknown(why)
            if row[0] != "in progress":
                return bool(row[0] == "committed")
            if not pauses.wait():
                raise outcomes.unknown(why)


def _gave_up(why: str) -> EngineUnavailable:
    return EngineUnavailable(f"the connection to PostgreSQL broke ({why}); nothing was done")
