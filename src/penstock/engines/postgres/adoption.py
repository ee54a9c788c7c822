"""Making a table of the user's a tube: what PostgreSQL knows about it, and what is made beside it."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from penstock.engines.adoption import Column, Table, configured
from penstock.engines.postgres import adopted, adopted_sql, migrations, templates, tubes
from penstock.engines.postgres.answers import Tube
from penstock.engines.postgres.call import Context
from penstock.model import ops
from penstock.model.errors import AccessDenied, TubeExists, UsageError
from penstock.model.tube import TubeConfig

Connection = psycopg.Connection[Any]
# The name as it stands is tried before its parts: a table may have a dot in its name.
FIND = """
    select r.oid, n.nspname, r.relname, r.relkind, r.relpersistence,
        r.relispartition or exists (select from pg_inherits i where r.oid in (i.inhrelid, i.inhparent))
    from pg_class r join pg_namespace n on n.oid = r.relnamespace
    where r.relkind in ('r', 'p', 'v', 'm', 'f') and (
        (r.relname in (%(name)s::text, lower(%(name)s::text)) and pg_table_is_visible(r.oid))
        or n.nspname || '.' || r.relname in (%(name)s::text, lower(%(name)s::text))
    )
    order by r.relname = %(name)s::text desc, n.nspname || '.' || r.relname = %(name)s::text desc limit 1
"""
COLUMNS = """
    with recursive base (oid, type, category) as (
        select t.oid, t.oid, t.typcategory from pg_type t where t.typtype <> 'd'
        union all
        select d.oid, b.type, b.category from pg_type d join base b on b.oid = d.typbasetype where d.typtype = 'd'
    )
    select a.attname, format_type(a.atttypid, a.atttypmod), format_type(a.atttypid, -1), b.type::regtype::text,
        b.category, a.attnotnull, a.attgenerated <> '', coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0)
    from pg_attribute a join base b on b.oid = a.atttypid
    left join pg_index i on i.indrelid = a.attrelid and i.indisprimary
    where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
KINDS = {"p": "a partitioned table", "v": "a view", "m": "a materialized view", "f": "a foreign table"}
WHOLE = ("smallint", "integer", "bigint")
COARSE = (*WHOLE, "real")
"""Types that cannot hold a moment of today to the microsecond."""
TRIGGERS = ("insert", "update", "delete", "truncate")


def adopt(connection: Connection, raw_schema: str, context: Context, op: ops.AdoptTable) -> TubeConfig:
    """Make the tube, or leave nothing."""
    try:
        with connection.transaction():
            return _adopt(connection, raw_schema, context, op)
    except psycopg.errors.InsufficientPrivilege as error:
        raise AccessDenied(f"this role may not adopt {op.asked.table!r}: {error.diag.message_primary}") from None
    except psycopg.errors.LockNotAvailable:
        raise UsageError(f"{op.asked.table!r} cannot be adopted while an open transaction writes to it") from None


def _adopt(connection: Connection, raw_schema: str, context: Context, op: ops.AdoptTable) -> TubeConfig:
    asked, schema = op.asked, context.schema
    connection.execute("select pg_advisory_xact_lock(%s)", [templates.lock(raw_schema)])
    if tubes.find(connection, schema, asked.name) is not None:
        raise TubeExists(f"tube {asked.name!r} exists already; adopt the table under another name")
    oid, place = find_table(connection, raw_schema, asked.table)
    rows = connection.execute(COLUMNS, [oid]).fetchall()
    table = Table(place[1], [_column(*row) for row in rows])
    check_key(table)
    config = configured(table, asked)
    mapped = config.adopted
    assert mapped is not None
    remembered = {
        "schema": place[0],
        "types": {row[0]: row[1] if table.kind(row[0]) == "number" else row[2] for row in rows},
        "whole": [row[0] for row in rows if row[3] in WHOLE],
        "computed": [row[0] for row in rows if row[6]],
    }
    config = configured(table, asked, **remembered)
    check_free(connection, schema, place)
    migrations.check_code(connection, raw_schema)
    number = tubes.insert(connection, schema, config)
    named = {"table": sql.Identifier(*place)}
    connection.execute("set local lock_timeout = '10s'")
    connection.execute(sql.SQL("lock table {table} in share row exclusive mode").format(**named))
    tubes.make(connection, raw_schema, number, config)
    _install(connection, raw_schema, Tube(number, 1, config), context.now)
    return config


