"""Transactions on connections of ours, and how those begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from penstock.engines.line import raised
from penstock.engines.postgres.connections import refused
from penstock.engines.postgres.work import Work
from penstock.engines.transactor import Transactor
from penstock.model import ops
from penstock.model.errors import UsageError

if TYPE_CHECKING:
    from penstock.engines.postgres.store import PostgresStore

R = TypeVar("R")
Connection = psycopg.Connection[Any]
# Statements are written for standard strings, in functions too.
# `strict` must not depend on a server that does not sync unless asked; the stricter levels are the server's choice.
# Lanes are judged by what a statement sees that began after the lock: a snapshot of the whole transaction will not do.
BEGINNING = """
    select pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
        case when current_setting('standard_conforming_strings') = 'off'
            then set_config('standard_conforming_strings', 'on', false) end,
        case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', false) end,
        case when current_setting('default_transaction_isolation') <> 'read committed'
            then set_config('default_transaction_isolation', 'read committed', false) end
"""


class PostgresTransactor(Transactor):
    """q.transaction(): a connection of ours that the caller decides about."""

    def __init__(self, store: PostgresStore, connection: Connection) -> None:
        self.store: PostgresStore = store
        self.connection = connection
        self.works: list[Work] = []

    def execute(self, op: ops.Op[R]) -> R:
        if self.ended:
            raise UsageError("this transaction has ended; begin another with q.transaction()")
        work = Work(self.store, self.connection, relaxed=False, joined=True)
        self.works.append(work)
        try:
            result: R = raised(self.store._answered(work, op))
        except psycopg.Error as error:
            raise refused(error) from error
        return result
