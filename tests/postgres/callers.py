"""Callers as they are in different processes: each with a connection and a session of its own, and nothing shared.

A store performs what the threads of one process ask in groups, on one connection. To have many connections at work at
once without as many processes, a caller here sends the same statements as a store does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from penstock.engines.postgres import templates, tubes
from penstock.engines.postgres.answers import Tube
from penstock.engines.postgres.place import Place
from penstock.engines.postgres.work import Work
from penstock.model import ops
from penstock.model.clock import SystemClock
from penstock.model.errors import PenstockError
from penstock.model.session import Session, new_session
from penstock.model.task import Draft, Record

SECOND = 1_000_000


class Caller:
    """One connection and one session on one tube."""

    def __init__(self, url: str, tube: str, session_ttl: int = 60 * SECOND) -> None:
        self.place = Place.parse(url)
        self.schema = templates.quoted(self.place.schema)
        self.session: Session = new_session(session_ttl)
        self.clock = SystemClock()
        self._name = tube
        self._known: Tube | None = None
        self.connection: psycopg.Connection[Any] = self._open()

    def _open(self) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = psycopg.connect(self.place.conninfo, autocommit=True)
        connection.prepare_threshold = 1
        return connection

    @property
    def number(self) -> int:
        return self.known(self._name, self.connection).number

    # -- what the work of a store asks of it ---------------------------------------------------------------

    def known(self, name: str, connection: psycopg.Connection[Any], fresh: bool = False) -> Tube:
        if self._known is None or fresh:
            self._known = tubes.existing(connection, self.schema, name)
        return self._known

    def forget(self, name: str) -> None:
        self._known = None

    def config_of(self, number: int) -> None:
        return None

    def kept(self) -> list[str]:
        return [self.session.uuid]

    def listened(self) -> list[int]:
        return []

    def awaited(self) -> set[str]:
        return set()

    # -- connection and session ----------------------------------------------------------------------------

    def new_session(self, session_ttl: int = 60 * SECOND) -> None:
        self.session = new_session(session_ttl)

    def break_off(self) -> None:
        """Close the connection in the middle of whatever goes on, and open another."""
        self.connection.close()
        self.connection = self._open()

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """The caller's own transaction, as q.transaction() begins one."""
        with self.connection.transaction():
            yield

    def do(self, op: ops.Op[Any], joined: bool = False) -> Any:
        """Perform an op; raises what it is refused with.

        SKIP LOCKED does wait for a row that somebody updated in that very moment and somebody else has locked since,
        so PostgreSQL may find a circle after all. The engine repeats such a call, and so does this.
        """
        while True:
            try:
                return Work(self, self.connection, True, joined).answer(op)  # type: ignore[arg-type]
            except psycopg.errors.DeadlockDetected:
                if joined or self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    raise

    def circles(self) -> int:
        """How many circles of waiting PostgreSQL has found in this database."""
        asked = "select deadlocks from pg_stat_database where datname = current_database()"
        row = self.connection.execute(asked).fetchone()
        assert row is not None
        return int(row[0])

    def shape(self, op: ops.Op[Any]) -> Any:
        """Ops that change a tube: several statements in one transaction, which is repeated as do() does it."""
        while True:
            try:
                with self.connection.transaction():
                    return self.do(op)
            except psycopg.errors.DeadlockDetected:
                pass

    # -- verbs ---------------------------------------------------------------------------------------------

    def put(self, *drafts: Draft, joined: bool = False) -> list[Record]:
        placed = self.do(ops.Put(self._name, drafts), joined)
        for one in placed:
            if isinstance(one, PenstockError):
                raise one
        return [one.record for one in placed]

    def take(self, n: int = 1, ttr: int | None = None, lane: str | None = None) -> list[Record]:
        return self.do(ops.Take(self._name, n, self.session, ttr, lane)) or []

    def ack(self, *records: Record, joined: bool = False) -> list[Any]:
        """What became of each: an error, or what is no error."""
        items = tuple(ops.Finish(lease(record)) for record in records)
        return self.do(ops.Ack(self._name, items, self.session), joined)

    def release(self, record: Record, **options: Any) -> Record:
        return self.do(ops.Release(self._name, lease(record), self.session, **options))

    def bury(self, record: Record) -> Record:
        return self.do(ops.Bury(self._name, lease(record), self.session))

    def kick(self, n: int | None) -> int:
        return self.do(ops.Kick(self._name, n))

    def delete(self, task_id: Any) -> Record:
        return self.do(ops.Delete(self._name, task_id))

    def release_all(self) -> int:
        return self.do(ops.ReleaseAll(self._name))

    def end_session(self) -> int:
        return self.do(ops.EndSession(self.session))

    def tick(self) -> int | None:
        return self.do(ops.Tick())


def lease(record: Record) -> ops.Lease:
    return ops.Lease(record.id, record.token)