def find_table(connection: Connection, raw_schema: str, name: str) -> tuple[int, tuple[str, str]]:
    """A table of the user's: its oid, and the names of its schema and its own."""
    row = connection.execute(FIND, {"name": name}).fetchone()
    if row is None:
        raise UsageError(f"there is no table {name!r} on the search path; create it before it is adopted")
    oid, schema, table, kind, persistence, inherits = row
    if schema == raw_schema or schema in ("pg_catalog", "information_schema"):
        raise UsageError(f"{name!r} is not a table of your own but one of {'ours' if schema == raw_schema else schema}")
    if kind in KINDS:
        raise UsageError(f"{name!r} is not a table of your own but {KINDS[kind]}")
    if persistence == "t":
        raise UsageError(f"{name!r} is a temporary table, which other sessions do not see")
    if inherits:
        raise UsageError(f"{name!r} is a part of other tables, or has parts: writes that go past it would not be seen")
    return oid, (schema, table)


def _column(
    name: str, declared: str, plain: str, base: str, category: str, required: bool, computed: bool, position: int
) -> Column:
    kind = {"N": "number", "S": "text", "E": "text"}.get(category, "other")
    if base == "uuid" and position:
        kind = "text"
    no_time = None
    if base in COARSE:
        no_time = f"column {name!r} cannot hold parts of a second: declare it double precision"
    return Column(name, kind, required, position, declared, no_time)


def check_key(table: Table) -> None:
    """Ids are whole numbers and text."""
    if not table.key:
        raise UsageError(f"table {table.name!r} has no primary key, so its rows cannot be told apart: declare one")
    for name in table.key:
        column = table.column(name)
        fits = column.kind == "text" or (column.no_time and column.declared != "real")
        if not fits:
            raise UsageError(f"the primary key {name!r} is declared {column.declared}; ids are whole numbers or text")


def check_free(connection: Connection, schema: str, place: tuple[str, str]) -> None:
    """One table is one tube."""
    for tube in tubes.listed(connection, schema):
        other = tube.config.adopted
        if other is not None and (other["schema"], other["table"]) == place:
            raise UsageError(f"table {place[1]!r} is adopted already, by tube {tube.config.name!r}")


def _install(connection: Connection, raw_schema: str, tube: Tube, now: int | None) -> None:
    """Take in the rows that are there, and watch both tables."""
    number, mapped = tube.number, tube.config.adopted
    assert mapped is not None
    schema = templates.quoted(raw_schema)
    if adopted_sql.is_ranked(mapped):
        connection.execute(
            f"create index tasks_{number}_rank on {schema}.tasks_{number} ({schema}.rank(id)) "
            f"where seq < {adopted_sql.FIRST_NEW}"
        )
    try:
        connection.execute(f"select {schema}.take_in_{number}({schema}.now_us(%s))", [now])
    except psycopg.Error as error:
        if told := adopted.refused(tube, error.sqlstate or "", error.diag.message_primary or str(error)):
            raise told from None
        raise
    names = {
        "side": sql.Identifier(raw_schema, f"tasks_{number}"),
        "shown": sql.Identifier(raw_schema, f"shown_{number}"),
    }
    users = {
        "table": sql.Identifier(mapped["schema"], mapped["table"]),
        "edits": sql.Identifier(raw_schema, f"edits_{number}"),
    }
    for event in TRIGGERS:
        named = {"name": sql.Identifier(f"penstock_{number}_{event}"), "event": sql.SQL(event)}
        tables = sql.SQL(_TRANSITIONS[event])
        if event != "truncate":
            connection.execute(_SHOW.format(**names, **named, tables=tables))
        try:
            connection.execute(_WATCH.format(**users, **named, tables=tables))
        except psycopg.errors.DuplicateObject:
            raise UsageError(f"table {mapped['table']!r} is adopted already, by a queue in another schema") from None


_TRANSITIONS = {
    "insert": "referencing new table as news",
    "update": "referencing old table as olds new table as news",
    "delete": "referencing old table as olds",
    "truncate": "",
}
_SHOW = sql.SQL("create trigger {name} after {event} on {side} {tables} for each statement execute function {shown}()")
_WATCH = sql.SQL(
    "create trigger {name} after {event} on {table} {tables} for each statement execute function {edits}()"
)


def truncate(connection: Connection, context: Context, op: ops.TruncateTube) -> tuple[int, list[Any]]:
    """Remove all tasks of a tube, with their rows if it is adopted."""
    tube = tubes.existing(connection, context.schema, op.tube)
    if tube.config.adopted is None:
        return tubes.truncate(connection, context, op)
    with adopted.guarded(connection, tube):
        connection.execute(f"select {context.schema}.usable(%s)", [tube.number])
        return tubes.truncate(connection, context, op)
