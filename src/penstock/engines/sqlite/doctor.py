"""What a queue in a SQLite file suffers from, or will: `examine(url)` answers findings, worst first. It only reads."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw

from penstock.engines.finding import Finding, Level, counted, graded, how_long, ranked
from penstock.engines.sqlite import statements
from penstock.engines.sqlite.database import Database, migrations
from penstock.engines.sqlite.head import Head
from penstock.engines.sqlite.place import Place
from penstock.engines.sqlite.statements import render
from penstock.model.clock import SystemClock
from penstock.model.duration import SECOND
from penstock.model.errors import EngineUnavailable
from penstock.model.state import State
from penstock.model.tube import TubeConfig

_SQL = statements.named("store.sql")
PARTS = ("due", "taken", "buried", "key", "put_id", "ready")
IN_LANES = ("waiting", "slot")


class Limits(NamedTuple):
    """What is too much. Ages are seconds, sizes bytes; the first of a pair is a warning, the second is bad."""

    wal: tuple[int, int] = (256 << 20, 4 << 30)
    free_pages: tuple[float, int] = (0.5, 64 << 20)
    """The share of the file, and at least so many bytes."""
    disk: tuple[float, float] = (0.9, 0.98)
    lease: float = 24 * 3600
    ready: float = 3600
    overdue: float = 60


def examine(url: str, limits: Limits | None = None) -> list[Finding]:
    """Look at a file. Nothing is changed."""
    place = Place.parse(url)
    if not place.path.exists():
        raise EngineUnavailable(f"{place.path} does not exist; `penstock migrate` or the first connect() makes it")
    try:
        database = Database(place.path, "NORMAL", read_only=True)
    except EngineUnavailable as error:
        if not isinstance(error.__cause__, apsw.CorruptError):
            raise
        return [_damaged(place, str(error.__cause__))]
    try:
        return ranked(_all(database, place, limits or Limits()))
    finally:
        database.close()


def named(url: str) -> str:
    """What was examined."""
    return str(Place.parse(url).path)


def _all(database: Database, place: Place, limits: Limits) -> Iterator[Finding]:
    yield Finding("SQLite", "", "ok", apsw.sqlite_lib_version(), "the library that reads the file")
    yield from _disk(place, limits)
    try:
        yield from _integrity(database, place)
        yield from _journal(database, place, limits)
        yield from _free_pages(database, place, limits)
        version, newest = database.schema_version(), len(migrations("migrations"))
        yield _schema(place, version, newest)
        if 0 < version <= newest:
            yield from _inside(database, place, limits)
    except apsw.Error as error:
        yield _damaged(place, str(error))


# -- the file ------------------------------------------------------------------------------------------


def _disk(place: Place, limits: Limits) -> Iterator[Finding]:
    total, _, free = shutil.disk_usage(place.path.parent)
    level = graded(1 - free / total, limits.disk)
    yield Finding(
        "disk", "", level, f"{_size(free)} of {_size(total)} are free", "a full disk stops every put", "make room"
    )
    size = place.path.stat().st_size
    yield Finding("file", "", "ok", _size(size), "the file without its log")


def _integrity(database: Database, place: Place) -> Iterator[Finding]:
    """Every page is read."""
    found = [str(row[0]) for row in database.rows("PRAGMA integrity_check(5)")]
    if found == ["ok"]:
        yield Finding("integrity", "", "ok", "every page is sound", "what is stored can be read")
    else:
        yield _damaged(place, "; ".join(" ".join(text.split()) for text in found))


def _damaged(place: Place, what: str) -> Finding:
    path = shlex.quote(str(place.path))
    step = f"stop all processes, then restore a backup, or save what can be read: sqlite3 {path} .recover"
    return Finding("integrity", "", "bad", what, "the file is damaged: tasks may be lost or done twice", step)


def _journal(database: Database, place: Place, limits: Limits) -> Iterator[Finding]:
    mode = str(database.value("PRAGMA journal_mode"))
    meaning = "readers and a writer do not wait for each other"
    step = "open it with penstock.connect(), which sets it"
    yield Finding("journal mode", "", "ok" if mode == "wal" else "bad", mode, meaning, step)
    log = _log_size(place.path)
    meaning = "what is not yet in the file: a reader that never ends keeps it from being taken over"
    step = "end the process that reads for so long, or close all of them: the last one takes it over"
    yield Finding("log", "", graded(log, limits.wal), _size(log), meaning, step)


def _log_size(path: Path) -> int:
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def _free_pages(database: Database, place: Place, limits: Limits) -> Iterator[Finding]:
    pages, free, size = (
        int(database.value(f"PRAGMA {name}")) for name in ("page_count", "freelist_count", "page_size")
    )
    share, least = limits.free_pages
    much = free > share * pages and free * size >= least
    step = f"stop all processes, then: sqlite3 {shlex.quote(str(place.path))} vacuum"
    value = f"{_size(free * size)} in {counted(free, 'page')}"
    yield Finding("free pages", "", "warn" if much else "ok", value, "the file keeps them for what is put next", step)


def _schema(place: Place, version: int, newest: int) -> Finding:
    value = f"version {version}, this Penstock has {newest}"
    step = f"penstock migrate --url {shlex.quote(str(place.path))}"
    if version == 0:
        return Finding("schema", "", "bad", "is not there", "nobody has opened a queue here", step)
    if version > newest:
        return Finding("schema", "", "bad", value, "it was made by a newer one", "upgrade the penstock package")
    level: Level = "ok" if version == newest else "warn"
    return Finding("schema", "", level, value, "the next process that connects brings it up to date", step)


# -- sessions and tubes --------------------------------------------------------------------------------


def _inside(main: Database, place: Place, limits: Limits) -> Iterator[Finding]:
    now = SystemClock().now()
    path = place.beside("-temporary")
    temporary = Database(path, "OFF", read_only=True) if path.exists() else None
    try:
        for database in filter(None, (main, temporary)):
            database.execute("BEGIN")
        yield from _sessions(main, now, limits)
        for number, name, text in main.rows(_SQL["load_tubes"]):
            config = TubeConfig.from_json(json.loads(text))
            where = temporary if config.temporary else main
            if where is None or not where.value(render(number, config)["find_table"]):
                yield _without_table(name, number, config)
                continue
            yield from _indexes(where, number, config)
            yield from _counters(where, number, config)
            yield from _ages(where, number, config, now, limits)
    finally:
        if temporary is not None:
            temporary.close()


def _sessions(main: Database, now: int, limits: Limits) -> Iterator[Finding]:
    number, first = main.rows("SELECT count(*), min(expires_at) FROM penstock_sessions")[0]
    late = 0.0 if first is None else max(0, now - first) / SECOND
    value = f"{number}" if late <= limits.overdue else f"{number}, one has been over for {how_long(late)}"
    meaning = "who may hold leases; the next process that connects ends those that are over"
    yield Finding("sessions", "", "ok", value, meaning)


def _without_table(name: str, number: int, config: TubeConfig) -> Finding:
    table = f"penstock_tasks_{number}"
    if config.temporary:
        return Finding("table", name, "ok", "temporary, and gone", "it is made anew at the next run")
    step = f"restore a backup, or forget the tube: delete from penstock_tubes where number = {number}"  # noqa: S608
    return Finding("table", name, "bad", f"{table} is missing", "calls of this tube fail", step)


def _indexes(database: Database, number: int, config: TubeConfig) -> Iterator[Finding]:
    sql = render(number, config)
    there = {row[0] for row in database.rows("SELECT name FROM sqlite_schema WHERE type = 'index'")}
    for part in PARTS + (IN_LANES if config.features.lanes else ()):
        name = f"penstock_tasks_{number}_{part}"
        if name not in there:
            step = " ".join(sql[f"create_{part}_index"].split())
            yield Finding("index", config.name, "bad", f"{name} is missing", "calls read whole tables", step)


def _counters(database: Database, number: int, config: TubeConfig) -> Iterator[Finding]:
    """Every row is read."""
    table = f"penstock_tasks_{number}"
    head = Head(database.value(render(number, config)["load_head"]))
    stored: dict[str, int] = dict(database.rows(f"SELECT state, count(*) FROM {table} WHERE seq > 0 GROUP BY state"))  # noqa: S608
    wrong = [
        f"{state} {head.counters.rows(state)} counted, {stored.get(state, 0)} stored"
        for state in State
        if head.counters.rows(state) != stored.get(state, 0)
    ]
    value = ", ".join(wrong) or f"{counted(sum(stored.values()), 'row')}, as counted"
    step = "somebody has written to the table by hand: empty the tube with truncate(), or restore a backup"
    level: Level = "bad" if wrong else "ok"
    yield Finding("counters", config.name, level, value, "statistics and capacity go by them", step)


def _ages(database: Database, number: int, config: TubeConfig, now: int, limits: Limits) -> Iterator[Finding]:
    table = f"penstock_tasks_{number}"
    lease, ready, overdue = (
        None if moment is None else (now - moment) / SECOND
        for moment in (
            database.value(f"SELECT min(taken_at) FROM {table} WHERE state = 'taken'"),  # noqa: S608
            database.value(f"SELECT min(ready_at) FROM {table} WHERE state = 'ready'"),  # noqa: S608
            database.value(f"SELECT min(due_at) FROM {table} WHERE due_at IS NOT NULL"),  # noqa: S608
        )
    )
    if lease is not None:
        level: Level = "warn" if lease > limits.lease else "ok"
        step = "snatch() gives the task to another; a ttr on the tube ends such leases by itself"
        yield Finding("oldest lease", config.name, level, how_long(lease), "since then its task has been taken", step)
    if ready is not None:
        level = "warn" if ready > limits.ready and not config.paused else "ok"
        why = "the tube is paused" if config.paused else "since then its oldest task has been ready"
        step = "start more workers, or look whether its lane is paused"
        yield Finding("oldest ready task", config.name, level, how_long(ready), why, step)
    if overdue is not None and overdue > limits.overdue:
        meaning = "what time should have done was not done; the next process that connects does it"
        step = "keep one process connected, or call q.tick() now and then"
        yield Finding("overdue", config.name, "warn", how_long(overdue), meaning, step)


def _size(number: int) -> str:
    """Bytes for people.

    >>> _size(2048), _size(3 << 30)
    ('2.0 KiB', '3.0 GiB')
    """
    size = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
