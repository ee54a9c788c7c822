"""The format with faults: writers that fail, die or wait when it matters. Other processes find it by its name."""

from __future__ import annotations

import os
import signal
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

PATIENCE = 120.0
DRIVER = "PENSTOCK_TEST_DRIVER"
"""The process that kill ends, with the machine that it runs Spark on."""


def parent(pid: int) -> int:
    """The process that started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def machine_of(pid: int) -> int:
    """The Java machine that a Python worker works for."""
    while "java" not in Path(f"/proc/{pid}/exe").resolve().name:
        pid = parent(pid)
    return pid


def kill_driver() -> None:
    """The end of the driver, as kill -9 has it."""
    machine = machine_of(os.getpid())
    os.kill(int(os.environ[DRIVER]), signal.SIGKILL)
    os.kill(machine, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def until(true: Callable[[], Any], what: str) -> None:
    """Wait for others."""
    end, pause = time.monotonic() + PATIENCE, threading.Event()
    while not true():
        assert time.monotonic() < end, what
        pause.wait(0.02)


class Fault:
    """What goes wrong, and when: "before" or "after" the commit."""

    def __init__(self, options: dict[str, str]) -> None:
        self.when, _, self.what = options.pop("fault").partition(" ")
        self.mark = Path(options.pop("mark", os.devnull))

    def strike(self, moment: str) -> None:
        if moment != self.when:
            return
        if self.what == "kill":
            kill_driver()
        if not self.mark.exists() or self.mark == Path(os.devnull):
            if self.mark != Path(os.devnull):
                self.mark.touch()
            raise RuntimeError(f"a fault {moment} the commit")


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


def staged_rows(url: str) -> bool:
    """True once something is staged."""
    return bool(stores.store(stores.absolute(url)).execute(ops.ListStaged()))


def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of which the first attempt at each partition ends in the middle."""
    context = TaskContext.get()
    for number, batch in enumerate(batches):
        if number and context.attemptNumber() == 0:
            raise RuntimeError("a fault of the first attempt")
        yield batch


class KillsExecutor:
    """Rows of which the first attempt at partition 0 takes its executor with it, once some of them are staged."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        for number, batch in enumerate(batches):
            if number > 1 and context.attemptNumber() == 0 and context.partitionId() == 0:
                until(lambda: staged_rows(self._url), "nothing is staged")
                os.kill(machine_of(os.getpid()), signal.SIGKILL)
            yield batch


def straggling(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of which the first attempt at partition 0 gives all and does not end."""
    yield from batches
    context = TaskContext.get()
    if context.attemptNumber() == 0 and context.partitionId() == 0:
        threading.Event().wait(PATIENCE)
