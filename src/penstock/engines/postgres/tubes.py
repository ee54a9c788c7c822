"""Ops that change the shape of the store: several statements in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from penstock.engines.postgres import migrations, templates
from penstock.engines.postgres.answers import Tube
from penstock.engines.postgres.call import Context
from penstock.engines.verbs.checks import missing
from penstock.model import ops
from penstock.model.duration import date
from penstock.model.errors import TubeBusy, TubeExists, TubeNotFound, UsageError
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.tube import TubeConfig

Connection = psycopg.Connection[Any]
COLUMNS = (
    *("kind", "features", "temporary", "paused", "ttl", "ttl_derived", "ttr", "ttr_is_ttl", "shared_lane", "pri"),
    *("capacity", "max_attempts", "retry", "keep", "keep_failed", "concurrency", "lane_concurrency", "lane_rate"),
    *("lane_burst", "lane_order", "lane_pick", "payload", "max_payload", "history", "history_data", "id"),
)


def find(connection: Connection, schema: str, name: str) -> Tube | None:
    """The tube of that name."""
    row = connection.execute(
        f"select number, version, config from {schema}.tubes where name = %s",
        [name],
    ).fetchone()
    return None if row is None else Tube(row[0], row[1], TubeConfig.from_json(row[2]))


def existing(connection: Connection, schema: str, name: str) -> Tube:
    """The tube of that name, or TubeNotFound."""
    tube = find(connection, schema, name)
    if tube is None:
        raise TubeNotFound(f"there is no tube {name!r}; create_tube({name!r}) makes it")
    return tube


def listed(connection: Connection, schema: str) -> list[Tube]:
    """All tubes, by name."""
    rows = connection.execute(f"select number, version, config from {schema}.tubes").fetchall()
    tubes = [Tube(row[0], row[1], TubeConfig.from_json(row[2])) for row in rows]
    return sorted(tubes, key=lambda tube: tube.config.name)


def _values(config: TubeConfig) -> list[Any]:
    plain = config.to_json()
    plain["ttl_derived"] = config.ttl == "derived"
    plain["ttl"] = None if config.ttl == "derived" else config.ttl
    plain["retry"] = None if plain["retry"] is None else Jsonb(plain["retry"])
    return [plain[name] for name in COLUMNS]


def create(connection: Connection, raw_schema: str, op: ops.CreateTube) -> TubeConfig:
    schema = templates.quoted(raw_schema)
    connection.execute("select pg_advisory_xact_lock(%s)", [templates.lock(raw_schema)])
    found = find(connection, schema, op.config.name)
    if found is not None:
        return _same(found.config, op)
    migrations.check_code(connection, raw_schema)
    number = insert(connection, schema, op.config)
    make(connection, raw_schema, number, op.config)
    return op.config


def _same(config: TubeConfig, op: ops.CreateTube) -> TubeConfig:
    name = op.config.name
    if not op.if_not_exists:
        raise TubeExists(f"tube {name!r} exists already; pass if_not_exists=True to use it")
    if differences := config.differences(op.config.kind, op.config.temporary, op.given or {}):
        raise UsageError(f"tube {name!r} exists with other settings: {'; '.join(differences)}")
    return config


def insert(connection: Connection, schema: str, config: TubeConfig) -> int:
    """A row for a tube; answers its number."""
    names = ", ".join(COLUMNS)
    marks = ", ".join(["%s"] * len(COLUMNS))
    row = connection.execute(
        f"insert into {schema}.tubes (name, config, {names}) values (%s, %s, {marks}) returning number",
        [config.name, Jsonb(config.to_json()), *_values(config)],
    ).fetchone()
    assert row is not None
    return int(row[0])


def make(connection: Connection, schema: str, number: int, config: TubeConfig) -> None:
    """The tables and functions of a tube."""
    connection.execute(templates.tube("tables", schema, number, config))
    if config.lane_order == "strict":
        connection.execute(templates.tube("strict", schema, number, config))
    migrations.render_tube(connection, schema, number, config)


def _save(connection: Connection, schema: str, number: int, config: TubeConfig) -> None:
    assignments = ", ".join(f"{name} = %s" for name in COLUMNS)
    connection.execute(
        f"update {schema}.tubes set version = version + 1, config = %s, {assignments} where number = %s",
        [Jsonb(config.to_json()), *_values(config), number],
    )


def _settle(connection: Connection, context: Context, number: int) -> list[Any]:
    return connection.execute(
        f"select * from {context.schema}.settle_tubes({context.schema}.now_us(%s), %s::uuid[], %s::int[], %s)",
        [context.now, context.kept, context.listened, number],
    ).fetchall()


def alter(connection: Connection, raw_schema: str, context: Context, op: ops.AlterTube) -> tuple[TubeConfig, list[Any]]:
    schema = context.schema
    connection.execute(f"select from {schema}.tubes where name = %s for update", [op.tube])
    tube = existing(connection, schema, op.tube)
    config = tube.config.altered(op.options)
    steps = _settle(connection, context, tube.number)
    if config.lane_order == "strict" != tube.config.lane_order:
        with _alone(connection, op.tube, "altered"):
            connection.execute(templates.tube("strict", raw_schema, tube.number, config))
    if config.features.lanes and config.limits_differ(tube.config):
        old = connection.execute(f"select t::text from {schema}.tubes t where number = %s", [tube.number]).fetchone()
        assert old is not None
        _save(connection, schema, tube.number, config)
        connection.execute(
            f"select {schema}.refresh_all_{tube.number}(%s::{schema}.tubes, t, {schema}.now_us(%s)) "
            f"from {schema}.tubes t where number = %s",
            [old[0], context.now, tube.number],
        )
    else:
        _save(connection, schema, tube.number, config)
    _wake(connection, schema, tube.number)
    return config, steps


def _wake(connection: Connection, schema: str, number: int) -> None:
    connection.execute(f"select {schema}.wake(%s, true, true)", [number])


def pause(connection: Connection, context: Context, op: ops.PauseTube) -> TubeConfig:
    connection.execute(f"select from {context.schema}.tubes where name = %s for update", [op.tube])
    tube = existing(connection, context.schema, op.tube)
    config = replace(tube.config, paused=op.paused)
    _save(connection, context.schema, tube.number, config)
    _wake(connection, context.schema, tube.number)
    return config


def truncate(connection: Connection, context: Context, op: ops.TruncateTube) -> tuple[int, list[Any]]:
    tube = existing(connection, context.schema, op.tube)
    steps = _settle(connection, context, tube.number)
    row = connection.execute(f"select {context.schema}.clear(%s)", [tube.number]).fetchone()
    assert row is not None
    return int(row[0]), steps


@contextmanager
def _alone(connection: Connection, tube: str, what: str) -> Iterator[None]:
    """Have the tables of a tube to oneself, or say that somebody is there.

    Everybody else queues behind whoever waits for that, so it is not for long; but autovacuum gives way after a second.
    """
    before = connection.execute("select current_setting('lock_timeout')").fetchone()
    assert before is not None
    connection.execute("set local lock_timeout = '1500ms'")
    try:
        with connection.transaction():
            yield
    except psycopg.errors.LockNotAvailable:
        raise TubeBusy(f"tube {tube!r} cannot be {what}: an open transaction uses it; try again later") from None
    connection.execute("select set_config('lock_timeout', %s, true)", [before[0]])


def drop(connection: Connection, context: Context, op: ops.DropTube, waiting: int) -> tuple[None, list[Any]]:
    schema = context.schema
    tube = existing(connection, schema, op.tube)
    steps = _settle(connection, context, tube.number)
    row = connection.execute(f"select n from {schema}.totals_{tube.number}() where state = 'taken'").fetchone()
    held = row[0] if row else 0
    if (held or waiting) and not op.force:
        tasks = "1 task is" if held == 1 else f"{held} tasks are"
        takers = "1 taker waits" if waiting == 1 else f"{waiting} takers wait"
        raise TubeBusy(
            f"tube {op.tube!r} cannot be dropped: {tasks} taken and {takers}; finish them or pass force=True"
        )
    with _alone(connection, op.tube, "dropped"):
        connection.execute(f"select {schema}.drop_parts(%s)", [tube.number])
    connection.execute(f"delete from {schema}.tubes where number = %s", [tube.number])
    connection.execute("select pg_notify(%s, %s)", [templates.channel(_unquoted(schema)), str(tube.number)])
    return None, steps


def _unquoted(schema: str) -> str:
    return schema[1:-1].replace('""', '"')


def configure_lane(connection: Connection, context: Context, op: ops.ConfigureLane) -> tuple[LaneLimits, list[Any]]:
    schema = context.schema
    tube = existing(connection, schema, op.tube)
    if not tube.config.features.lanes:
        raise missing(tube.config, "lane", "lanes")
    steps = _settle(connection, context, tube.number)
    connection.execute(
        f"select {schema}.configure_lane_{tube.number}(t, %s, %s, {schema}.now_us(%s)) from {schema}.tubes t "
        "where number = %s",
        [op.lane, Jsonb(dict(op.options)), context.now, tube.number],
    )
    row = connection.execute(
        f"select l.concurrency, l.rate, l.burst, l.paused from {schema}.tubes t, "
        f"{schema}.limits_{tube.number}(t, %s) l where t.number = %s",
        [op.lane, tube.number],
    ).fetchone()
    assert row is not None
    return LaneLimits(*row), steps


def list_lanes(connection: Connection, context: Context, op: ops.ListLanes) -> tuple[list[LaneInfo], list[Any]]:
    schema = context.schema
    tube = existing(connection, schema, op.tube)
    if not tube.config.features.lanes:
        raise missing(tube.config, "lanes", "lanes")
    steps = _settle(connection, context, tube.number)
    rows = connection.execute(
        f"select l.* from {schema}.tubes t, {schema}.lanes_list_{tube.number}(t, %s, %s, {schema}.now_us(%s)) l "
        "where t.number = %s",
        [op.limit, op.after, context.now, tube.number],
    ).fetchall()
    return [LaneInfo(row[0], row[1], row[2], LaneLimits(*row[3:7]), date(row[7])) for row in rows], steps
