"""A worker of a fleet: what runs inside a Spark task, on an executor."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from penstock.blocking import Queue, connect
from penstock.model.duration import SECOND
from penstock.model.errors import EngineUnavailable, NotWritable
from penstock.model.session import Session
from penstock.spark.options import resolved
from penstock.spark.roster import NOW, STOP, Roster, expire
from penstock.spark.roster import Worker as Member
from penstock.spark.stores import check_machine, make_room
from penstock.spark.targets import Target, define
from penstock.worker import Worker

SCHEMA = "name string"
LOOK = 0.5
"""Seconds between two looks at what the driver has ordered."""
PATIENCE = 60.0
"""Seconds after which a store that does not answer is left to another attempt."""
log = logging.getLogger("penstock.worker")


class Plan(NamedTuple):
    """What every worker of a fleet is told."""

    run: str
    url: str
    machine: str
    tube: str
    target: Target
    options: Mapping[str, Any]
    slots: int
    prefetch: int
    until_empty: bool
    horizon: float | None
    grace: float
    session_ttl: float
    speculation: bool
    """Two attempts of one task may run at once, so an earlier one is not known to be dead."""


def crew(plan: Plan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark calls once for each worker. What it yields is no result: that is in the store."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # Spark's process can only be used again when all of its input was read
            pass
        yield pa.RecordBatch.from_pydict({"name": [serve(plan)]}, schema=pa.schema([("name", pa.string())]))

    return work


def serve(plan: Plan) -> str:
    """Be a worker until there is nothing left to do, or the driver says so; answers the worker's name."""
    context = TaskContext.get()
    assert context is not None
    url = resolved(plan.url)
    check_machine(url, plan.machine)
    make_room(url)
    name = f"spark:{plan.run}:{context.partitionId()}"
    member = Member(context.taskAttemptId(), context.partitionId(), str(uuid.uuid4()))
    with connect(url, session_ttl=plan.session_ttl) as queue:
        define(queue, plan.tube, plan.target, url, plan.options)
        roster = Roster(queue._engine, plan.run)
        if context.attemptNumber() and not plan.speculation:
            # Spark starts a task again when its process died; what that held need not wait for its session to end.
            lost = [one for one in roster.missing() if one.partition == member.partition]
            expire(queue._engine, lost)
            for one in lost:
                roster.end(one)
        if roster.ordered() is not None:  # there was no room for it until the fleet was stopped
            return name
        roster.begin(member)
        _work(queue, plan, Session(member.uuid, name, int(plan.session_ttl * SECOND)), roster)
        roster.end(member)
    return name


def _work(queue: Queue, plan: Plan, session: Session, roster: Roster) -> None:
    worker = Worker(
        queue,
        concurrency=plan.slots,
        tubes=[plan.tube],
        prefetch=plan.prefetch,
        grace=plan.grace,
        name=session.name,
    )
    worker.session = session
    watch = Watch(worker, roster)
    watch.start()
    try:
        # The signals of this process are Spark's.
        asyncio.run(worker.arun(until_empty=plan.until_empty, horizon=plan.horizon, signals=False))
    finally:
        watch.stop()
    if watch.trouble is not None:
        raise EngineUnavailable(
            f"the store did not answer for {PATIENCE:g} s, so this worker has ended: {watch.trouble}"
        ) from watch.trouble


class Watch(threading.Thread):
    """Does what the driver orders, and gives up a store that is away for long: another executor may reach it."""

    def __init__(self, worker: Worker, roster: Roster) -> None:
        super().__init__(name="penstock watch of a fleet", daemon=True)
        self._worker = worker
        self._roster = roster
        self._over = threading.Event()
        self.trouble: Exception | None = None
        """Why the store was given up."""

    def run(self) -> None:
        """Look again and again."""
        answered = time.monotonic()
        done = -1
        while not self._over.wait(LOOK):
            try:
                ordered = self._roster.ordered()
                answered = time.monotonic()
            except (EngineUnavailable, NotWritable) as error:
                if time.monotonic() - answered < PATIENCE:
                    continue
                self.trouble, ordered = error, NOW
            except Exception:
                log.exception("a worker of a fleet could not read what it should do; it looks again")
                continue
            if ordered is not None and ordered > done:
                done = ordered
                self._worker.stop(now=ordered > STOP)

    def stop(self) -> None:
        """The worker has ended."""
        self._over.set()
        self.join(LOOK * 2)
