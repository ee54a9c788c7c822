"""Putting a DataFrame into a tube, every row exactly once.

Each attempt at a partition stages its rows under a name of its own. The driver learns which attempts count, and makes
tasks of theirs, and of no others, in one transaction that also says that the job is done.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import get_args

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.errors import UsageError
from penstock.model.task import OnConflict
from penstock.spark import jobs
from penstock.spark.collector import spare_modules
from penstock.spark.jobs import Part
from penstock.spark.options import Options
from penstock.spark.place import Place
from penstock.spark.rows import Shape, rows, shape

CONFLICTS: tuple[OnConflict, ...] = get_args(OnConflict)
PORTION = 64 << 20
"""Bytes that an executor gathers before it stages them."""


@dataclass
class Staged(WriterCommitMessage):
    """What an attempt has staged."""

    part: str
    rows: int


class Writer(DataSourceArrowWriter):
    """Puts the rows of a DataFrame. Made by the driver; used by executors to stage and by the driver to commit."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_known("url", "tube", "feed", "jobId", "onConflict", "stageBytes")
        if options.feed != "tasks":
            raise UsageError(f"feed {options.feed!r} cannot be written; tasks can")
        self._place = Place(options)
        self._tube = options.tube
        self._on_conflict: OnConflict = options.choice("onConflict", CONFLICTS, "ignore")  # type: ignore[assignment]
        self._portion = options.number("stageBytes", PORTION)
        self._job = options.name("jobId")
        self._run = jobs.run_name(self._job, uuid.uuid4().hex)
        with self._place.borrowed() as engine:
            self._shape: Shape = shape(schema, engine.execute(ops.GetTube(self._tube)))
            jobs.clean_sometimes(engine)
            self._is_open = self._job is None or jobs.begin(engine, self._job, self._tube)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage what an attempt at a partition gives."""
        spare_modules()
        context = TaskContext.get()
        assert context is not None
        part = f"{context.partitionId()}-{context.taskAttemptId()}"
        if not self._is_open:
            return Staged(part, 0)
        batches = (rows(batch, self._shape) for batch in iterator if len(batch))
        with self._place.borrowed() as engine:
            return Staged(part, stage(engine, self._tube, self._run, part, batches, self._portion))

    def commit(self, messages: list[Staged | None]) -> None:  # type: ignore[override]
        """All partitions are staged: make tasks of them."""
        if self._is_open:
            parts = [Part(message.part, message.rows) for message in messages if message is not None]
            with self._place.borrowed() as engine:
                jobs.commit(engine, self._job, self._run, self._tube, parts, self._on_conflict)

    def abort(self, messages: list[Staged | None]) -> None:  # type: ignore[override]
        """The job has failed, or so Spark thinks: it says so too when a commit was done, which needs no rows then."""
        if self._is_open:
            with self._place.borrowed() as engine:
                jobs.discard(engine, self._run)


def stage(engine: Engine, tube: str, job: str, part: str, batches: Iterable[pa.RecordBatch], portion: int) -> int:
    """Stage batches, so many bytes at a time; answers how many rows."""
    held: list[pa.RecordBatch] = []
    number = size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= portion:
            number += engine.execute(ops.Stage(tube, job, part, _stream(held)))
            held, size = [], 0
    return number + engine.execute(ops.Stage(tube, job, part, _stream(held))) if held else number


def _stream(batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())
