"""What a queue on PostgreSQL suffers from, or will: `examine(url)` answers findings, worst first.

It only reads. `python -m penstock.engines.postgres.doctor URL` prints them; the exit status is 0, 1 or 2 as the worst
of them is ok, warn or bad.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from penstock.engines.finding import Finding, Level, counted, exit_status, graded, how_long, ranked, shown, summary
from penstock.engines.postgres import program

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    from penstock.engines.postgres import anatomy, migrations, templates
    from penstock.engines.postgres.connections import OLDEST_SERVER, first_line, visit
    from penstock.engines.postgres.place import Place
except ImportError as error:
    program.without_driver(__name__, error)
from penstock.model.tube import TubeConfig

Connection = psycopg.Connection[Any]
PATIENCE = "60s"
MANY = 1_000_000
"""How many rows of one table are counted at most."""
LOCKS_A_TUBE = 25
"""Tables and indexes of a tube: a tick locks those of all tubes."""


class Limits(NamedTuple):
    """What is too much. Ages are seconds; the first of a pair is a warning, the second is bad."""

    transaction: tuple[float, float] = (300, 3600)
    slot: tuple[int, int] = (1_000_000, 50_000_000)
    """Transactions that a replication slot lags behind."""
    dead: int = 50_000
    """Dead rows of a table that are more than its live ones."""
    lease: float = 24 * 3600
    ready: float = 3600
    overdue: float = 60
    counters: int = 20_000
    tickets: int = 10_000
    share: tuple[float, float] = (0.5, 0.9)
    """Of connections, of locks and of the room for notifications."""


def examine(url: str, limits: Limits | None = None) -> list[Finding]:
    """Look at a server and a schema. Nothing is changed and nobody is waited for."""
    place = Place.parse(url)
    options = f"{conninfo_to_dict(place.conninfo).get('options', '')} -c statement_timeout={PATIENCE}"
    with visit(place, options=options) as connection:
        return ranked(_all(connection, place, limits or Limits()))


def _all(connection: Connection, place: Place, limits: Limits) -> Iterator[Finding]:
    yield from _server(connection)
    yield from _settings(connection)
    yield from _connections(connection, limits)
    yield from _transactions(connection, limits)
    yield from _slots(connection, limits)
    yield from _notifications(connection, limits)
    if (yield from _schema(connection, place)):
        yield from _guarded(connection, "schema", place.schema, _inside(connection, place, limits))


def _inside(connection: Connection, place: Place, limits: Limits) -> Iterator[Finding]:
    schema = place.schema
    recovering = bool(_value(connection, "select pg_is_in_recovery()"))
    yield from _shared(connection, place)
    tubes = migrations.tubes_of(connection, schema)
    yield from _locks(connection, len(tubes), limits)
    yield from _dead_rows(connection, schema, limits)
    yield from _guarded(connection, "sessions", "", _sessions(connection, schema, limits))
    for number, config in tubes:
        yield from _objects(connection, place, number, config)
        if not (recovering and config.temporary):  # what is not logged cannot be read there
            yield from _guarded(connection, "tube", config.name, _tube(connection, schema, number, config, limits))


def _tube(connection: Connection, schema: str, number: int, config: TubeConfig, limits: Limits) -> Iterator[Finding]:
    yield from _tasks(connection, schema, number, config, limits)
    yield from _counters(connection, schema, number, config, limits)
    if config.features.lanes:
        yield from _lanes(connection, schema, number, config, limits)


def _guarded(connection: Connection, check: str, subject: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """What cannot be looked at is a finding, and the rest is looked at all the same."""
    try:
        yield from findings
    except psycopg.Error as error:
        if connection.closed:
            raise
        step = "mend what is missing, then look again"
        yield Finding(check, subject, "bad", first_line(error), "this could not be looked at", step)


def _value(connection: Connection, question: str, *arguments: Any) -> Any:
    row = connection.execute(question, arguments).fetchone()
    return None if row is None else row[0]


def _migration(place: Place, *flags: str) -> str:
    """The command that mends functions."""
    url = place.address if place.schema == "penstock" else f"{place.address}?schema={quote(place.schema, safe='')}"
    return shlex.join(["python", "-m", "penstock.engines.postgres.migrate", *flags, url])


# -- the server ----------------------------------------------------------------------------------------


def _server(connection: Connection) -> Iterator[Finding]:
    version = connection.info.server_version
    shown = str(_value(connection, "select current_setting('server_version')"))
    level: Level = "ok" if version >= OLDEST_SERVER * 10_000 else "bad"
    needed = f"Penstock needs PostgreSQL {OLDEST_SERVER} or later"
    yield Finding("server version", "", level, shown, needed, "upgrade the server")
    if _value(connection, "select pg_is_in_recovery()"):
        yield Finding("standby", "", "ok", "in recovery", "this server can only be read until it is promoted")


def _settings(connection: Connection) -> Iterator[Finding]:
    wanted: tuple[tuple[str, str, Level, str], ...] = (
        ("fsync", "on", "bad", "a crash of the machine may destroy the database"),
        ("full_page_writes", "on", "bad", "a crash of the machine may destroy the database"),
        ("autovacuum", "on", "bad", "dead rows pile up and every call becomes slower"),
        ("track_counts", "on", "bad", "autovacuum does not know where it is needed"),
        (
            *("synchronous_commit", "on", "warn"),
            "puts and acks from SQL, and on connections of your own, may be lost in a crash of the server",
        ),
        ("default_transaction_isolation", "read committed", "warn", "calls fail that would only have to look again"),
    )
    for name, right, level, meaning in wanted:
        value = str(_value(connection, "select current_setting(%s)", name))
        good = value != "off" if name == "synchronous_commit" else value == right
        step = f"alter system set {name} = '{right}'; select pg_reload_conf()"
        yield Finding(f"setting {name}", "", "ok" if good else level, value, meaning, step)


def _connections(connection: Connection, limits: Limits) -> Iterator[Finding]:
    most = int(_value(connection, "select current_setting('max_connections')"))
    used = int(_value(connection, "select count(*) from pg_stat_activity where backend_type = 'client backend'"))
    yield Finding(
        "connections",
        "",
        graded(used / most, limits.share),
        f"{used} of {most}",
        "a process of Penstock uses one for calls, one to listen, and up to pool= more for a while",
        "raise max_connections, or lower pool= in the URLs",
    )


def _locks(connection: Connection, tubes: int, limits: Limits) -> Iterator[Finding]:
    each, most = (
        int(_value(connection, "select current_setting(%s)", name))
        for name in ("max_locks_per_transaction", "max_connections")
    )
    needed = tubes * LOCKS_A_TUBE
    yield Finding(
        "locks",
        "",
        graded(needed / (each * most), limits.share),
        f"about {needed} of {each * most} for {counted(tubes, 'tube')}",
        "a tick locks the tables of all tubes at once, and all locks of the server share one table",
        "raise max_locks_per_transaction",
    )


def _transactions(connection: Connection, limits: Limits) -> Iterator[Finding]:
    """What keeps dead rows from being removed: the oldest of each kind."""
    rows = connection.execute(
        """
        select 'transaction', pid::text || coalesce(' ' || nullif(application_name, ''), ''),
            extract(epoch from clock_timestamp() - xact_start), state, format('select pg_terminate_backend(%s)', pid)
        from pg_stat_activity
        where pid <> pg_backend_pid() and xact_start is not null and backend_type = 'client backend'
            and (backend_xmin is not null or backend_xid is not null or state ~ '^idle in transaction')
        union all
        select 'prepared transaction', gid, extract(epoch from clock_timestamp() - prepared), database,
            format('rollback prepared %L', gid)
        from pg_prepared_xacts
        union all
        select 'feedback of a standby', application_name, extract(epoch from clock_timestamp() - reply_time), state,
            'end the long query on that standby'
        from pg_stat_replication where backend_xmin is not null and age(backend_xmin) > 1000000
        order by 3 desc nulls last limit 10
        """
    ).fetchall()
    for check, subject, age, state, step in rows:
        level = graded(float(age or 0), limits.transaction)
        if level != "ok":
            meaning = f"({state}) dead rows that are younger than it stay, and history behind it is not shown"
            yield Finding(check, subject, level, how_long(float(age)), meaning, step)
    oldest = max((float(row[2] or 0) for row in rows), default=0.0)
    if graded(oldest, limits.transaction) == "ok":
        yield Finding("transaction", "", "ok", f"the oldest is {how_long(oldest)} old", "nothing keeps dead rows")


def _slots(connection: Connection, limits: Limits) -> Iterator[Finding]:
    rows = connection.execute(
        """
        select slot_name, active, coalesce(greatest(age(xmin), age(catalog_xmin)), 0), wal_status
        from pg_replication_slots order by 3 desc
        """
    ).fetchall()
    for name, active, age, wal in rows:
        level = graded(age, limits.slot)
        if level == "ok" and (not active or wal in ("unreserved", "lost")):
            level = "warn"
        value = f"{'active' if active else 'not active'}, {age} transactions behind, WAL {wal or 'not held'}"
        meaning = "a slot that nobody reads keeps dead rows and fills the disk with WAL"
        yield Finding("replication slot", name, level, value, meaning, f"select pg_drop_replication_slot('{name}')")


def _notifications(connection: Connection, limits: Limits) -> Iterator[Finding]:
    if _value(connection, "select pg_is_in_recovery()"):
        return
    used = float(_value(connection, "select pg_notification_queue_usage()"))
    meaning = "when it is full no transaction that wakes somebody can commit"
    step = "end the transaction of the session that listens and does not read: see the oldest transactions"
    yield Finding("notifications", "", graded(used, limits.share), f"{used:.0%} of the room is used", meaning, step)


# -- the schema ----------------------------------------------------------------------------------------


def _schema(connection: Connection, place: Place) -> Generator[Finding, None, bool]:
    """Yields what there is to say and answers whether the rest can be looked at."""
    schema = place.schema
    version = migrations.version(connection, schema)
    value = f"version {version}, this Penstock has {migrations.VERSION}"
    meaning = "tables and functions are those of one version"
    step = _migration(place)
    if version == 0:
        yield Finding("schema", schema, "bad", "is not there", "nobody has opened a queue here", step)
    elif version > migrations.VERSION:
        yield Finding("schema", schema, "bad", value, meaning, "upgrade the penstock package")
    elif version < migrations.VERSION or not migrations.is_current(connection, schema):
        yield Finding("schema", schema, "warn", value, "the next process that connects brings it up to date", step)
    else:
        yield Finding("schema", schema, "ok", value, meaning)
    return 0 < version <= migrations.VERSION


def _shared(connection: Connection, place: Place) -> Iterator[Finding]:
    """What all tubes share and the database lacks. An older version has had other tables."""
    if migrations.is_current(connection, place.schema):
        for name in anatomy.shared_tables(connection, place.schema):
            yield Finding("table", "", "bad", f"{name} is missing", "calls fail", "restore the schema from a backup")
        yield from _functions("", anatomy.shared_functions(connection, place.schema), place)


def _functions(subject: str, missing: list[str], place: Place) -> Iterator[Finding]:
    if missing:
        value = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        meaning = f"calls of {'this tube' if subject else 'all tubes'} fail"
        yield Finding("functions", subject, "bad", value, meaning, _migration(place, "--force"))


def _dead_rows(connection: Connection, schema: str, limits: Limits) -> Iterator[Finding]:
    rows = connection.execute(
        """
        select s.relname, s.n_dead_tup, s.n_live_tup, greatest(s.last_autovacuum, s.last_vacuum),
            coalesce('autovacuum_enabled=false' = any (c.reloptions), false)
        from pg_stat_user_tables s join pg_class c on c.oid = s.relid
        where s.schemaname = %s order by s.n_dead_tup desc
        """,
        [schema],
    ).fetchall()
    quiet = True
    for name, dead, live, vacuumed, off in rows:
        if dead - live < limits.dead and not off:
            continue
        quiet = False
        table = f"{templates.quoted(schema)}.{templates.quoted(name)}"
        level: Level = "bad" if off or dead - live >= 10 * limits.dead else "warn"
        when = f"vacuumed {vacuumed:%Y-%m-%d %H:%M}" if vacuumed else "never vacuumed"
        value = f"{counted(dead, 'dead row')}, {counted(live, 'live row')}, {when}"
        meaning = "autovacuum is switched off for it" if off else "vacuum does not keep up, or something keeps the rows"
        step = f"alter table {table} reset (autovacuum_enabled)" if off else f"vacuum (verbose) {table}"
        yield Finding("dead rows", name, level, value, meaning, step)
    if quiet:
        worst = f"at most {rows[0][1]} in {rows[0][0]}" if rows else "none"
        yield Finding("dead rows", "", "ok", worst, "vacuum keeps up")


def _sessions(connection: Connection, schema: str, limits: Limits) -> Iterator[Finding]:
    row = connection.execute(
        f"""
        select count(*), coalesce({templates.quoted(schema)}.now_us() - min(expires_at), 0) / 1e6
        from {templates.quoted(schema)}.sessions
        """
    ).fetchone()
    assert row is not None
    late = float(row[1])
    level: Level = "warn" if late > limits.overdue else "ok"
    value = f"{row[0]}" if level == "ok" else f"{row[0]}, one has been over for {how_long(late)}"
    step = "keep one process connected, or call q.tick() now and then"
    yield Finding(
        "sessions", "", level, value, "who may hold leases; the next call of anybody ends those that are over", step
    )


# -- tubes ---------------------------------------------------------------------------------------------


def _objects(connection: Connection, place: Place, number: int, config: TubeConfig) -> Iterator[Finding]:
    """What the templates make for a tube and the database lacks."""
    schema, subject = place.schema, config.name
    quoted = templates.quoted(schema)
    for name in anatomy.tables(connection, schema, number, config):
        left = f"select {quoted}.drop_parts({number}); delete from {quoted}.tubes where number = {number}"
        step = f"restore the schema from a backup, or drop what is left of the tube: {left}"
        yield Finding("table", subject, "bad", f"{name} is missing", "calls of this tube fail", step)
    for index in anatomy.indexes(connection, schema, number, config):
        if index.valid is None:
            meaning = "calls read whole tables"
            yield Finding("index", subject, "bad", f"{index.name} is missing", meaning, index.statement)
        else:
            step = f"reindex index concurrently {quoted}.{index.name}"
            yield Finding("index", subject, "bad", f"{index.name} is not valid", "it is kept up and not used", step)
    yield from _functions(subject, anatomy.functions(connection, schema, number, config), place)


def _tasks(connection: Connection, schema: str, number: int, config: TubeConfig, limits: Limits) -> Iterator[Finding]:
    table = f"{templates.quoted(schema)}.tasks_{number}"
    row = connection.execute(
        f"""
        with t (now) as (select {templates.quoted(schema)}.now_us())
        select (now - (select min(taken_at) from {table} where state = 'taken')) / 1e6,
            (now - (select ready_at from {table} where state = 'ready' order by seq limit 1)) / 1e6,
            (now - (select due_at from {table} where due_at is not null order by due_at limit 1)) / 1e6
        from t
        """
    ).fetchone()
    assert row is not None
    lease, ready, overdue = (None if age is None else float(age) for age in row)
    if lease is not None:
        level: Level = "warn" if lease > limits.lease else "ok"
        step = "snatch() gives the task to another; a ttr on the tube ends such leases by itself"
        yield Finding("oldest lease", config.name, level, how_long(lease), "since then its task has been taken", step)
    if ready is not None:
        level = "warn" if ready > limits.ready and not config.paused else "ok"
        why = "the tube is paused" if config.paused else "since then its oldest task has been ready"
        yield Finding(
            "oldest ready task",
            config.name,
            level,
            how_long(ready),
            why,
            "start more workers, or look whether its lane is paused",
        )
    if overdue is not None and overdue > limits.overdue:
        step = "keep one process connected, or call q.tick() now and then"
        yield Finding(
            "overdue", config.name, "warn", how_long(overdue), "what time should have done was not done", step
        )


def _counters(
    connection: Connection, schema: str, number: int, config: TubeConfig, limits: Limits
) -> Iterator[Finding]:
    table = f"{templates.quoted(schema)}.counts_{number}"
    rows = int(_value(connection, f"select count(*) from (select from {table} limit %s) c", limits.counters + MANY))
    level: Level = "warn" if rows > limits.counters else "ok"
    meaning = "rows of counters that a tick has to fold; statistics and capacity read them all"
    step = "keep one process connected, and look for old transactions"
    yield Finding("counters", config.name, level, counted(rows, "row"), meaning, step)


def _lanes(connection: Connection, schema: str, number: int, config: TubeConfig, limits: Limits) -> Iterator[Finding]:
    quoted = templates.quoted(schema)
    row = connection.execute(
        f"""
        select (
            select count(*) from (select lane from {quoted}.tickets_{number} limit %(most)s) k
            where not exists (
                select from {quoted}.tasks_{number} t where t.lane = k.lane and t.state = 'ready' and t.lane is not null
            )
        ), (
            select array_agg(l.lane) from (
                select distinct t.lane from {quoted}.tasks_{number} t
                where t.state = 'ready' and t.lane is not null
                    and not exists (select from {quoted}.tickets_{number} k where k.lane = t.lane)
                limit %(most)s
            ) l, {quoted}.tubes c
            where c.number = %(number)s and {quoted}.is_open_{number}(c, l.lane, {quoted}.now_us())
        )
        """,
        {"most": limits.tickets + MANY, "number": number},
    ).fetchone()
    assert row is not None
    stale, lost = row
    level: Level = "warn" if stale > limits.tickets else "ok"
    step = "keep workers running: takers clear them as they come by"
    yield Finding(
        "tickets", config.name, level, f"{stale} without a ready task", "takers look at each of them once", step
    )
    for lane in (lost or [])[:10]:
        step = (
            f"q.tube({config.name!r}).lane({lane!r}).configure(paused=False) lets it join the line again; report this"
        )
        yield Finding(
            "lane", config.name, "bad", repr(lane), "it is open, has a ready task and no place in the line", step
        )


# -- the program ---------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.engines.postgres.doctor",
        description="Looks at a queue on PostgreSQL, changes nothing, prints the worst first",
    )
    parser.add_argument("url", help="postgresql://user@host/database?schema=penstock")
    parser.add_argument("--all", action="store_true", help="print what is well, too")
    given = parser.parse_args(arguments)
    findings = examine(given.url)
    sys.stdout.write(summary(named(given.url), findings))
    sys.stdout.write(shown(findings, given.all))
    return exit_status(findings)


def named(url: str) -> str:
    """What was examined, without a password."""
    place = Place.parse(url)
    return f"{place.address}, schema {place.schema}"


if __name__ == "__main__":
    sys.exit(program.reported(main))
