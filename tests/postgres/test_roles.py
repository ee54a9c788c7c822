"""Roles of the database: what each may call, and that nothing else of it gets through."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.postgres.psql import Psql
from tests.support import postgres

import penstock
from penstock.engines.postgres import migrations, templates

DENIED = psycopg.errors.InsufficientPrivilege
CALLS = {
    "put": "penstock.put('jobs', '1')",
    "put_many": "penstock.put_many('jobs', '[1]')",
    "put_entries": """penstock.put_entries('jobs', '[{"data": 1}]')""",
    "cancel": "penstock.cancel('jobs', '1')",
    "new_session": "penstock.new_session()",
    "keep_alive": "penstock.keep_alive(null)",
    "end_session": "penstock.end_session(null)",
    "take": "penstock.take('jobs')",
    "touch": "penstock.touch('jobs', '1', 1)",
    "switch": "penstock.switch('jobs', '1', 'ready')",
    "add_retries": "penstock.add_retries('jobs', 1)",
    "tubes": "penstock.tubes()",
    "tasks": "penstock.tasks()",
    "statistics": "penstock.statistics()",
    **{name: f"penstock.{name}('jobs', '1')" for name in ("peek", "dig", "delete", "snatch", "restart")},
    **{name: f"penstock.{name}('jobs', '1')" for name in ("ack", "release", "bury", "fail")},
    **{name: f"penstock.{name}('jobs')" for name in ("lanes", "kick", "plow", "release_all")},
}
RIGHTS = {
    "read": {"peek", "tasks", "statistics", "tubes", "lanes"},
    "put": {"put", "put_many", "put_entries", "cancel"},
    "take": {"new_session", "keep_alive", "end_session", "take", "ack", "release", "bury", "fail", "touch"},
    "admin": set(CALLS),
}
_names = itertools.count()


@pytest.fixture
def url(warm: str) -> str:
    return warm


@pytest.fixture
def q(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url) as queue:
        queue.create_tube("jobs").put("first")
        yield queue


@pytest.fixture
def owner(q: penstock.Queue, url: str) -> Iterator[Psql]:
    psql = Psql(url)
    with psql.connection:
        yield psql


@pytest.fixture
def login(owner: Psql, url: str) -> Iterator[Callable[..., Psql]]:
    """Makes roles with rights and connects as them."""
    made: list[Psql] = []

    def make(*rights: str) -> Psql:
        role = f'Odd "role{next(_names)}'
        owner.connection.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
        for right in rights:
            owner.one("select penstock.allow(%s, %s)", role, right)
        made.append(Psql(url, role))
        return made[-1]

    yield make
    for psql in made:
        role = sql.Identifier(psql.connection.info.user)
        psql.connection.close()
        owner.connection.execute(sql.SQL("drop owned by {}; drop role {}").format(role, role))


def may(psql: Psql, call: str) -> bool:
    """Whether a call gets as far as its own checks."""
    try:
        with psql.connection.transaction(force_rollback=True):
            psql.rows(f"select {call}")
    except DENIED:
        return False
    except psycopg.Error as error:
        if not (error.sqlstate or "").startswith("PS"):
            raise
    return True


@pytest.mark.parametrize("right", RIGHTS)
def test_a_right_lets_a_role_call_what_it_says_and_no_more(login, right):
    role = login(right)
    assert {name for name, call in CALLS.items() if may(role, call)} == RIGHTS[right]
    assert set(CALLS) == set(migrations.public())


def test_a_role_without_rights_may_nothing(login, q):
    role = login()
    q.create_tube("later").put(1)
    assert not any(may(role, call) for call in CALLS.values())


@pytest.mark.parametrize(
    "right", [pytest.param(right, marks=() if right == "admin" else pytest.mark.exhaustive) for right in RIGHTS]
)
def test_no_right_reaches_tables_or_what_is_behind_the_functions(login, owner, q, right):
    role = login(right)
    q.create_tube("later", "utubettl", id="uuid").put(1)
    schema = templates.quoted(owner.schema)
    functions = owner.rows(
        "select distinct proname from pg_proc where pronamespace = %s::regnamespace "
        "and has_function_privilege(%s, oid, 'execute')",
        schema,
        role.connection.info.user,
    )
    assert {name for (name,) in functions} == RIGHTS[right]
    tables = owner.rows(
        "select relname from pg_class where relnamespace = %s::regnamespace and relkind in ('r', 'S') "
        "and (has_table_privilege(%s, oid, 'select, insert, update, delete') "
        "or exists (select from aclexplode(relacl) given where given.grantee <> relowner))",
        schema,
        role.connection.info.user,
    )
    assert tables == []
    for statement in (
        "select * from penstock.tubes",
        "delete from penstock.events",
        "select * from penstock.sessions",
    ):
        with pytest.raises(DENIED):
            role.rows(statement)
    with pytest.raises(DENIED):
        role.rows("create function penstock.mine() returns integer language sql as 'select 1'")
    with pytest.raises(DENIED):
        role.rows("select penstock.allow(current_user, 'admin')")


def test_a_right_can_be_taken_back(login, owner):
    role = login("put", "read")
    owner.one("select penstock.forbid(%s, 'put')", role.connection.info.user)
    assert not may(role, CALLS["put"]) and may(role, CALLS["tasks"])
    with pytest.raises(psycopg.Error, match="a right is one of") as caught:
        owner.one("select penstock.allow('postgres', 'everything')")
    assert caught.value.sqlstate == "PS064"


def test_what_is_read_tells_no_session_and_no_token(login, owner, q):
    task = q.tube("jobs").take()
    reader = login("read")
    shown = str(reader.rows("select * from penstock.tasks()") + reader.rows("select penstock.peek('jobs', '1')"))
    assert str(task.token) not in shown and q.identify() not in shown


def test_a_producer_and_a_worker_know_only_their_side(login, q):
    producer, worker = login("put"), login("take")
    producer.one("select penstock.put('jobs', '{\"n\": 2}', pri => -1)")
    session = worker.one("select penstock.new_session('worker')")
    id, data, token = worker.one("select id, data, token from penstock.take('jobs', session => %s)", session)
    assert data == {"n": 2}
    assert worker.one("select state from penstock.ack('jobs', %s, %s, %s)", id, token, session) == "done"
    assert [task.data for task in q.tube("jobs").tasks()] == ["first"]


OPERATORS = [
    ("=", "text", "text"),
    ("<>", "bigint", "bigint"),
    ("<", "bigint", "integer"),
    (">=", "bigint", "bigint"),
    ("->>", "jsonb", "text"),
    ("~", "text", "text"),
]
FUNCTIONS = (
    "now_us(p_now bigint) returns bigint",
    "format(a text, b integer) returns text",
    "clock_timestamp() returns timestamptz",
    "jsonb_typeof(a jsonb) returns text",
    "pg_notify(a text, b text) returns void",
    "nextval(a regclass) returns bigint",
)


def test_nothing_in_the_callers_path_is_run_by_the_owner(login, owner, q):
    role = login("put", "take", "read")
    name = role.connection.info.user
    own = sql.Identifier(f"{owner.schema} of a caller")
    owner.connection.execute(sql.SQL("create schema {} authorization {}").format(own, sql.Identifier(name)))
    trap = " language plpgsql as $$ begin raise 'hijacked'; end $$"
    for place in (own, sql.SQL("pg_temp")):
        for number, (operator, left, right) in enumerate(OPERATORS):
            names = [place, sql.SQL(f"trap{number}(a {left}, b {right})")]
            role.connection.execute(sql.SQL("create function {}.{} returns boolean" + trap).format(*names))
            made = f"(leftarg = {left}, rightarg = {right}, function = "
            names = [place, sql.SQL(operator), sql.SQL(made), place, sql.SQL(f"trap{number})")]
            role.connection.execute(sql.SQL("create operator {}.{} {}{}.{}").format(*names))
        for function in FUNCTIONS:
            role.connection.execute(sql.SQL("create function {}.{}" + trap).format(place, sql.SQL(function)))
    for table in ("tubes", "sessions", "store", "pg_class"):
        role.connection.execute(f"create temporary table {table} (number integer, name text, version bigint)")
    role.connection.execute(sql.SQL("set search_path = {}, pg_temp, pg_catalog, public").format(own))
    with pytest.raises(psycopg.Error, match="hijacked"):
        role.connection.execute("select 'a'::text = 'a'::text")
    use_everything(role)
    owner.connection.execute(sql.SQL("drop schema {} cascade").format(own))


def use_everything(role: Psql) -> None:
    role.rows(
        "select penstock.put('jobs', '1', lane => 'a', delay => 0, ttl => 5000, key => 'k', on_conflict => 'ignore')"
    )
    session = role.rows("select penstock.new_session('x')")[0][0]
    (row,) = role.rows("select penstock.take('jobs', session => %s)", session)
    assert "first" in str(row)
    assert role.rows("select penstock.keep_alive(%s)", session) == [([],)]
    role.rows("select penstock.release('jobs', '1', session => %s)", session)
    assert len(role.rows("select penstock.tasks('jobs')")) == 2
    assert len(role.rows("select penstock.statistics()")) == 1
    role.rows("select penstock.end_session(%s)", session)


def connecting(url: str, role: Psql) -> Any:
    return penstock.connect(
        url.replace("postgres@", f"{role.connection.info.user.replace(' ', '%20').replace(chr(34), '%22')}@")
    )


@pytest.mark.parametrize("rights", [(), ("put",), ("admin",)], ids=str)
def test_python_says_what_a_role_lacks(login, url, rights):
    role = login(*rights)
    with pytest.raises(penstock.AccessDenied, match=r"may not use or make the schema .*; connect as its owner"):
        connecting(url, role)


def test_python_is_not_misled_by_a_right_to_read_tables(login, owner, url):
    role = login("read")
    names = [sql.Identifier(owner.schema), sql.Identifier(role.connection.info.user)]
    owner.connection.execute(sql.SQL("grant select on all tables in schema {} to {}").format(*names))
    with pytest.raises(penstock.AccessDenied, match="permission denied for table"):
        connecting(url, role)


def test_a_member_of_the_owner_may_use_python(owner, login, url):
    role = login()
    names = [sql.Identifier(role.connection.info.user)]
    owner.connection.execute(sql.SQL("grant postgres to {}").format(*names))
    owner.connection.execute(sql.SQL("alter role {} set role postgres").format(*names))
    with connecting(url, role) as q:
        q.create_tube("more").put(1)
        assert q.tube("more").take().data == 1
    owner.connection.execute(sql.SQL("revoke postgres from {}").format(*names))


def test_a_role_that_may_not_make_the_schema_is_told_who_may(login):
    role = login()
    with pytest.raises(penstock.AccessDenied, match=r"python -m penstock\.engines\.postgres\.migrate"):
        connecting(postgres.place(), role)
