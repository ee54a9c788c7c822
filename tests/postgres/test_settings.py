"""What a database, a role or the environment sets for its clients does not matter, or is refused by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.support.postgres import Server, shared_server, until

import penstock
from penstock.engines.postgres import migrate

_names = itertools.count()
TEXT = "é😀\\'\""


@pytest.fixture
def database() -> Iterator[str]:
    name = f"settings{next(_names)}"
    shared_server().create_database(name)
    yield name
    shared_server().drop_database(name)


def order(text: str, **names: Any) -> None:
    """A statement of the administrator's."""
    with shared_server().connect() as connection:
        connection.execute(sql.SQL(text).format(**{key: sql.Identifier(name) for key, name in names.items()}))


def use(url: str) -> None:
    with penstock.connect(url) as q:
        jobs = q.create_tube("jobs", history=True, keep=True)
        jobs.put({TEXT: TEXT}, lane=TEXT, key=TEXT)
        jobs.load([TEXT])
        task = jobs.take(lane=TEXT)
        assert (task.data, task.lane, task.key) == ({TEXT: TEXT}, TEXT, TEXT)
        task.ack(result=TEXT)
        assert jobs.peek(task.id).result == TEXT
        other = jobs.take()
        assert other.data == TEXT
        other.fail(f"Odd: {TEXT}")
        with q.transaction() as tx:
            jobs.put(TEXT, transaction=tx)
        assert jobs.statistics().tasks["total"] == 2
        q.create_tube("named", id="required").put(1, id=(TEXT, 1))
        assert q.tube("named").take().id == (TEXT, 1)


def test_the_encoding_of_clients_is_ours(database, monkeypatch):
    order("alter database {name} set client_encoding = 'LATIN1'", name=database)
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    use(shared_server().url(database, client_encoding="LATIN1"))
    with penstock.connect(shared_server().url(database)) as q:
        listening = q._engine.store._connections.connect()
        assert listening.execute("show client_encoding").fetchone() == ("UTF8",)
        q._engine.store._connections.drop(listening)


def test_strings_are_standard_ones(database):
    order("alter database {name} set standard_conforming_strings = off", name=database)
    use(shared_server().url(database))


@pytest.mark.parametrize("by_hand", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_the_schema_is_made_where_strings_are_not_standard_ones(database, by_hand):
    order("alter database {name} set standard_conforming_strings = off", name=database)
    url = shared_server().url(database)
    if by_hand:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(migrate.run(url, only_script=True).encode())
    else:
        migrate.run(url)
    use(url)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", pytest.param("EUC_JP", marks=pytest.mark.exhaustive)])
def test_a_database_of_another_encoding_is_refused(encoding):
    name = f"settings_{encoding.lower()}"
    order(f"create database {{name}} encoding '{encoding}' locale 'C' template template0", name=name)
    try:
        url = shared_server().url(name)
        for use_it in (penstock.connect, migrate.run):
            with pytest.raises(penstock.UsageError, match=f"encoding {encoding}.*encoding 'UTF8' template template0"):
                use_it(url)
        with shared_server().connect(name) as connection:
            assert connection.execute("select to_regnamespace('penstock')").fetchone() == (None,)
    finally:
        shared_server().drop_database(name)


def test_a_database_that_is_for_reading_names_the_setting(database):
    url = shared_server().url(database)
    with penstock.connect(url) as q:
        q.create_tube("jobs").put("there")
    order("alter database {name} set default_transaction_read_only = on", name=database)
    with pytest.raises(penstock.NotWritable, match=r"default_transaction_read_only is on.*connect again"):
        penstock.connect(url)
    order("alter database {name} set default_transaction_read_only = off", name=database)
    with penstock.connect(url) as q:
        assert q.tube("jobs").take().data == "there"


@pytest.mark.exhaustive  # a database that becomes one is in the tests of recovery
def test_a_server_that_becomes_one_for_reading_names_the_setting(servers):
    server = servers.enter_context(Server.start())
    with penstock.connect(server.url()) as q:
        jobs = q.create_tube("jobs")
        jobs.put("before")
        server.configure(default_transaction_read_only="on")
        with pytest.raises(penstock.NotWritable, match="default_transaction_read_only is on"):
            # A connection reads the settings again between two statements, at its own time.
            until(lambda: not jobs.put(1), "it can still be written to")
        server.configure(default_transaction_read_only="off")
        until(lambda: q.state() == "RUNNING" and q._engine.writable, "it stays for reading")
        assert jobs.take().data == "before"


def test_an_owner_without_the_right_to_temporary_tables(database):
    order("revoke temporary on database {name} from public", name=database)
    role = f"{database}_owner"
    order("create role {role} login", role=role)
    order("grant create on database {name} to {role}", name=database, role=role)
    try:
        url = shared_server().url(database).replace("postgres@", f"{role}@")
        with penstock.connect(url) as q:
            jobs = q.create_tube("mine")
            jobs.put_many([penstock.Entry(data, lane="x") for data in range(3)])
            jobs.alter(lane_concurrency=1)
            assert [task.data for task in jobs.take_many(3)] == [0]
            jobs.alter(lane_concurrency=2, lane_rate=1 / 3, lane_pick="order")
            assert [task.data for task in jobs.take_many(3)] == [1]
            use(url)
    finally:
        shared_server().drop_database(database)
        order("drop role {role}", role=role)
