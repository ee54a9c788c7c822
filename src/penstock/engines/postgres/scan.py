"""Scans by COPY: rows come as CSV text that Arrow reads, and Python handles none of their values.

One statement is one snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy
import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
from psycopg import sql
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from penstock.engines import arrow
from penstock.engines.postgres import migrations, templates, tubes
from penstock.engines.postgres.answers import Tube
from penstock.engines.postgres.connections import check_server, refused, visit
from penstock.engines.postgres.place import Place
from penstock.engines.postgres.store import PostgresStore
from penstock.engines.scan import PAGE, NotPlain, Scan
from penstock.engines.scan import batches as through_ops

Connection = psycopg.Connection[Any]
BATCH_BYTES = 8 << 20
AT_ONCE = 100
LAST = (-1, b"")
"""What the driver answers after the last row."""
DELIMITER, QUOTE = "\x02", "\x01"
TEXT_ID = """case when left({0}, 1) = '"' and {0} !~ '^"(-?[0-9]+"$|\\\\")' then {0}::json #>> '{{}}' else {0} end"""
"""Ids are stored as JSON. Text is shown as such, unless it looks like something else (scan.id_text)."""


def batches(store: PostgresStore, scan: Scan) -> Iterator[pa.RecordBatch]:
    """The rows of a scan."""
    try:
        with store._connections.borrowed() as connection:
            yield from _copied(connection, store.schema, scan)
    except NotPlain:
        yield from through_ops(store, scan)
    except psycopg.Error as error:
        raise refused(error) from error


def visited(place: Place, scan: Scan) -> Iterator[pa.RecordBatch]:
    """The rows of a scan, over a connection for it alone."""
    with visit(place) as connection:
        check_server(connection)
        migrations.check(migrations.version(connection, place.schema), place.schema)
        yield from _copied(connection, templates.quoted(place.schema), scan)


def _copied(connection: Connection, schema: str, scan: Scan) -> Iterator[pa.RecordBatch]:
    tube = None if scan.what == "events" else tubes.existing(connection, schema, str(scan.tube))
    if tube is not None and tube.config.adopted is not None:
        raise NotPlain
    sent = _sent(scan, tube)
    query = f"select {_shown(sent)} from {_table(schema, tube)} where {_condition(connection, schema, scan)}"
    # Quoting by characters that hardly any text has: JSON is full of quotation marks, which would be doubled.
    options = f"format csv, delimiter E'\\x{ord(DELIMITER):02x}', quote E'\\x{ord(QUOTE):02x}'"
    for text in _texts(connection, f"copy ({query} order by seq) to stdout ({options})"):
        yield _read(text, sent, scan.kinds)


def _texts(connection: Connection, statement: str) -> Iterator[bytes]:
    """The rows of a COPY, many together. They come one by one: the loop over them is not one of Python's.

    The driver waits for the first, so a call that takes long to begin can be interrupted.
    """
    with connection.cursor().copy(statement) as copy:
        first = copy.read()
        if not first:
            return
        parts, number, size = [bytes(first)], 1, len(first)
        others = iter(partial(connection.pgconn.get_copy_data, 0), LAST)
        while got := list(islice(others, AT_ONCE)):
            # Few rows are kept as objects of their own: the collector of garbage would look at them all.
            parts.append(b"".join([row for _, row in got]))
            number += len(got)
            size += len(parts[-1])
            if number >= PAGE or size >= BATCH_BYTES:
                yield b"".join(parts)
                parts, number, size = [], 0, 0
        _end(connection)
        if parts:
            yield b"".join(parts)


def _end(connection: Connection) -> None:
    """After the last row: whether it was the last."""
    while (result := connection.pgconn.get_result()) is not None:
        if result.status != ExecStatus.COMMAND_OK:
            raise error_from_result(result)


def _table(schema: str, tube: Tube | None) -> str:
    return f"{schema}.events" if tube is None else f"{schema}.tasks_{tube.number}"


def _sent(scan: Scan, tube: Tube | None) -> dict[str, str]:
    """The columns that the server sends. Ids that are numbers are made of them here, which is cheaper."""
    kinds = scan.kinds
    if "id" not in kinds or tube is None or tube.config.id not in ("auto", "time64"):
        return kinds
    return {"seq": "bigint", **{name: kind for name, kind in kinds.items() if name != "id"}}


def _shown(sent: Mapping[str, str]) -> str:
    """The columns, as they are to be read."""
    shown = {"id": TEXT_ID.format("id"), "task_id": TEXT_ID.format("task_id"), "body": "encode(body, 'hex')"}
    return ", ".join(shown.get(name, name) for name in sent)


def _condition(connection: Connection, schema: str, scan: Scan) -> str:
    """What rows have to be; COPY takes no parameters, so the driver writes the values."""

    def written(value: Any) -> str:
        return sql.Literal(value).as_string(connection)

    parts = [f"seq > {written(scan.lo)}"]
    if scan.hi is not None:
        parts.append(f"seq <= {written(scan.hi)}")
    if scan.what == "events" and scan.tube is not None:
        parts.append(f"tube = {written(scan.tube)}")
    for column, wanted in ((scan.state_column, scan.states), ("lane", scan.lanes)):
        if wanted is not None:
            parts.append(f"{column} = any ({written(list(wanted))}::text[])")
    moment = "at" if scan.what == "events" else "coalesce(done_at, created_at)" if scan.by_end else "created_at"
    for compared, limit in ((">=", scan.since), ("<", scan.until)):
        if limit is not None:
            parts.append(f"{moment} {compared} {written(limit)}")
    if scan.what == "events":
        # What an older open transaction could still come before is not shown yet, as in read_history().
        base = f"(select event_base from {schema}.store)"
        parts.append(f"seq < (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + {base}) << 24")
    return " and ".join(parts)


def _read(text: bytes, sent: Mapping[str, str], kinds: Mapping[str, str]) -> pa.RecordBatch:
    """Whole rows of CSV. They are one block, because Arrow does not find the ends of rows by itself in every text."""
    types = {name: pa.string() if kind == "binary" else arrow.stored(kind) for name, kind in sent.items()}
    table = pa_csv.read_csv(
        pa.BufferReader(text),
        pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(sent)),
        pa_csv.ParseOptions(delimiter=DELIMITER, quote_char=QUOTE, newlines_in_values=True, ignore_empty_lines=False),
        pa_csv.ConvertOptions(
            check_utf8=False,
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = {name: _array(table.column(name), kind) for name, kind in sent.items()}
    if "id" not in columns and "id" in kinds:
        columns["id"] = columns["seq"].cast(pa.string())
    return arrow.shown(kinds, [columns[name] for name in kinds])


def _array(column: pa.ChunkedArray, kind: str) -> pa.Array:
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return _from_hex(array) if kind == "binary" else array


def _from_hex(array: pa.StringArray) -> pa.BinaryArray:
    """Bytes from their digits, all rows at one time."""
    _, offsets, digits = array.buffers()
    places = numpy.frombuffer(offsets, dtype=numpy.int32)[array.offset : array.offset + len(array) + 1]
    start, end = int(places[0]), int(places[-1])
    data = bytes.fromhex(digits.slice(start, end - start).to_pybytes().decode()) if end > start else b""
    buffers = [None, pa.py_buffer(((places - start) // 2).astype(numpy.int32).tobytes()), pa.py_buffer(data)]
    if array.null_count:
        buffers[0] = array.is_valid().buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(array), buffers)
