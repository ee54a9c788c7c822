"""The schema: made, brought up to date, refused when a later version has made it.

Tables change by numbered steps. Functions are code: when their text is not what the store has, all of them are made
anew, those of every tube too. What a role may be granted is replaced and keeps its grants; the
rest is dropped first, so that nothing is left of functions that are no more or had other arguments.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple

import psycopg

from penstock.engines.postgres import templates
from penstock.model.errors import AccessDenied, SchemaMismatch, UsageError
from penstock.model.tube import TubeConfig

Connection = psycopg.Connection[Any]
Tubes = Iterable[tuple[int, TubeConfig]]
STEPS = tuple(sorted(path.name for path in (templates.HERE / "migrations").glob("[0-9]*.sql")))
VERSION = len(STEPS)
_FUNCTION = re.compile(r"^create or replace function @s\.(\w+?)(?:@n)?\((.*?)\$\$", re.M | re.S)
_BEGIN = """
do $guard$
declare
    v_version integer := 0;
    v_code text;
    v_release integer[] := '{{0}}';
begin
    if to_regnamespace('@s') is null then
        create schema @s;
    end if;
    if to_regclass('@s.store') is not null then
        select version, code, string_to_array(release, '.') into v_version, v_code, v_release from @s.store;
    end if;
    if v_version > {version} or (v_code <> '{code}' and v_release > string_to_array('{release}', '.')::integer[]) then
        raise exception 'the schema is of a later version of penstock than this script' using errcode = 'PS066';
    end if;
end $guard$;
"""
_STEP = """
do $guard$
declare
    v_version integer := 0;
begin
    if to_regclass('@s.store') is not null then
        select version into v_version from @s.store;
    end if;
    if v_version < {number} then
        execute $step$
{step}
update @s.store set version = {number};
$step$;
    end if;
end $guard$;
"""
_FORGET = """
do $guard$
declare
    v_function regprocedure;
begin
    for v_function in
        select p.oid::regprocedure from pg_proc p
        where p.pronamespace = '@s'::regnamespace and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
            and regexp_replace(p.proname, '_[0-9]+$', '_') = any (
                '{{{names}}}'::text[]
                || array(select unnest(functions) from @s.store except select unnest('{{{public}}}'::text[]))
            )
    loop
        execute format('drop function %s', v_function);
    end loop;
end $guard$;
"""
_REVOKE = """
do $guard$
declare
    v_function regprocedure;
begin
    for v_function in
        select p.oid::regprocedure from pg_proc p
        where p.pronamespace = '@s'::regnamespace and p.proacl is null  -- as it is made: anybody may call it
    loop
        execute format('revoke execute on function %s from public', v_function);
    end loop;
