"""The schema: made step by step, the same whoever makes it and how often; functions that follow their source."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.crash.children import Wire, family
from tests.support import postgres

import penstock
from penstock.engines.postgres import migrate, migrations, templates, tubes
from penstock.model import ops
from penstock.model.ledger import Note
from penstock.model.tube import KINDS, new_tube

OPENERS = 5
HERE = migrations.VERSION
LATER = {
    "9998_later.sql": "create table @s.later (x integer); alter table @s.tubes add column later text default 'it''s';",
    "9999_last.sql": "create index later_x on @s.later (x); alter type @s.shown_task add attribute later text;",
}
SHAPES = {
    "columns": """
        select c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
            pg_get_expr(d.adbin, d.adrelid), c.relpersistence, c.reloptions
        from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = 'penstock'::regnamespace and c.relkind in ('r', 'c', 'v', 'S')
        order by c.relname, a.attname
    """,
    "constraints": """
        select conrelid::regclass::text, contypid::regtype::text, pg_get_constraintdef(oid) from pg_constraint
        where connamespace = 'penstock'::regnamespace order by 1, 2, 3
    """,
    "indexes": "select indexname, indexdef from pg_indexes where schemaname = 'penstock' order by 1",
    "functions": """
        select oid::regprocedure::text, pg_get_functiondef(oid), proacl::text from pg_proc
        where pronamespace = 'penstock'::regnamespace order by 1
    """,
}
_names = itertools.count()


@pytest.fixture(scope="module")
def filled() -> Iterator[str]:
    """The name of a database with the schema and tubes, for copies: to make them takes long."""
    name = "migrated"
    server = postgres.shared_server()
    server.create_database(name)
    connect_and_make(server.url(name))
    yield name
    server.drop_database(name)


@pytest.fixture
def database(filled: str) -> Iterator[Callable[..., str]]:
    """Makes databases, empty or filled: in all of them the schema has one name, so that they can be compared."""
    made = []

    def make(is_filled: bool = False) -> str:
        made.append(f"migrated{next(_names)}")
        postgres.shared_server().create_database(made[-1], filled if is_filled else None)
        return postgres.shared_server().url(made[-1])

    yield make
    for name in made:
        postgres.shared_server().drop_database(name)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Pretends that files of the package say something else."""
    real = templates.text

    def change(path: str, edit: Callable[[str], str]) -> None:
        before = templates.text
        monkeypatch.setattr(templates, "text", lambda name: edit(before(name)) if name == path else before(name))
        migrations.fingerprint.cache_clear()

    yield change
    monkeypatch.setattr(templates, "text", real)
    migrations.fingerprint.cache_clear()


