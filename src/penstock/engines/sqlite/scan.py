"""Scans of a SQLite file, on a connection of their own: whoever writes does not wait for them.

A read that lasts would keep the log from being written back, so each page is a transaction of its own. A seq is
given once, so no task is read twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import apsw

from penstock.engines import arrow
from penstock.engines.scan import PAGE, NotPlain, Scan
from penstock.engines.scan import batches as through_ops
from penstock.engines.sqlite.database import Database, unavailable
from penstock.engines.sqlite.place import Place
from penstock.engines.sqlite.store import SqliteStore
from penstock.model.errors import TubeNotFound
from penstock.model.tube import TubeConfig

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_ID = (
    "CASE WHEN typeof({0}) = 'text' AND ({0} GLOB '\"*' OR substr({0}, 1 + ({0} GLOB '-?*')) NOT GLOB '*[^0-9]*') "
    "THEN json_quote({0}) ELSE CAST({0} AS TEXT) END"
)
"""As scan.id_text has it. No id is empty."""
LARGE = ("data", "body", "result", "error", "errors")
AT_ONCE = 20
PAGE_BYTES = 16 << 20
"""A page ends with the row that makes it larger than this, about."""
TYPED = {
    "data": "CASE WHEN typeof(data) = 'text' THEN data END",
    "body": "CASE WHEN typeof(data) = 'blob' THEN data END",
    "task_id": TEXT_ID.format("task_id"),
}


def batches(store: SqliteStore, scan: Scan) -> Iterator[pa.RecordBatch]:
    """The rows of a scan."""
    try:
        yield from visited(store._place, scan)
    except NotPlain:
        yield from through_ops(store, scan)


def visited(place: Place, scan: Scan) -> Iterator[pa.RecordBatch]:
    """The rows of a scan, whether this process has the store open or not."""
    database = Database(place.path, "NORMAL", read_only=True)
    try:
        if not database.schema_version():
            raise TubeNotFound(f"{place.path} holds no queue")
        found = _tubes(database)
        if scan.what == "events":
            if any(_is_composite(config) for _, config in found.values()):
                raise NotPlain
            yield from _pages(database, "penstock_events", scan, TYPED)
        else:
            number, config = _known(found, scan)
            if config.adopted is not None:
                raise NotPlain
            yield from _tasks(database, place, scan, number, config)
    except apsw.Error as error:
        raise unavailable(place.path, error) from error
    finally:
        database.close()


def _is_composite(config: TubeConfig) -> bool:
    return len((config.adopted or {}).get("key", ())) > 1


def _tubes(database: Database) -> dict[str, tuple[int, TubeConfig]]:
    rows = database.rows("SELECT number, name, config FROM penstock_tubes")
    return {name: (number, TubeConfig.from_json(json.loads(text))) for number, name, text in rows}


def _known(found: dict[str, tuple[int, TubeConfig]], scan: Scan) -> tuple[int, TubeConfig]:
    if scan.tube not in found:
        raise TubeNotFound(f"there is no tube {scan.tube!r}; create_tube({scan.tube!r}) makes it")
    return found[scan.tube]


def _tasks(database: Database, place: Place, scan: Scan, number: int, config: TubeConfig) -> Iterator[pa.RecordBatch]:
    own_id = config.id not in ("auto", "time64")
    shown = {**TYPED, "id": TEXT_ID.format("id") if own_id else "CAST(seq AS TEXT)"}
    table = f'"penstock_tasks_{number}"'
    if not config.temporary:
        yield from _pages(database, table, scan, shown)
        return
    temporary = Database(place.beside("-temporary"), "OFF", read_only=True)
    try:
        yield from _pages(temporary, table, scan, shown)
    finally:
        temporary.close()


def _pages(database: Database, table: str, scan: Scan, shown: dict[str, str]) -> Iterator[pa.RecordBatch]:
    kinds = scan.kinds
    columns = ", ".join(["seq", *(shown.get(name, name) for name in kinds)])
    where, values = _condition(scan)
    sql = f"SELECT {columns} FROM {table} WHERE seq > ? AND {where} ORDER BY seq LIMIT {PAGE}"  # noqa: S608
    last = max(0, scan.lo)  # row 0 of a tube is no task
    large = [place for place, name in enumerate(kinds, 1) if name in LARGE]
    full = True
    while full:
        page, full = _page(database.execute(sql, (last, *values)), len(kinds) + 1, large)
        if page[0]:
            last = page[0][-1]
            yield arrow.from_columns(kinds, page[1:])


def _page(cursor: apsw.Cursor, width: int, large: list[int]) -> tuple[list[list[Any]], bool]:
    """The columns of a page, and whether there may be more."""
    columns: list[list[Any]] = [[] for _ in range(width)]
    size = 0
    while some := list(islice(cursor, AT_ONCE)):
        # Few rows are kept as objects of their own: the collector of garbage would look at them all.
        for column, values in zip(columns, zip(*some, strict=True), strict=True):
            column += values
        size += sum(len(row[place]) for place in large for row in some if row[place] is not None)
        if size >= PAGE_BYTES:
            cursor.close()
            return columns, True
    return columns, len(columns[0]) == PAGE


def _condition(scan: Scan) -> tuple[str, list[Any]]:
    parts, values = ["1"], list[Any]()
    if scan.hi is not None:
        parts.append("seq <= ?")
        values.append(scan.hi)
    if scan.what == "events" and scan.tube is not None:
        parts.append("tube = ?")
        values.append(scan.tube)
    for column, wanted in ((scan.state_column, scan.states), ("lane", scan.lanes)):
        if wanted is not None:
            parts.append(f"{column} IN (SELECT value FROM json_each(?))")  # noqa: S608
            values.append(json.dumps(wanted))
    moment = "at" if scan.what == "events" else "coalesce(done_at, created_at)" if scan.by_end else "created_at"
    for compared, limit in ((">=", scan.since), ("<", scan.until)):
        if limit is not None:
            parts.append(f"{moment} {compared} ?")
            values.append(limit)
    return " AND ".join(parts), values