end $guard$;
"""


class Found(NamedTuple):
    """What a database has."""

    version: int = 0
    code: str = ""
    release: str = "0"


@cache
def release() -> str:
    """The release of this package, as far as it is numbers."""
    try:
        found = re.match(r"\d+(\.\d+)*", metadata.version("penstock"))
    except metadata.PackageNotFoundError:
        return "0"
    return found[0] if found else "0"


@cache
def fingerprint() -> str:
    """Tells two sets of functions apart."""
    # What fills in the templates is part of them.
    fillers = sorted(path.name for path in templates.HERE.glob("*.py") if path.stem.endswith(("templates", "_sql")))
    text = [templates.text(name) for name in (*_files(), *fillers)]
    return hashlib.sha256("\n".join([templates.functions("s"), *text]).encode()).hexdigest()[:32]


def _files() -> list[str]:
    own = (*templates.TUBE, *templates.ADOPTED)
    return [f"functions/{name}.sql" for name in templates.FUNCTIONS] + [f"tube/{name}.sql" for name in own]


def public() -> list[str]:
    """Names of the functions that roles may be granted."""
    found = [_FUNCTION.findall(templates.text(f"functions/{name}.sql")) for name in templates.FUNCTIONS]
    return [name for pairs in found for name, rest in pairs if "@definer" in rest]


def _internal() -> list[str]:
    names = {name for file in _files() for name, _ in _FUNCTION.findall(templates.text(file))}
    return sorted(names - set(public()))


def script(schema: str, tubes: Tubes = ()) -> str:
    """What makes a schema or brings it up to date, as one script for psql that may be run again.

    `tubes`: those that are there, so that their functions follow; `tubes_of` finds them.
    """
    lock = f"select pg_advisory_xact_lock({templates.lock(schema)});"
    return "\n".join(
        ["begin;", "set local standard_conforming_strings = on;", lock, *_parts(schema, tubes), "commit;", ""]
    )


def _parts(schema: str, tubes: Tubes) -> Iterator[str]:
    code = {"version": VERSION, "code": fingerprint(), "release": release()}
    yield templates.render(_BEGIN.format(**code), schema)
    for number, name in enumerate(STEPS, 1):
        yield f"-- {name}" + _step(schema, number, name)
    # Bodies refer to functions that come later in the script.
    yield "set local check_function_bodies = off;"
    internal, callable_ = ",".join(_internal()), ",".join(public())
    yield templates.render(_FORGET.format(names=internal, public=callable_), schema)
    yield templates.functions(schema)
    for number, config in tubes:
        yield templates.tube_functions(schema, number, config)
    yield templates.render(_REVOKE, schema)
    said = "update @s.store set code = '{code}', release = '{release}', functions = '{{{names}}}';"
    yield templates.render(said.format(**code, names=internal), schema)


def _step(schema: str, number: int, name: str) -> str:
    step = templates.render(templates.text(f"migrations/{name}"), schema)
    return templates.render(_STEP.format(number=number, step="{step}"), schema).replace("{step}", step)


def tubes_of(connection: Connection, schema: str) -> list[tuple[int, TubeConfig]]:
    """The tubes of a schema, none if it is not there."""
    with _allowed(connection, schema):
        if not _found(connection, schema).version:
            return []
        tubes = f"{templates.quoted(schema)}.tubes"
        rows = connection.execute(f"select number, config from {tubes} order by number").fetchall()
    return [(number, TubeConfig.from_json(config)) for number, config in rows]


def version(connection: Connection, schema: str) -> int:
    """The version a database has; 0 when the schema is not there."""
    with _allowed(connection, schema):
        return _found(connection, schema).version


def _found(connection: Connection, schema: str) -> Found:
    there = connection.execute("select to_regclass(%s)", [f"{templates.quoted(schema)}.store"]).fetchone()
    if there is None or there[0] is None:
        return Found()
    row = connection.execute(f"select version, code, release from {templates.quoted(schema)}.store").fetchone()
    return Found(*row) if row else Found()


def check(found: int, schema: str) -> None:
    """Refuse what a later version of Penstock has made."""
    if found > VERSION:
        raise SchemaMismatch(
            f"schema {schema!r} has version {found}, this Penstock knows up to {VERSION}; upgrade the penstock package"
        )


def _is_current(found: Found, schema: str) -> bool:
    check(found.version, schema)
    if found.version == VERSION and found.code == fingerprint():
        return True
    if _numbers(found.release) > _numbers(release()):
        raise SchemaMismatch(
            f"the functions of schema {schema!r} are those of Penstock {found.release}, this is {release()}; "
            "upgrade the penstock package"
        )
    return False


def is_current(connection: Connection, schema: str) -> bool:
    """Whether tables and functions are those of this release."""
    with _allowed(connection, schema):
        found = _found(connection, schema)
    return found.version == VERSION and found.code == fingerprint()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]


def migrate(connection: Connection, schema: str, force: bool = False) -> int:
    """Bring the schema up to date; safe from several processes at once. Answers the version it had.

    force: make all functions anew, even if they should be there.
    """
    _check_encoding(connection)
    with _allowed(connection, schema):
        found = _found(connection, schema)
        if _is_current(found, schema) and not force:
            _check_rights(connection, schema)
            return found.version
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(%s)", [templates.lock(schema)])
            found = _found(connection, schema)
            if not _is_current(found, schema) or force:
                for part in _parts(schema, tubes_of(connection, schema)):
                    connection.execute(part, prepare=False)
    return found.version


def _check_encoding(connection: Connection) -> None:
    """Tasks are any text: where a database has no room for some of it, a put would fail by what it holds."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        name = connection.info.dbname
        raise UsageError(
            f"the database {name!r} has the encoding {encoding}, and Penstock needs UTF8; "
            "make another one: create database queue encoding 'UTF8' template template0"
        )


def check_code(connection: Connection, schema: str) -> None:
    """Tubes are made by the release that made what they share; asked before anything is written."""
    if _found(connection, schema).code != fingerprint():
        raise SchemaMismatch(
            f"the functions of schema {schema!r} were replaced by another release of Penstock; connect again"
        )


def render_tube(connection: Connection, schema: str, number: int, config: TubeConfig) -> None:
    """Make the functions of one tube."""
    connection.execute("set local check_function_bodies = off")
    connection.execute(templates.tube_functions(schema, number, config), prepare=False)
    connection.execute(templates.render(_REVOKE, schema), prepare=False)


def strange(schema: str, error: psycopg.Error) -> SchemaMismatch:
    """A call met other functions or tables than it knows: somebody has upgraded them, or removed some."""
    return SchemaMismatch(
        f"schema {schema!r} is not as this Penstock made it ({error.diag.message_primary}); "
        "upgrade the penstock package, or ask `python -m penstock.engines.postgres.doctor`"
    )


def _check_rights(connection: Connection, schema: str) -> None:
    """Functions believe the moment that they are given, so they are for the owner; one right stands for all."""
    store = f"{templates.quoted(schema)}.store"
    may = connection.execute("select has_table_privilege(%s, 'update')", [store]).fetchone()
    if may is None or not may[0]:
        raise _denied(connection, schema, f"permission denied for table {store}")


@contextmanager
def _allowed(connection: Connection, schema: str) -> Iterator[None]:
    """Say what to do about a role that lacks a right."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise _denied(connection, schema, error.diag.message_primary or "permission denied") from None


def _denied(connection: Connection, schema: str, why: str) -> AccessDenied:
    return AccessDenied(
        f"the role {connection.info.user!r} may not use or make the schema {schema!r} ({why}); connect as its owner, "
        "let an owner of the database run `python -m penstock.engines.postgres.migrate`, or call the functions that "
        "the role was granted from SQL (docs/postgres.md, Roles)"
    )
