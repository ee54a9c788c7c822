"""The format with faults: writers that fail or stand still when it matters. Other processes find it by its name."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from penstock.model import ops
from penstock.spark import stores
from penstock.spark.format import PenstockSource
from penstock.spark.options import Options
from penstock.spark.sink import Sink
from penstock.spark.writing import Writer

PATIENCE = 900.0
SCHEMA = "data string"
PADDING = "x" * 5000
"""Rows that are this large are sent on batch by batch: Spark's processes gather 64 kB before they do."""


def machine_of(pid: int) -> int:
    """The Java machine that a Python worker works for."""
    while "java" not in Path(f"/proc/{pid}/exe").resolve().name:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def until(true: Callable[[], Any], what: str) -> None:
    """Wait for others."""
    end, pause = time.monotonic() + PATIENCE, threading.Event()
    while not true():
        assert time.monotonic() < end, what
        pause.wait(0.02)


def leave(mark: Path, text: str) -> None:
    """Say something in a file that is there whole or not at all."""
    draft = mark.with_name(f".{mark.name}")
    draft.write_text(text)
    draft.rename(mark)


def stand(mark: Path) -> None:
    """Say which process this is, and stand still until it is killed."""
    leave(mark, str(os.getpid()))
    threading.Event().wait(PATIENCE)
    os._exit(1)


class Fault:
    """What goes wrong, and when: "before" or "after" the commit.

    raise   an error, the first time
    stand   it stays there until it is killed
    wait    it stays there until the file .go is beside the mark
    """

    def __init__(self, options: dict[str, str]) -> None:
        self.when, _, self.what = options.pop("fault").partition(" ")
        self.mark = Path(options.pop("mark"))

    def strike(self, moment: str) -> None:
        if moment != self.when or self.mark.exists():
            return
        if self.what == "stand":
            stand(self.mark)
        leave(self.mark, moment)
        if self.what == "raise":
            raise RuntimeError(f"a fault {moment} the commit")
        until(self.mark.with_suffix(".go").exists, "nobody says go")


class FaultyWriter(Writer):
    def __init__(self, options: Options, schema: StructType, fault: Fault) -> None:
        super().__init__(options, schema)
        self._fault = fault

    def commit(self, messages: list[Any]) -> None:
        self._fault.strike("before")
        super().commit(messages)
        self._fault.strike("after")


class FaultySink(Sink):
    def __init__(self, options: Options, schema: StructType, fault: Fault) -> None:
        super().__init__(options, schema)
        self._fault = fault

    def commit(self, messages: list[Any], batchId: int) -> None:
        self._fault.strike("before")
        super().commit(messages, batchId)
        self._fault.strike("after")


class FaultySource(PenstockSource):
    """The format `faulty`, with the options `fault` and `mark`."""

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def _parts(self) -> tuple[Options, Fault]:
        given = {name.lower(): value for name, value in dict(self.options).items()}
        fault = Fault(given)
        return Options(given), fault

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options, fault = self._parts()
        return FaultyWriter(options, schema, fault)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options, fault = self._parts()
        return FaultySink(options, schema, fault)


def staged_parts(url: str) -> int:
    """How many attempts have something staged."""
    return sum(job.parts for job in stores.store(stores.absolute(url)).execute(ops.ListStaged()))


def row(number: int, attempt: int) -> list[Any]:
    """What Attempts make of a number."""
    return [number, attempt, PADDING]


class Attempts:
    """Rows that tell which attempt gave them. The first attempt at some of two partitions has a fault.

    raise, stand    in the midst of its rows
    straggle        when it has given all of them, and other attempts wait for that

    It leaves a mark named after its partition, with the process of its executor in it, once both partitions have staged
    rows; there are no other attempts then, so the rows are its own.
    """

    def __init__(self, url: str, folder: Path, what: str, *partitions: int) -> None:
        self._url = url
        self._folder = folder
        self._what = what
        self._partitions = partitions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        attempt, partition = context.attemptNumber(), context.partitionId()
        faulty = attempt == 0 and partition in self._partitions
        if attempt and partition in self._partitions:
            until((self._folder / str(partition)).exists, "another attempt before the first had a fault")
        for number, batch in enumerate(batches):
            if number == 3 and faulty and self._what != "straggle":
                self._do(partition)
            rows = [json.dumps(row(int(text), attempt)) for text in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"data": pa.array(rows, pa.string())})
        if faulty and self._what == "straggle":
            self._do(partition)

    def _do(self, partition: int) -> None:
        until(lambda: staged_parts(self._url) >= 2, "nothing is staged")
        leave(self._folder / str(partition), str(machine_of(os.getpid())))
        if self._what == "raise":
            raise RuntimeError("a fault of the first attempt")
        # What nobody ends goes on, and then its rows tell that it did.
        threading.Event().wait(PATIENCE)
