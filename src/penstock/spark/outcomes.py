"""What became of the tasks of a batch, row by row: done, retry or bury.

A batch of a task stream is done as a whole once Spark has committed it: every task without an outcome is acked. An
outcome that was said before, in `foreachBatch`, is what happens to its task instead. The first one counts: a batch that
is handled again after a crash does not change its mind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock import payload
from penstock.engines import Engine
from penstock.model import ops
from penstock.model.duration import length
from penstock.model.errors import DuplicateKey, UsageError
from penstock.spark.options import Options
from penstock.spark.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = ("done", "retry", "bury")
COLUMNS = ("claim", "outcome", "error", "delay", "result")
SCHEMA = "claim bigint, outcome string, error string, delay double, result string"
_ARROW = pa.schema(
    [("claim", pa.int64()), *((name, pa.string()) for name in ("outcome", "error")), ("delay", pa.float64()),
     ("result", pa.string())]
)  # fmt: skip


def settle(outcomes: DataFrame, *, url: str, stream: str) -> int:
    """Say what became of tasks of a stream; answers how many were told of.

    `outcomes` has the columns claim (of the stream's rows) and outcome: done, retry or bury; and if needed error,
    delay in seconds (retry; else the tube's policy decides) and result as JSON text (done).

        def batch(df, number):
            handled = penstock.spark.attempt(df, fetch)
            penstock.spark.settle(handled, url="tasks.db", stream="crawl")
        stream.writeStream.foreachBatch(batch).start()
    """
    missing = [name for name in COLUMNS[:2] if name not in outcomes.columns]
    if missing:
        raise UsageError(f"settle() needs the columns claim and outcome; there is no {missing[0]!r}")
    place = Place(Options({"url": url}))
    chosen = outcomes.select(*(name for name in COLUMNS if name in outcomes.columns))
    written = chosen.mapInArrow(partial(_write_batches, place, stream), "written bigint")
    return int(written.groupBy().sum("written").collect()[0][0] or 0)


def attempt(rows: DataFrame, handler: Callable[[Mapping[str, Any]], object]) -> DataFrame:
    """Call a handler with each row, as a mapping of columns; answers outcomes for settle().

    What it returns is the result of a done task; what it raises makes the task fail, and the tube's policy decides
    whether it is tried again. A row that fails does not fail the batch. The DataFrame is lazy as any other: what uses
    it twice calls the handler twice.
    """
    return rows.mapInArrow(partial(_call, handler), SCHEMA)


def _call(
    handler: Callable[[Mapping[str, Any]], object], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [_outcome(handler, row) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def _outcome(handler: Callable[[Mapping[str, Any]], object], row: dict[str, Any]) -> dict[str, Any]:
    claim = row["claim"]
    try:
        result = handler(row)
    except Exception as error:
        return {"claim": claim, "outcome": "retry", "error": payload.error_text(error)}
    try:
        return {"claim": claim, "outcome": "done", "result": payload.encode_result(result)}
    except UsageError as error:
        # Another try would do the work once more and fail in the same way.
        told = payload.error_text(f"the work was done, but its result cannot be stored: {error}")
        return {"claim": claim, "outcome": "bury", "error": told}


def _write_batches(place: Place, stream: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    number = 0
    for batch in batches:
        number += write(place.store(), stream, batch.to_pylist())
    yield pa.RecordBatch.from_pydict({"written": pa.array([number], pa.int64())})


def write(engine: Engine, stream: str, rows: list[dict[str, Any]]) -> int:
    """Write outcomes down; those that were said before stay. Answers how many rows there were."""
    notes = sorted((int(row["claim"]), _note(row)) for row in rows)
    _check_claimed(engine, stream, [number for number, _ in notes])
    for _, run in groupby(enumerate(notes), lambda pair: pair[1][0] - pair[0]):
        found = [note for _, note in run]
        op = ops.WriteLedger(f"outcomes:{stream}", found[0][0], tuple(text for _, text in found))
        try:
            engine.execute(op)
        except DuplicateKey:
            _write_each(engine, op)
    return len(rows)


def _check_claimed(engine: Engine, stream: str, numbers: list[int]) -> None:
    """What is said of a claim before there is one would decide about a task that nobody has seen."""
    last = engine.execute(ops.LastNotes(f"claims:{stream}"))
    known = last[0].number if last else 0
    if numbers and not 1 <= numbers[0] <= numbers[-1] <= known:
        wrong = numbers[0] if numbers[0] < 1 else numbers[-1]
        raise UsageError(
            f"there is no claim {wrong}: stream {stream!r} has claimed {known}; "
            "give the claim column of its own rows, and the streamId as stream="
        )


def _write_each(engine: Engine, op: ops.WriteLedger) -> None:
    each = [ops.WriteLedger(op.ledger, number, (text,)) for number, text in enumerate(op.notes, op.first)]
    for answer in engine.execute_many(each):
        if isinstance(answer, Exception) and not isinstance(answer, DuplicateKey):
            raise answer


def _note(row: dict[str, Any]) -> str:
    if row["outcome"] not in KINDS:
        raise UsageError(f"outcome must be one of {', '.join(KINDS)}, got {row['outcome']!r} for claim {row['claim']}")
    said = {name: row[name] for name in COLUMNS[1:] if row.get(name) is not None}
    if "delay" in said:
        said["delay"] = length(said["delay"], "delay")
    if "error" in said:
        said["error"] = payload.error_text(said["error"])
    if "result" in said:
        said["result"] = _result(row["claim"], said["result"])
    return json.dumps(said)


def _result(claim: int, text: str) -> str | None:
    try:
        return payload.encode_result(payload.decode(text))
    except (UsageError, ValueError) as error:
        raise UsageError(f"the result of claim {claim} must be JSON that a task can hold: {error}") from None