def add_steps(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Pretend that this many steps have come later."""
    real = templates.text
    names = list(LATER)[:number]
    monkeypatch.setattr(templates, "text", lambda name: LATER.get(name.removeprefix("migrations/")) or real(name))
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, *names))
    monkeypatch.setattr(migrations, "VERSION", len(migrations.STEPS))


def ask(url: str, question: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question).fetchall()


def run(url: str, statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements)


def pretend(url: str, version: int, code: str, release: str) -> None:
    """Say in a store that another release has made it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update penstock.store set version = %s, code = %s, release = %s", [version, code, release])


def shape(url: str) -> dict[str, list[Any]]:
    return {name: ask(url, question) for name, question in SHAPES.items()}


def make_tubes(q: penstock.Queue) -> None:
    q.create_tube("jobs", lane_order="strict")
    q.create_tube("plain", "fifo", id="uuid")
    q.create_tube("late", "fifottl", id="time64", temporary=True)


def connect_and_make(url: str) -> None:
    with penstock.connect(url) as q:
        make_tubes(q)


def test_a_schema_made_step_by_step_equals_a_fresh_one(database, monkeypatch):
    stepwise, fresh, by_script = database(is_filled=True), database(), database()
    add_steps(monkeypatch, 1)
    assert migrate.run(stepwise).endswith(f"has version {HERE + 1}; it had {HERE}\n")
    monkeypatch.undo()
    add_steps(monkeypatch, 2)
    migrate.run(stepwise)
    connect_and_make(fresh)
    run(by_script, migrations.script("penstock"))
    connect_and_make(by_script)
    assert shape(stepwise) == shape(fresh) == shape(by_script)
    assert all(shape(fresh).values())


def test_a_schema_of_an_earlier_version_gains_ledgers(database, monkeypatch):
    old, fresh = database(), database(is_filled=True)
    monkeypatch.setattr(migrations, "STEPS", migrations.STEPS[:2])
    monkeypatch.setattr(migrations, "VERSION", 2)
    connect_and_make(old)
    monkeypatch.undo()
    with penstock.connect(old) as q:
        q._engine.execute(ops.WriteLedger("a", 0, ("x",)))
        assert q._engine.execute(ops.LastNotes("a")) == [Note(0, "x")]
    assert shape(old) == shape(fresh)


def test_a_script_for_an_old_schema_brings_its_tubes_along(database, monkeypatch, source):
    old, fresh = database(is_filled=True), database()
    source("tube/counts.sql", lambda text: text.replace("left join", "left outer join"))
    add_steps(monkeypatch, 2)
    run(old, migrate.run(old, only_script=True))
    connect_and_make(fresh)
    assert shape(old) == shape(fresh)


def test_what_is_up_to_date_is_left_alone(database):
    url = database(is_filled=True)
    with penstock.connect(url) as q:
        q.tube("jobs").put_many(list("abc"))
    before = shape(url), ask(url, "select oid, xmin from pg_proc where pronamespace = 'penstock'::regnamespace")
    assert migrate.run(url).endswith(f"it had {HERE}\n")
    with penstock.connect(url) as q:
        assert [task.data for task in q.tube("jobs").tasks()] == ["a", "b", "c"]
    assert before == (
        shape(url),
        ask(url, "select oid, xmin from pg_proc where pronamespace = 'penstock'::regnamespace"),
    )


def test_a_script_may_be_run_again(database):
    url = database(is_filled=True)
    with penstock.connect(url) as q:
        q.tube("jobs").put_many(list("abc"))
    before = shape(url)
    for _ in range(2):
        run(url, migrate.run(url, only_script=True))
    assert shape(url) == before
    with penstock.connect(url) as q:
        assert [q.tube("jobs").take().data for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.exhaustive  # functions of another shape, below, change too
def test_a_changed_function_reaches_stores_and_tubes_that_exist(database, source):
    url, fresh = database(is_filled=True), database()
    source("tube/counts.sql", lambda text: text.replace("language sql stable", "language sql stable cost 77"))
    source("functions/rules.sql", lambda text: text.replace("select 3153600000000000", "select 3153600000000000 + 0"))
    source("functions/api.sql", lambda text: text.replace("-- Give back", "-- Gives back"))
    with penstock.connect(url) as q:
        q.tube("plain").put(1)
    bodies = dict(ask(url, "select proname, prosrc from pg_proc where pronamespace = 'penstock'::regnamespace"))
    assert "+ 0" in bodies["forever"]
    costs = dict(ask(url, "select proname, procost from pg_proc where proname ~ '^totals_'"))
    assert set(costs.values()) == {77} and len(costs) == 3
    connect_and_make(fresh)
    assert shape(url) == shape(fresh)


def test_functions_of_another_shape_leave_no_trace(database, source):
    old, fresh = database(), database(is_filled=True)
    totals = "@s.totals_@n(out state text, out n bigint)"
    former = "create or replace function @s.former() returns integer language sql as $$ select 1 $$;\n"
    with pytest.MonkeyPatch.context() as patch:
        real = templates.text
        edits = {
            "tube/counts.sql": lambda text: text.replace(totals, "@s.totals_@n(out state text, out n numeric)"),
            "functions/rules.sql": lambda text: (
                former + text.replace("@s.forever()", "@s.forever(p_x integer default 1)")
            ),
        }
        patch.setattr(templates, "text", lambda name: edits.get(name, str)(real(name)))
        migrations.fingerprint.cache_clear()
        connect_and_make(old)
        assert ask(old, "select penstock.former()") == [(1,)]
        run(old, "create function penstock.mine() returns integer language sql as $$ select 2 $$")
    migrations.fingerprint.cache_clear()
    with penstock.connect(old) as q:
        assert q.tube("jobs").statistics().tasks["total"] == 0
    assert ask(old, "select penstock.mine()") == [(2,)]
    run(old, "drop function penstock.mine()")
    assert shape(old) == shape(fresh)


def test_grants_outlive_an_upgrade(database, source):
    url = database(is_filled=True)
    run(url, "create role grants_outlive")
    try:
        run(url, "select penstock.allow('grants_outlive', 'put')")
        source("functions/api.sql", lambda text: text.replace("-- Give back", "-- Gives back"))
        migrate.run(url)
        may = "select has_function_privilege('grants_outlive', oid, 'execute') from pg_proc where proname = '{}'"
        assert ask(url, may.format("put")) == [(True,)]
        assert ask(url, may.format("take")) == ask(url, may.format("puts_1")) == [(False,)]
    finally:
        run(url, "drop owned by grants_outlive; drop role grants_outlive")


def test_a_later_version_is_refused_and_left_as_it_is(database):
    url = database(is_filled=True)
    script = migrate.run(url, only_script=True)
    for later, text in (
        ((99, "other", "0"), "has version 99, this Penstock knows up to"),
        ((HERE, "other", "999.0"), "are those of Penstock 999.0, this is"),
    ):
        pretend(url, *later)
        with pytest.raises(penstock.SchemaMismatch, match=text):
            penstock.connect(url)
        with pytest.raises(psycopg.Error) as caught:
            run(url, script)
        assert caught.value.sqlstate == "PS066"
    pretend(url, HERE, "other", "0")
    penstock.connect(url).close()
    assert ask(url, "select code from penstock.store") == [(migrations.fingerprint(),)]


def test_a_tube_is_not_made_with_functions_of_another_release(database):
    url = database(is_filled=True)
    with penstock.connect(url) as q:
        pretend(url, HERE, "other", "999.0")
        with pytest.raises(penstock.SchemaMismatch, match="the functions of schema"):
            q.create_tube("new")
        pretend(url, HERE, migrations.fingerprint(), "999.0")
        q.create_tube("new")


def test_a_tube_that_is_refused_for_its_functions_leaves_nothing(database):
    url = database(is_filled=True)
    before = ask(url, "select name from penstock.tubes")
    pretend(url, HERE, "other", "999.0")
    asked = ops.CreateTube(new_tube("new", KINDS["standard"], False, {}))
    with psycopg.connect(url) as connection:
        with pytest.raises(penstock.SchemaMismatch, match="connect again"):
            tubes.create(connection, "penstock", asked)
        connection.commit()  # as a refusal that is one of several answers
    assert ask(url, "select name from penstock.tubes") == before


def test_a_call_that_meets_other_functions_says_so(database):
    url = database(is_filled=True)
    with penstock.connect(url) as q:
        jobs = q.tube("jobs")
        run(url, "drop function penstock.act_many")
        with pytest.raises(penstock.SchemaMismatch, match=r"penstock\.act_many"):
            jobs.kick()
        jobs.put(1)


def test_a_step_that_fails_leaves_the_schema_as_it_was(database, monkeypatch):
    url = database(is_filled=True)
    before = shape(url)
    monkeypatch.setitem(LATER, "9998_later.sql", "create table @s.half (x integer); create table @s.store (x integer);")
    add_steps(monkeypatch, 1)
    with pytest.raises(penstock.EngineUnavailable, match='relation "store" already exists'):
        migrate.run(url)
    assert shape(url) == before


def open_and_put(wire: Wire, url: str, number: int) -> None:
    wire.say("ready")
    wire.hear()
    q = penstock.connect(url)
    task = q.create_tube("jobs", if_not_exists=True).put(number)
    wire.say("put", task.id)
    wire.hear()
    q.close()


def test_many_processes_may_open_an_empty_database_at_one_moment(database):
    url = database()
    with family() as children:
        openers = [children.start(open_and_put, url, number) for number in range(OPENERS)]
        for child in openers:
            assert child.line() == ["ready"]
        for child in openers:
            child.tell("go")
        ids = [child.line()[1] for child in openers]
        assert sorted(ids) == list(range(1, OPENERS + 1))
        for child in openers:
            child.tell("close")
        assert [child.exit() for child in openers] == [0] * OPENERS


@pytest.mark.exhaustive
def test_the_script_comes_out_of_a_program(database, capsys):
    url = database()
    command = [sys.executable, "-m", "penstock.engines.postgres.migrate"]
    printed = subprocess.run([*command, "--sql", url], capture_output=True, text=True, check=True)
    assert ask(url, "select to_regnamespace('penstock')") == [(None,)]
    run(url, printed.stdout)
    assert migrate.main([url]) == 0
    assert capsys.readouterr().out == f"schema 'penstock' has version {HERE}; it had {HERE}\n"


@pytest.mark.exhaustive  # what the doctor says to do is the same
def test_functions_are_made_anew_when_told_to(database):
    url = database(is_filled=True)
    (number,) = ask(url, "select number from penstock.tubes")[0]
    count = "select count(*) from pg_proc where pronamespace = 'penstock'::regnamespace"
    before = ask(url, count)
    run(url, f"drop function penstock.act_many, penstock.totals_{number}")
    migrate.run(url)
    assert ask(url, count) != before
    assert migrate.run(url, force=True) == f"schema 'penstock' has version {HERE}; it had {HERE}\n"
    assert ask(url, count) == before
