"""The schema: made, brought up to date, refused when it is of a later version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from penstock.engines.postgres import templates
from penstock.model.errors import AccessDenied, SchemaMismatch
from penstock.model.tube import TubeConfig

STEPS = tuple(sorted(path.name for path in (templates.HERE / "migrations").glob("[0-9]*.sql")))
VERSION = len(STEPS)


def script(schema: str, since: int = 0) -> str:
    """What brings a schema of version `since` up to date, as one re-runnable script for psql.

    Functions of tubes that exist are made anew by the next process that connects.
    """
    return "\n".join(
        ["begin;", f"select pg_advisory_xact_lock({templates.lock(schema)});", *_parts(schema, since), "commit;", ""]
    )


def _parts(schema: str, since: int) -> Iterator[str]:
    if since == 0:
        yield f"create schema if not exists {templates.quoted(schema)};"
    for number, name in enumerate(STEPS[since:], since + 1):
        yield f"-- {name}"
        yield templates.render(templates.text(f"migrations/{name}"), schema)
        yield f"update {templates.quoted(schema)}.store set version = {number};"
    yield templates.functions(schema)
    yield f"revoke execute on all functions in schema {templates.quoted(schema)} from public;"


def version(connection: psycopg.Connection[Any], schema: str) -> int:
    """The version a database has; 0 when the schema is not there."""
    found = connection.execute("select to_regclass(%s)", [f"{templates.quoted(schema)}.store"]).fetchone()
    if found is None or found[0] is None:
        return 0
    row = connection.execute(f"select version from {templates.quoted(schema)}.store").fetchone()
    return int(row[0]) if row else 0


def check(found: int, schema: str) -> None:
    """Refuse what a later version of Penstock has made."""
    if found > VERSION:
        raise SchemaMismatch(
            f"schema {schema!r} has version {found}, this Penstock knows up to {VERSION}; upgrade the penstock package"
        )


def migrate(connection: psycopg.Connection[Any], schema: str) -> int:
    """Bring the schema up to date; safe from several processes at once. Answers the version it had."""
    found = version(connection, schema)
    check(found, schema)
    if found == VERSION:
        return found
    try:
        with connection.transaction():
            connection.execute("select pg_advisory_xact_lock(%s)", [templates.lock(schema)])
            found = version(connection, schema)
            check(found, schema)
            if found < VERSION:
                for part in _parts(schema, found):
                    connection.execute(part)
                _render_tubes(connection, schema)
    except psycopg.errors.InsufficientPrivilege as error:
        raise AccessDenied(
            f"this role may not make the schema {schema!r} ({error.diag.message_primary}); let an owner of the "
            "database run the script of penstock.engines.postgres.migrations.script()"
        ) from None
    return found


def _render_tubes(connection: psycopg.Connection[Any], schema: str) -> None:
    """Functions are code: those of every tube follow the version too."""
    rows = connection.execute(f"select number, config from {templates.quoted(schema)}.tubes").fetchall()
    for number, config in rows:
        render_tube(connection, schema, number, TubeConfig.from_json(config))


def render_tube(connection: psycopg.Connection[Any], schema: str, number: int, config: TubeConfig) -> None:
    """Make the functions of one tube."""
    # Bodies refer to functions that come later in the script.
    connection.execute("set local check_function_bodies = off")
    connection.execute(templates.tube_functions(schema, number, config))
