"""What a schema has to have, by the templates that make it, and what of that a database lacks."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import psycopg

from penstock.engines.postgres import migrations, templates
from penstock.model.tube import TubeConfig

Connection = psycopg.Connection[Any]
_INDEX = re.compile(r"^create (?:unique )?index (?:if not exists )?(\w+) on [^;]*;", re.M)
_FUNCTION = re.compile(r'^create or replace function "s"\.(\w+)\(', re.M)
_TABLE = re.compile(r'^create +(?:unlogged +)?(?:table|sequence) +"s"\.(\w+)', re.M)
# Names do not depend on the schema, and some schemas look like SQL.
PLAIN = "s"


class Index(NamedTuple):
    """An index that is missing or not valid."""

    name: str
    valid: bool | None
    statement: str
    """What makes it."""


def shared_tables(connection: Connection, schema: str) -> list[str]:
    """Tables and sequences of the store that are missing."""
    steps = (templates.render(templates.text(f"migrations/{name}"), PLAIN) for name in migrations.STEPS)
    return _without_tables(connection, schema, "\n".join(steps))


def shared_functions(connection: Connection, schema: str) -> list[str]:
    """Functions of the store that are missing."""
    return _without_functions(connection, schema, templates.functions(PLAIN))


def tables(connection: Connection, schema: str, number: int, config: TubeConfig) -> list[str]:
    """Tables and sequences of a tube that are missing."""
    return _without_tables(connection, schema, templates.tube("tables", PLAIN, number, config))


def functions(connection: Connection, schema: str, number: int, config: TubeConfig) -> list[str]:
    """Functions of a tube that are missing."""
    return _without_functions(connection, schema, templates.tube_functions(PLAIN, number, config))


def indexes(connection: Connection, schema: str, number: int, config: TubeConfig) -> list[Index]:
    """Indexes of a tube that are missing or not valid."""
    parts = ("tables", "strict") if config.lane_order == "strict" else ("tables",)
    made = {
        found[1]: found[0] for part in parts for found in _INDEX.finditer(templates.tube(part, schema, number, config))
    }
    rows = connection.execute(
        """
        select c.relname, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid
        where c.relnamespace = to_regnamespace(%s)
        """,
        [templates.quoted(schema)],
    ).fetchall()
    valid: dict[str, bool] = dict(rows)
    return [Index(name, valid.get(name), statement) for name, statement in made.items() if not valid.get(name)]


def _without_tables(connection: Connection, schema: str, text: str) -> list[str]:
    there = "select relname from pg_class where relnamespace = to_regnamespace(%s) and relkind in ('r', 'S')"
    return _without(connection, schema, there, set(_TABLE.findall(text)))


def _without_functions(connection: Connection, schema: str, text: str) -> list[str]:
    there = "select proname from pg_proc where pronamespace = to_regnamespace(%s)"
    return _without(connection, schema, there, set(_FUNCTION.findall(text)))


def _without(connection: Connection, schema: str, there: str, wanted: set[str]) -> list[str]:
    rows = connection.execute(there.encode(), [templates.quoted(schema)]).fetchall()
    return sorted(wanted - {name for (name,) in rows})
