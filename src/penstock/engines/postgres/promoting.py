"""Staged rows become tasks: one INSERT .. SELECT for each portion where nothing has to be decided row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg

from penstock.engines.postgres import templates
from penstock.engines.postgres.answers import Stale, Tube
from penstock.engines.postgres.call import Context
from penstock.engines.postgres.staging import Portion, portions
from penstock.engines.verbs.putting import duplicate
from penstock.model import ops
from penstock.model.duration import At
from penstock.model.errors import PenstockError, UsageError
from penstock.model.staging import Promoted, check_tube, lost
from penstock.model.task import Draft

Connection = psycopg.Connection[Any]
EVENTS = 16_000_000
"""Tasks whose events one transaction can record: the numbers of events begin with its own."""
SHARED = ("pri", "lane", "ttl", "ttr", "max_attempts", "created_at", "ready_at", "expires_at", "due_at", "due_rank")
TIMES = frozenset(("delay", "delay_until", "ttl", "repeat"))
OPTIONS = ("pri", "lane", "key", "delay", "delay_until", "ttl", "ttr", "max_attempts", "keep", "repeat")
PORTION = 1000
"""Rows that are put at a time where each has to be looked at."""


class Fresh(NamedTuple):
    """What a task of the tube has if nothing is said of it."""

    pri: int
    lane: str | None
    ttl: int | None
    ttr: int | None
    max_attempts: int | None
    created_at: int
    ready_at: int
    expires_at: int | None
    due_at: int | None
    due_rank: int | None


class Stored(NamedTuple):
    """What an insert has done."""

    ready: int
    delayed: int


def staged(connection: Connection, context: Context, op: ops.Promote, tube: Tube) -> list[Portion]:
    """The portions to promote, if all that was staged is there and fits the tube."""
    from penstock.engines.staged import check_fit

    of_part: dict[str, list[Portion]] = {}
    for portion in portions(connection, context, op.job):
        of_part.setdefault(portion.part, []).append(portion)
    found: list[Portion] = []
    for part, expected in op.parts:
        there = of_part.get(part, [])
        rows = sum(_count(connection, context, portion) for portion in there)
        if rows != expected:
            raise lost(op.job, part, expected, rows)
        for portion in there:
            check_tube(op.job, op.tube, portion.tube)
            check_fit(tube.config, portion.extent)
        found += there
    if any("key" in portion.extent.columns for portion in found):
        # One job after the other: two would wait for each other's keys. The sixth lock of the tube is for that.
        connection.execute("select pg_advisory_xact_lock(%s)", [templates.lock(context.schema, tube.number) + 5])
    return found


def too_many(op: ops.Promote) -> UsageError:
    """The refusal of a job for which the server has not enough locks."""
    return UsageError(
        f"job {op.job!r} has {len(op.parts)} parts, and the server has no locks for the tables of all of them; write "
        "fewer partitions (coalesce) or larger portions (stageBytes), or raise max_locks_per_transaction"
    )


def _count(connection: Connection, context: Context, portion: Portion) -> int:
    (rows,) = connection.execute(f"select count(*) from {context.schema}.{portion.table}").fetchone() or (0,)
    return int(rows)


def is_set_based(context: Context, op: ops.Promote, tube: Tube, found: list[Portion]) -> bool:
    """True if no row has to be looked at alone."""
    config = tube.config
    columns = {name for portion in found for name in portion.extent.columns}
    if config.capacity is not None or tube.number in context.listened or config.adopted is not None:
        return False
    if config.id not in ("auto", "time64") or (config.ttl == "derived" and columns & {"ttl", "ttr", "max_attempts"}):
        return False
    if "lane" in columns and config.lane_order == "strict" and columns & {"delay", "delay_until"}:
        return False
    return "key" not in columns or op.on_conflict in ("ignore", "error")


def promote(
    connection: Connection, context: Context, op: ops.Promote, tube: Tube, found: list[Portion]
) -> tuple[Promoted, bool]:
    """Insert all rows; answers also whether time will change some of them."""
    fresh = _begin(connection, context, tube)
    schema, number = context.schema, tube.number
    rows = sum(portion.extent.rows for portion in found)
    if tube.config.history and rows > EVENTS:
        raise UsageError(
            f"tube {tube.config.name!r} records its history, and one transaction can record {EVENTS:,} tasks, "
            f"not {rows:,}; write them as several jobs"
        )
    keyed = [portion for portion in found if "key" in portion.extent.columns]
    for portion in keyed:
        _settle(connection, context, tube, portion, fresh.created_at)
        if op.on_conflict == "error":
            _check_keys(connection, context, tube, portion)
    ready = delayed = 0
    for portion in found:
        stored = _insert(connection, context, tube, portion, fresh)
        ready, delayed = ready + stored.ready, delayed + stored.delayed
    if op.on_conflict == "error" and ready + delayed < rows:
        key = _twice(connection, context, keyed)
        refuse(connection)
        raise duplicate(tube.config, "ready", key)
    for state, many in (("ready", ready), ("delayed", delayed)):
        if many:
            connection.execute(f"insert into {schema}.counts_{number} values (%s, null, %s, 'put')", [many, state])
    connection.execute(f"select {schema}.wake(%s, %s, false)", [number, ready > 0])
    return Promoted(ready + delayed, rows - ready - delayed), delayed > 0 or _may_expire(found, fresh)


def _may_expire(found: list[Portion], fresh: Fresh) -> bool:
    return fresh.ttl is not None or any("ttl" in portion.extent.columns for portion in found)


def _begin(connection: Connection, context: Context, tube: Tube) -> Fresh:
    if context.relaxed:
        connection.execute("set local synchronous_commit = off")
    # A scan of a large table may else begin in its middle.
    connection.execute("select set_config('synchronize_seqscans', 'off', true), set_config('jit', 'off', true)")
    fields = ", ".join(f"(shared).{name}" for name in SHARED)
    row = connection.execute(
        f"select {fields} from {context.schema}.load_begin_{tube.number}(%s, %s{', null' * 8})",
        [tube.version, context.now],
    ).fetchone()
    if row is None:
        raise Stale
    return Fresh(*row)


def refuse(connection: Connection) -> None:
    """Let nothing of the transaction be kept, whatever its owner does with the error."""
    try:
        connection.execute("do 'begin raise exception ''refused''; end'")
    except psycopg.errors.RaiseException:
        return


# -- keys ----------------------------------------------------------------------------------------------


def _settle(connection: Connection, context: Context, tube: Tube, portion: Portion, now: int) -> None:
    """Tasks whose time is over give their keys free."""
    s, n = context.schema, tube.number
    connection.execute(
        f"select {s}.settled_of_{n}(c, row(x.*)::{s}.task, %s, %s, false) "
        f"from {s}.tubes c, {s}.{portion.table} g join {s}.tasks_{n} x on x.key = g.key "
        "where c.number = %s and x.state <> 'done' and x.due_at <= %s",
        [now, context.joined, n, now],
    )


def _check_keys(connection: Connection, context: Context, tube: Tube, portion: Portion) -> None:
    row = connection.execute(
        f"select g.key, x.state from {context.schema}.{portion.table} g "
        f"join {context.schema}.tasks_{tube.number} x on x.key = g.key where x.state <> 'done' limit 1"
    ).fetchone()
    if row is not None:
        raise duplicate(tube.config, row[1], row[0])


def _twice(connection: Connection, context: Context, keyed: list[Portion]) -> str:
    """A key that two rows of a job have."""
    keys = " union all ".join(f"select key from {context.schema}.{portion.table}" for portion in keyed)
    row = connection.execute(
        f"select key from ({keys}) k where key <> '' group by key having count(*) > 1 limit 1"
    ).fetchone()
    return "" if row is None else str(row[0])


# -- the insert ----------------------------------------------------------------------------------------


def _insert(connection: Connection, context: Context, tube: Tube, portion: Portion, fresh: Fresh) -> Stored:
    s, n, config = context.schema, tube.number, tube.config
    values = _values(s, tube, portion, fresh)
    lanes = config.features.lanes
    if lanes:
        values["place"] = f"nextval('{_quoted(s)}.places_{n}')" if config.lane_pick == "turns" else "v.seq"
    number = (
        f"{s}.next_seq_{n}({fresh.created_at} * 1000)" if config.id == "time64" else f"nextval('{_quoted(s)}.seqs_{n}')"
    )
    insert = (
        f"insert into {s}.tasks_{n} (seq, {', '.join(values)}) select v.seq, {', '.join(values.values())} "
        f"from (select {number} as seq, g.* from {s}.{portion.table} g) v {_laterals(s, portion, fresh)} "
        f"{'on conflict do nothing' if 'key' in portion.extent.columns else ''}"
    )
    if not lanes and not config.history and "d.delay" not in values["state"]:
        return Stored(connection.execute(insert).rowcount, 0)
    steps = [f"stored as ({insert} returning seq, state, pri, lane, place, key, ready_at, data, body)"]
    steps += [_recorded(connection, s, tube, fresh)] if config.history else []
    steps += [_tickets(s, tube, fresh)] if lanes else []
    row = connection.execute(
        f"with {', '.join(steps)} select count(*) filter (where state = 'ready'), "
        f"count(*) filter (where state = 'delayed'){', (select count(*) from tickets)' if lanes else ''} from stored"
    ).fetchone()
    assert row is not None
    return Stored(row[0], row[1])


def _values(s: str, tube: Tube, portion: Portion, fresh: Fresh) -> dict[str, str]:
    """What the columns of a task are set to: the twin of fresh() and timed() in functions/rules.sql."""
    given = set(portion.extent.columns)
    values: dict[str, Any] = {
        "state": "'ready'",
        "attempt": "0",
        "failures": "0",
        "created_at": fresh.created_at,
        "cancel_asked": "false",
        **{name: getattr(fresh, name) for name in ("pri", "max_attempts", "ttl", "ttr")},
        **{name: getattr(fresh, name) for name in ("ready_at", "expires_at", "due_at", "due_rank")},
        **{name: f"v.{name}" for name in ("data", "body", "keep", "repeat") if name in given},
        "key": "nullif(v.key, '')" if "key" in given else None,
        "lane": None if fresh.lane is None else f"'{_quoted(fresh.lane)}'",
    }
    for name in given & {"pri", "max_attempts", "lane"}:
        own = f"nullif(v.{name}, '')" if name == "lane" else f"v.{name}"
        values[name] = f"coalesce({own}, {_shown(values[name])})"
    if "ttl" in given:
        values["ttl"] = "d.ttl"
    if "ttr" in given or ("ttl" in given and tube.config.ttr_is_ttl):
        own = "v.ttr" if "ttr" in given else "null"
        default = "d.ttl" if tube.config.ttr_is_ttl and tube.config.ttr is None else _shown(fresh.ttr)
        values["ttr"] = f"coalesce({own}, {default})::bigint"
    if given & TIMES:
        values |= {"ready_at": "r.ready_at", "expires_at": "e.expires_at"}
        if given & {"delay", "delay_until"}:
            values["state"] = "case when d.delay > 0 then 'delayed' else 'ready' end"
        wakes = "d.delay > 0 and (e.expires_at is null or r.ready_at < e.expires_at)"
        values["due_at"] = f"case when {wakes} then r.ready_at else e.expires_at end"
        values["due_rank"] = f"case when {wakes} then case when r.ready_at is not null then 2 end " + (
            "when e.expires_at is not null then 1 end"
        )
    return {name: _shown(value) for name, value in values.items() if value is not None}


def _laterals(s: str, portion: Portion, fresh: Fresh) -> str:
    """Steps on the way to the times of a task, each named once."""
    given = set(portion.extent.columns)
    if not given & TIMES and "ttr" not in given:
        return ""
    now = fresh.created_at
    delay = "0::bigint"
    if "delay" in given:
        delay = "greatest(0, coalesce(v.delay, 0))"
    if "delay_until" in given:
        delay = f"greatest(0, coalesce(v.delay_until - {now}, 0))"
    ttl = f"coalesce(v.ttl, {_shown(fresh.ttl)})" if "ttl" in given else f"{_shown(fresh.ttl)}::bigint"
    lasting = (
        f"case when v.repeat is null then {s}.after(r.ready_at, d.ttl) end"
        if "repeat" in given
        else (f"{s}.after(r.ready_at, d.ttl)")
    )
    return (
        f"cross join lateral (select {delay} as delay, {ttl} as ttl) d cross join lateral "
        f"(select case when d.delay > 0 then {s}.after({now}, d.delay) else {now} end as ready_at) r "
        f"cross join lateral (select {lasting} as expires_at) e"
    )


def _recorded(connection: Connection, s: str, tube: Tube, fresh: Fresh) -> str:
    """The events of what was stored, as functions/changes.sql records them."""
    row = connection.execute(
        "select coalesce(max(e.seq), f.first) from "
        f"(select (pg_current_xact_id()::text::bigint + event_base) << 24 as first from {s}.store) f "
        f"left join {s}.events e on e.seq between f.first and f.first + 16777215 group by f.first"
    ).fetchone()
    assert row is not None
    last, now = row[0], fresh.created_at
    data = "s.data::text, s.body" if tube.config.history_data else "null, null"
    return (
        f"recorded as (insert into {s}.events select {last} + row_number() over (order by s.seq), {now}, "
        f"'{_quoted(tube.config.name)}', s.seq::text, 'put', null, s.state, null, 0, s.pri, s.lane, s.key, "
        "null, null, null, s.ready_at, null, "
        f"case when s.state = 'delayed' then s.ready_at - {now} end, {data} from stored s)"
    )


def _tickets(s: str, tube: Tube, fresh: Fresh) -> str:
    """What makes takers look at the lanes, as bulk in tube/put.sql does."""
    turn = "min(s.place) over (partition by s.lane)" if tube.config.lane_pick == "turns" else "null::bigint"
    ticket = f"{s}.put_ticket_{tube.number}(c, f.lane, f.pri, f.seq, {fresh.created_at}, f.first, f.turn)"
    return (
        f"tickets as (select {ticket} from "
        f"(select distinct on (s.lane) s.lane, s.pri, s.seq, min(s.seq) over () as first, {turn} as turn "
        "from stored s where s.lane is not null and s.state = 'ready' order by s.lane, s.pri, s.seq) f "
        f"cross join {s}.tubes c where c.number = {tube.number} order by f.seq)"
    )


def _quoted(text: str) -> str:
    """The inside of a literal; strings are standard ones (transactor.py)."""
    return text.replace("'", "''")


def _shown(value: object) -> str:
    return "null" if value is None else str(value)


# -- row by row ----------------------------------------------------------------------------------------


def drafts(connection: Connection, context: Context, op: ops.Promote, found: list[Portion]) -> Iterator[list[Draft]]:
    """The staged rows as drafts, some at a time."""
    for portion in found:
        names = portion.extent.columns
        shown = ", ".join("data::text" if name == "data" else name for name in names)
        with connection.cursor(name="staged") as cursor:
            cursor.execute(f"select {shown} from {context.schema}.{portion.table}")
            while rows := cursor.fetchmany(PORTION):
                yield [_draft(op, dict(zip(names, row, strict=True))) for row in rows]


def _draft(op: ops.Promote, row: dict[str, Any]) -> Draft:
    until = row.pop("delay_until", None)
    if until is not None:
        row["delay"] = At(until)
    if "body" in row:
        row["data"] = bytes(row.pop("body"))
    for name in row.keys() & {"lane", "key"}:
        row[name] = row[name] or None
    return Draft(on_conflict=op.on_conflict, **row)


def count(answers: list[Any], so_far: Counter[str]) -> None:
    """Count what became of some rows; the first refusal is raised."""
    for answer in answers:
        if isinstance(answer, PenstockError):
            raise answer
        so_far[answer.outcome] += 1
