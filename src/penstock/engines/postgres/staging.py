"""Staged rows: an unlogged table for every portion, filled by COPY and promoted by one INSERT .. SELECT.

A portion has a table of its own because one COPY into a new table keeps the order of its rows. What it holds is said
in its comment, so the tables are their own register and a table that is dropped is forgotten by the same step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from penstock.engines.postgres.call import Context
from penstock.model import ops
from penstock.model.errors import UsageError
from penstock.model.staging import StagedJob, check_tube

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.staged import Extent

Connection = psycopg.Connection[Any]
TYPES = {"data": "json", "body": "bytea", "lane": "text", "key": "text"}
"""Types of columns that are no numbers. JSON is read by the server here, by many connections, and not once more."""
WRITE = 1 << 24
"""Bytes of a portion that are made into text at a time, so that the server works while the next are made."""
MOST = 50
"""Tables that one call drops; each needs a few locks, and the server has room for some thousands."""


class Portion(NamedTuple):
    """A table of staged rows, as its comment tells."""

    table: str
    job: str
    part: str
    number: int
    tube: str
    at: int
    extent: Extent


def stage(connection: Connection, context: Context, op: ops.Stage) -> int:
    """Copy rows into a table of their own."""
    from penstock.engines import staged

    rows = staged.read(op.rows)
    if not len(rows):
        return 0
    check_tube(op.job, op.tube, _tube_of(connection, context, op.job))
    stored = [_stored(field) for field in rows.schema]
    extent = staged.extent(rows)._replace(columns=tuple(stored))
    number = len(portions(connection, context, op.job, op.part))
    name = f"{_prefix(op.job, op.part)}{number}"
    columns = ", ".join(f"{column} {TYPES.get(column, 'bigint')}" for column in stored)
    table = f"{context.schema}.{name}"
    if context.relaxed:
        connection.execute("set local synchronous_commit = off")
    connection.execute(f"create unlogged table {table} ({columns}) with (autovacuum_enabled = off)")
    (now,) = connection.execute(f"select {context.schema}.now_us(%s)", [context.now]).fetchone() or (0,)
    said = json.dumps([op.job, op.part, number, op.tube, now, *extent])
    connection.execute(sql.SQL("comment on table {} is {}").format(sql.SQL(table), sql.Literal(said)))
    into = f"copy {table} from stdin with (format text, encoding 'utf8', freeze true)"
    try:
        with connection.cursor().copy(into) as copy:
            for part in _split(rows):
                copy.write(lines(part))
    except psycopg.errors.DataError as error:
        raise UsageError(f"rows cannot be staged: {error.diag.message_primary} ({error.diag.context})") from error
    return len(rows)


def _stored(field: pa.Field) -> str:
    """The name of a column in the table: a delay that is a moment has another one."""
    return "delay_until" if field.name == "delay" and str(field.type).startswith("timestamp") else str(field.name)


def _split(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    size = max(1, int(len(rows) * WRITE / max(1, rows.nbytes)))
    yield from rows.combine_chunks().to_batches(max_chunksize=size)


def lines(rows: pa.RecordBatch) -> memoryview:
    """Rows as COPY reads them, made column by column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [_text(rows.column(i)) for i in range(rows.num_columns)]
    joined = pc.binary_join_element_wise(*columns, "\t", null_handling="replace", null_replacement="\\N")
    ended = pc.binary_join_element_wise(joined, "", "\n")
    _, offsets, content = ended.buffers()
    first, last = (pa.Array.from_buffers(pa.int32(), 1, [None, offsets], offset=i)[0].as_py() for i in (0, len(ended)))
    return memoryview(content)[first:last]


def _text(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type == pa.binary():
        return pa.array([f"\\\\x{body.hex()}" for body in column.to_pylist()])
    if column.type != pa.string():
        return column.cast(pa.int64()).cast(pa.string())
    content = _content(column)
    for raw, written in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        if raw.encode() in content:
            column = pc.replace_substring(column, raw, written)
    return column


def _content(column: pa.Array) -> bytes:
    """All texts of a column as one: to look for a character there is many times cheaper than in each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = column.drop_null()
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    return bytes(pc.binary_join(whole, "")[0].as_buffer())


def _prefix(job: str, part: str = "") -> str:
    """How the names of a job's tables begin; jobs and parts may be called anything."""
    digest = [hashlib.sha256(text.encode()).hexdigest()[:20] for text in (job, part)]
    return f"stage_{digest[0]}_{digest[1]}_" if part else f"stage_{digest[0]}_"


def portions(connection: Connection, context: Context, job: str = "", part: str = "") -> list[Portion]:
    """Tables of staged rows: all of them, those of a job, or those of a part; in the order they were made in."""
    from penstock.engines.staged import Extent

    pattern = (_prefix(job, part) if job else "stage_").replace("_", "\\_") + "%"
    rows = connection.execute(
        "select relname, obj_description(oid, 'pg_class') from pg_class "
        "where relnamespace = %s::regnamespace and relkind = 'r' and relname like %s",
        [context.schema, pattern],
    ).fetchall()
    found = []
    for table, said in rows:
        if said is not None:
            of_job, of_part, number, tube, at, count, columns, longest = json.loads(said)
            extent = Extent(count, tuple(columns), longest)
            found.append(Portion(table, of_job, of_part, number, tube, at, extent))
    return sorted(found, key=lambda portion: (portion.job, portion.part, portion.number))


def _tube_of(connection: Connection, context: Context, job: str) -> str | None:
    """The tube that a job stages for, as one of its tables tells: there may be very many."""
    found = connection.execute(
        "select obj_description(oid, 'pg_class') from pg_class "
        "where relnamespace = %s::regnamespace and relkind = 'r' and relname like %s limit 1",
        [context.schema, _prefix(job).replace("_", "\\_") + "%"],
    ).fetchone()
    if found is None or found[0] is None:
        return None
    tube: str = json.loads(found[0])[3]
    return tube


def discard(connection: Connection, context: Context, op: ops.Discard) -> int:
    """Drop the tables of a job; of very many, the first."""
    found = portions(connection, context, op.job)[:MOST]
    if found:
        names = ", ".join(f"{context.schema}.{portion.table}" for portion in found)
        connection.execute(f"drop table if exists {names}")  # two may discard at once
    return len({portion.part for portion in found})


def listed(connection: Connection, context: Context) -> list[StagedJob]:
    """Jobs that have staged rows."""
    jobs: dict[str, list[Portion]] = {}
    for portion in portions(connection, context):
        jobs.setdefault(portion.job, []).append(portion)
    return [_job(job, of_job) for job, of_job in sorted(jobs.items())]


def _job(job: str, found: Sequence[Portion]) -> StagedJob:
    parts = len({portion.part for portion in found})
    return StagedJob(job, found[0].tube, parts, max(portion.at for portion in found))
