"""The least that a queue on PostgreSQL can be: a table and three statements, each a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import set_json_loads

from bench.pg_phase import SIZE, payload
from bench.pg_server import Place

NAME = "plain statements"
WEAK = "same, weak takes"
NOTE = (
    "a table with (pri, id) indexed where ready; INSERT .. RETURNING, UPDATE .. FROM a locked row, DELETE by id and "
    "token, prepared, by psycopg on one connection in autocommit; batches by COPY and arrays. No attempts, ttl, ttr, "
    "delays, lanes, limits, keys, sessions, wake-ups or statistics; COPY answers no ids"
)
TABLE = """
create table tasks (
    id bigserial primary key,
    pri int not null default 0,
    state "char" not null default 'r',
    token bigint,
    data jsonb not null
);
create index on tasks (pri, id) where state = 'r';
create sequence tokens;
"""
PUT = "insert into tasks (data) values (%s::jsonb) returning id"
TAKE = """
with next as materialized (
    select id from tasks where state = 'r' order by pri, id limit 1 for update skip locked
)
update tasks set state = 't', token = nextval('tokens') from next where tasks.id = next.id
returning tasks.id, tasks.token, tasks.data
"""
# Penstock's takes do not wait for the disk; this is a take that does not either.
WEAK_TAKE = TAKE.replace(
    "where state", "where (select set_config('synchronous_commit', 'off', true)) = 'off' and state"
)
TAKE_MANY = TAKE.replace("limit 1", f"limit {SIZE}")
ACK = "delete from tasks where id = %s and token = %s"
ACK_MANY = "delete from tasks where id = any(%s) and token = any(%s)"
# While the table is small the planner would read all of it for a batch, and keep that plan when it has grown.
PLANS = "set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off; set enable_mergejoin = off"
COPY = "copy tasks (data) from stdin"
Taken = tuple[int, int, Any]


class Plain:
    """One connection. A taken task is its id, its token and its data."""

    def __init__(self, connection: psycopg.Connection[Any], take: str = TAKE) -> None:
        self._take = take
        set_json_loads(msgspec.json.decode, connection)
        connection.execute(PLANS)
        self._cursor = connection.cursor(binary=True)

    def put(self, n: int) -> int:
        found = self._cursor.execute(PUT, (msgspec.json.encode(payload(n)).decode(),), prepare=True).fetchone()
        assert found is not None
        return int(found[0])

    def take(self) -> Taken | None:
        return self._cursor.execute(self._take, prepare=True).fetchone()

    def ack(self, task: Taken) -> None:
        if self._cursor.execute(ACK, task[:2], prepare=True).rowcount != 1:
            raise AssertionError("the task is not ours any more")

    def put_many(self, numbers: range) -> None:
        # Nothing in these payloads needs an escape but a backslash could.
        lines = b"\n".join([msgspec.json.encode(payload(n)) for n in numbers]).replace(b"\\", b"\\\\")
        with self._cursor.copy(COPY) as copy:
            copy.write(lines + b"\n")

    def take_many(self, size: int) -> list[Taken]:
        assert size == SIZE, "the number is part of the statement, as it is known to the planner then"
        return self._cursor.execute(TAKE_MANY, prepare=True).fetchall()

    def ack_many(self, tasks: list[Taken]) -> None:
        ids, tokens = [task[0] for task in tasks], [task[1] for task in tasks]
        if self._cursor.execute(ACK_MANY, (ids, tokens), prepare=True).rowcount != len(tasks):
            raise AssertionError("some tasks are not ours any more")


def create(place: Place) -> None:
    place.create()
    with place.connect() as connection:
        connection.execute(TABLE)


@contextmanager
def line(place: Place, take: str = TAKE) -> Iterator[Plain]:
    create(place)
    with place.connect() as connection:
        yield Plain(connection, take)
