"""A stream of rows into a tube, every batch exactly once.

A sink is a ledger whose numbers are those of the batches. A batch and its number are written in one transaction, so a
batch that comes again, in whatever partitions, is known.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.errors import UsageError
from penstock.model.task import OnConflict
from penstock.spark import jobs
from penstock.spark.jobs import Part
from penstock.spark.options import Options
from penstock.spark.place import Place
from penstock.spark.rows import Shape, rows, shape
from penstock.spark.writing import CONFLICTS, PORTION, stage

PREFIX = "sink:"
SPARKS = ("checkpointLocation", "queryName", "path")
"""Options of Spark's own."""
KEPT = 1000
"""Batches whose notes are kept."""


@dataclass
class StagedBatch(WriterCommitMessage):
    """What an attempt at a partition of a batch has staged."""

    run: str
    query: str
    batch: int
    part: str
    rows: int


class Sink(DataSourceStreamArrowWriter):
    """Puts the rows of a streaming query. The object that commits a batch is not the one that staged it."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_known("url", "tube", "feed", "sinkId", "onConflict", "stageBytes", *SPARKS)
        if options.feed != "tasks":
            raise UsageError(f"feed {options.feed!r} cannot be written; tasks can")
        self._place = Place(options)
        self._tube = options.tube
        self._sink = options.name("sinkId")
        self._on_conflict: OnConflict = options.choice("onConflict", CONFLICTS, "ignore")  # type: ignore[assignment]
        self._portion = options.number("stageBytes", PORTION)
        self._run = uuid.uuid4().hex
        with self._place.borrowed() as engine:
            self._shape: Shape = shape(schema, engine.execute(ops.GetTube(self._tube)))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatch:
        """Stage what an attempt at a partition of a batch gives."""
        context = TaskContext.get()
        assert context is not None
        query = str(context.getLocalProperty("sql.streaming.queryId"))
        batch = int(str(context.getLocalProperty("streaming.sql.batchId")))
        run = f"{PREFIX}{query}:{batch}:{self._run}"
        part = f"{context.partitionId()}-{context.taskAttemptId()}"
        batches = (rows(one, self._shape) for one in iterator if len(one))
        with self._place.borrowed() as engine:
            number = stage(engine, self._tube, run, part, batches, self._portion)
        return StagedBatch(run, query, batch, part, number)

    def commit(self, messages: list[StagedBatch | None], batchId: int) -> None:  # type: ignore[override]
        """All partitions of a batch are staged: make tasks of them, unless that was done before."""
        staged = [message for message in messages if message is not None]
        if not staged:
            return
        query, run = staged[0].query, staged[0].run
        if any((message.query, message.run, message.batch) != (query, run, batchId) for message in staged):
            raise UsageError(f"batch {batchId} of query {query} was staged by several queries: {staged}")
        engine = self._place.store()
        ledger = PREFIX + (self._sink or query)
        if not _is_committed(engine, ledger, query, batchId):
            number = sum(message.rows for message in staged)
            note = msgspec.json.encode({"query": query, "rows": number}).decode()
            parts = [Part(message.part, message.rows) for message in staged]
            done = jobs.promote(engine, ledger, batchId, note, run, self._tube, parts, self._on_conflict)
            if done is None:  # by an earlier try, or by another query at the same moment
                _is_committed(engine, ledger, query, batchId)
        jobs.discard(engine, run)
        if batchId % KEPT == 0 and batchId >= KEPT:
            engine.execute(ops.TrimLedger(ledger, batchId - KEPT))
        jobs.clean_sometimes(engine)

    def abort(self, messages: list[StagedBatch | None], batchId: int) -> None:  # type: ignore[override]
        """A batch has failed, and comes again. Whatever was staged for it is staged again then."""
        for run in {message.run for message in messages if message is not None}:
            with self._place.borrowed() as engine:
                jobs.discard(engine, run)


def _is_committed(engine: Engine, ledger: str, query: str, batch: int) -> bool:
    """True for a batch that was committed; refuses a query that is not the one of the sink."""
    last = engine.execute(ops.LastNotes(ledger))
    if not last:
        return False
    said: dict[str, Any] = msgspec.json.decode(last[0].text)
    if said["query"] != query:
        raise UsageError(
            f"sink {ledger.removeprefix(PREFIX)!r} belongs to query {said['query']}, and this one is {query}: their "
            "batches have the same numbers; give each query a sinkId of its own, also after its checkpoint was deleted"
        )
    return last[0].number >= batch
