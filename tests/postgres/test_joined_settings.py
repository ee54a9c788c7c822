"""transaction=: which connections of psycopg are fit for it, and that what is set on them does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import class_row, dict_row
from tests.support import postgres
from tests.support.invariants import check

import penstock
from penstock import AccessDenied, DuplicateKey, NotWritable, UsageError
from penstock.engines.postgres.place import Place

Connection = psycopg.Connection[Any]


@pytest.fixture
def url(warm: str) -> str:
    return warm


@pytest.fixture
def q(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url, session_ttl=1000) as queue:  # a sign of life on its way would hold back the history
        yield queue
        check(url)


@pytest.fixture
def jobs(q: penstock.Queue) -> penstock.Tube:
    return q.create_tube("jobs")


@pytest.fixture
def own(url: str) -> Iterator[Connection]:
    """A connection of the caller's on the queue's database, with a table of the caller's."""
    with psycopg.connect(Place.parse(url).conninfo) as connection:
        connection.execute("create temporary table orders (id integer primary key, note text)")
        connection.commit()
        yield connection
        if not connection.closed:
            connection.rollback()


@pytest.fixture
def other(url: str) -> Iterator[Connection]:
    with psycopg.connect(Place.parse(url).conninfo, options="-c lock_timeout=60s") as connection:
        yield connection
        connection.rollback()


def data(tube: penstock.Tube) -> list[Any]:
    return [task.data for task in tube.tasks()]


def orders(connection: Connection) -> int:
    row = psycopg.Cursor(connection).execute("select count(*) from orders").fetchone()
    assert row is not None
    return row[0]


# -- connections that are not fit ----------------------------------------------------------------------


def test_a_connection_in_autocommit_needs_a_transaction_block(jobs, own):
    own.autocommit = True
    with pytest.raises(UsageError, match=r"with connection.transaction\(\)"):
        jobs.put("x", transaction=own)
    with own.transaction():
        jobs.put("block", transaction=own)
    own.execute("begin")
    jobs.put("by hand", transaction=own)
    own.execute("commit")
    assert data(jobs) == ["block", "by hand"]


def test_a_transaction_that_has_failed_takes_nothing(jobs, own):
    with pytest.raises(psycopg.errors.DivisionByZero):
        own.execute("select 1 / 0")
    with pytest.raises(UsageError, match="roll it back"):
        jobs.put("x", transaction=own)
    own.rollback()
    jobs.put("y", transaction=own)
    own.commit()
    assert data(jobs) == ["y"]


def test_a_closed_connection_is_refused(jobs, own):
    own.close()
    with pytest.raises(UsageError, match="closed"):
        jobs.put("x", transaction=own)


def test_a_connection_that_the_server_has_ended_is_unavailable(jobs, own, other):
    jobs.put("x", transaction=own)
    other.execute("select pg_terminate_backend(%s, 60000)", [own.info.backend_pid])
    with pytest.raises(penstock.EngineUnavailable) as caught:
        jobs.put("y", transaction=own)
    assert caught.value.outcome == "not_done"
    assert data(jobs) == []


def test_a_transaction_that_can_only_read_is_refused_and_goes_on(jobs, own):
    own.read_only = True
    with pytest.raises(NotWritable):
        jobs.put("x", transaction=own)
    assert orders(own) == 0
    own.rollback()


def test_a_transaction_of_two_phases_is_refused(jobs, own):
    own.tpc_begin(own.xid(1, "g", "b"))
    with pytest.raises(UsageError, match="two phases"):
        jobs.put("x", transaction=own)
    own.tpc_rollback()


def test_a_connection_to_another_database_is_refused_and_goes_on(url, q, jobs):
    server = postgres.shared_server()
    server.create_database("another")
    with psycopg.connect(server.url("another")) as stranger:
        with pytest.raises(UsageError, match="another"):
            jobs.put("x", transaction=stranger)
        assert stranger.execute("select 1").fetchone() == (1,)
    schema = Place.parse(url).schema
    with penstock.connect(server.url("another", schema=schema)) as twin:
        twin.create_tube("jobs")
        with psycopg.connect(server.url("another")) as stranger:
            with pytest.raises(UsageError, match="another"):
                jobs.put("x", transaction=stranger)
            twin.tube("jobs").put("there", transaction=stranger)
        assert data(twin.tube("jobs")) == ["there"]
    server.drop_database("another")
    assert data(jobs) == []


def test_a_role_without_rights_is_refused_and_goes_on(url, jobs, own):
    own.execute("create role stranger")
    own.execute("set local role stranger")
    with pytest.raises(AccessDenied, match="usage"):
        jobs.put("x", transaction=own)
    assert own.execute("select 1").fetchone() == (1,)
    own.rollback()


@pytest.mark.parametrize("thing", ["tx", *(pytest.param(it, marks=pytest.mark.exhaustive) for it in (5, object()))])
def test_what_is_no_connection_is_refused(jobs, own, thing):
    with pytest.raises(UsageError, match=type(thing).__name__):
        jobs.put(1, transaction=thing)
    with pytest.raises(UsageError, match="Cursor"):
        jobs.put(1, transaction=own.cursor())


# -- whatever the caller has set -----------------------------------------------------------------------


class Order:
    def __init__(self, id: int) -> None:
        self.id = id


SETTINGS = [
    "set search_path = ''",
    "set search_path = pg_temp, public",
    "set datestyle = 'German'",
    "set intervalstyle = 'sql_standard'",
    "set standard_conforming_strings = off",
    "set client_encoding = 'SQL_ASCII'",
    "set client_encoding = 'LATIN1'",
    "set bytea_output = 'escape'",
    "set timezone = 'Pacific/Chatham'",
    "set extra_float_digits = -15",
    "set array_nulls = off",
    "set transform_null_equals = on",
    "set default_transaction_isolation = 'serializable'",
    "set enable_indexscan = off",
    "set plan_cache_mode = 'force_custom_plan'",
]


# Most of them at once, and then those of which only one can be set at a time.
TOGETHER = [
    pytest.param("; ".join(it for it in SETTINGS if it not in (SETTINGS[1], SETTINGS[5])), id="most at once"),
    pytest.param(f"{SETTINGS[1]}; {SETTINGS[5]}", id="the others at once"),
]


@pytest.mark.parametrize(
    "setting", [*TOGETHER, *(pytest.param(setting, marks=pytest.mark.exhaustive) for setting in SETTINGS)]
)
def test_settings_of_the_callers_connection_do_not_matter(q, own, setting):
    jobs = q.create_tube("jobs", history=True, keep=True)
    raw = q.create_tube("raw", payload="bytes")
    own.execute(setting)
    own.commit()
    text = "naïve ☃ 'quoted' \\ back \\u0041 \U0001f600"
    task = jobs.put({text: [text, None, 1.5]}, key=text, lane=text, transaction=own)
    assert (task.data, task.key, task.lane) == ({text: [text, None, 1.5]}, text, text)
    assert raw.put(b"\x00\\x\xff'", transaction=own).data == b"\x00\\x\xff'"
    with pytest.raises(DuplicateKey):
        jobs.put(1, key=text, transaction=own)
    own.commit()
    held = jobs.take()
    assert held.ack(result=text, transaction=own).result == text
    own.commit()
    assert jobs.peek(held.id).result == text
    assert [event.event for event in q.history()] == ["put", "take", "ack"]
    assert raw.take().data == b"\x00\\x\xff'"


def test_row_factories_cursors_and_adapters_of_the_caller_do_not_matter(jobs, own):
    for factory in (dict_row, class_row(Order)):
        own.row_factory = factory
        jobs.put("row", transaction=own)
    own.cursor_factory = psycopg.ClientCursor
    jobs.put("client", transaction=own)
    own.cursor_factory = psycopg.RawCursor
    jobs.put("raw", transaction=own)
    own.cursor_factory = psycopg.Cursor
    own.adapters.register_dumper(bytes, psycopg.types.string.StrDumper)
    own.adapters.register_loader("bytea", psycopg.types.string.TextLoader)
    jobs.put("adapted", transaction=own)
    own.commit()
    assert data(jobs) == ["row", "row", "client", "raw", "adapted"]


def test_nothing_is_left_behind_on_the_callers_connection(jobs, own):
    ask = "select name, setting from pg_settings where source = 'session' order by name"
    before = own.execute(ask).fetchall()
    own.commit()
    for _ in range(10):
        jobs.put("x", transaction=own)
        own.commit()
    assert own.execute(ask).fetchall() == before
    assert own.execute("select name, statement from pg_prepared_statements").fetchall() == []
    assert own.execute(
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
    ).fetchone() == (0,)


def test_a_put_in_a_pipeline_is_part_of_it(jobs, own):
    with own.pipeline():
        own.execute("insert into orders values (1, 'x')")
        jobs.put("a", transaction=own)
        own.execute("insert into orders values (2, 'y')")
    own.commit()
    assert (orders(own), data(jobs)) == (2, ["a"])


@pytest.mark.parametrize("kind", ["fifo", pytest.param("utube", marks=pytest.mark.exhaustive), "standard"])
@pytest.mark.parametrize("level", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_puts_and_acks_in_a_stricter_isolation(q, own, kind, level):
    jobs = q.create_tube("jobs", kind)
    own.isolation_level = psycopg.IsolationLevel[level]
    jobs.put("held")
    task = jobs.take()
    orders(own)
    jobs.put("between")
    jobs.put("mine", transaction=own)
    task.ack(transaction=own)
    own.commit()
    assert sorted(data(jobs)) == ["between", "mine"]
    assert len(jobs.take_many(10)) in (1, 2)


def test_a_key_that_a_stricter_transaction_cannot_see_is_the_servers_refusal(q, own):
    jobs = q.create_tube("jobs")
    own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    orders(own)
    jobs.put("theirs", key="k")
    with pytest.raises(psycopg.errors.SerializationFailure):
        jobs.put("mine", key="k", transaction=own)
    own.rollback()
    with pytest.raises(DuplicateKey):
        jobs.put("mine", key="k", transaction=own)
