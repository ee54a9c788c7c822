"""`penstock bench`: how fast the user's own store is, here and now."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, NamedTuple

import typer

from penstock.blocking import Queue, Tube
from penstock.cli import output
from penstock.cli.command import command
from penstock.cli.place import opened
from penstock.cli.signals import in_order
from penstock.model.errors import PenstockError, UsageError
from penstock.model.tube import check_count
from penstock.worker import Worker

FOREVER = 10**12
AT_A_TIME = 1000
"""How many tasks are put at once where putting them is not what is measured."""


class Result(NamedTuple):
    """What one measurement has found."""

    what: str
    tasks: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.tasks / self.seconds if self.seconds > 0 else 0.0


class Span:
    """How long a measurement goes on: for a time, or for so many tasks."""

    def __init__(self, seconds: float, tasks: int | None, tell: Callable[[float], None]) -> None:
        self._seconds = seconds
        self.tasks = FOREVER if tasks is None else tasks
        self._tell = tell
        self._tell_at = 0.1
        self.done = 0
        self.began = 0.0

    def begin(self) -> None:
        self.began = time.perf_counter()

    def more(self, done: int = 1) -> bool:
        """So many have been done; whether to go on."""
        self.done += done
        lasted = time.perf_counter() - self.began
        if lasted >= self._tell_at:  # a bar that moves with every task would be measured too
            self._tell_at = lasted + 0.1
            self._tell(min(1.0, self.done / self.tasks if self.tasks < FOREVER else lasted / self._seconds))
        return self.done < self.tasks and (self.tasks < FOREVER or lasted < self._seconds)

    def result(self, what: str) -> Result:
        return Result(what, self.done, time.perf_counter() - self.began)


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(
        app, "bench", panel="Store", examples=["penstock bench --seconds 0.2", "penstock bench --tasks 100 --json"]
    )(bench)


def bench(
    seconds: Annotated[float, typer.Option(help="How long each measurement lasts.")] = 2.0,
    tasks: Annotated[int | None, typer.Option(help="Measure so many tasks each, however long it takes.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Slots of the worker.")] = 32,
    batch: Annotated[int, typer.Option(help="Tasks in one call of put_many, take_many and ack_many.")] = 100,
) -> None:
    """Measure this store on this machine: put, take and ack, whole cycles, batches, and a worker that does nothing.

    It makes a tube of its own and drops it again. Other tubes are not touched, but everybody shares the disk.
    """
    if not 0 < seconds <= 3600:
        raise UsageError(f"--seconds must be above 0 and at most 3600, got {seconds:g}")
    check_count(tasks, "tasks") if tasks is not None else None
    check_count(batch, "batch")
    check_count(concurrency, "concurrency")
    results = list[Result]()

    def enough() -> int:
        """How many tasks keep a worker busy for about the time: what went through by batches before."""
        return tasks or max(concurrency, int(results[-1].rate * seconds))

    parts: dict[str, Callable[[Tube, Span], Result]] = {
        "put": _put,
        "take + ack": _take,
        "put + take + ack": _cycle,
        f"the same by {batch}": lambda tube, span: _batches(tube, span, batch),
        f"worker, {concurrency} slots": lambda tube, span: _worker(tube, span, concurrency, enough()),
    }
    with (
        in_order(),
        opened(create=True, memory=True) as queue,
        _tube(queue) as tube,
        output.progress("measuring", len(parts)) as tell,
    ):
        for number, (what, measure) in enumerate(parts.items()):
            span = Span(seconds, tasks, lambda share, number=number: tell(number + share))  # type: ignore[misc]
            result = measure(tube, span)._replace(what=what)
            results.append(result)
            if output.as_json():
                output.json_line(
                    {**result._asdict(), "seconds": round(result.seconds, 6), "rate": round(result.rate, 1)}
                )
    if not output.as_json():
        rows = [[it.what, f"{it.rate:,.0f}", f"{it.tasks:,}", f"{it.seconds:.2f}"] for it in results]
        output.table(("what", "tasks/s", "tasks", "seconds"), rows, right=("tasks/s", "tasks", "seconds"))


@contextmanager
def _tube(queue: Queue) -> Iterator[Tube]:
    """A tube that nobody else knows, gone at the end."""
    tube = queue.create_tube(f"penstock.bench.{uuid.uuid4().hex[:12]}")
    try:
        yield tube
    finally:
        with suppress(PenstockError):
            tube.drop(force=True)


def _put(tube: Tube, span: Span) -> Result:
    span.begin()
    going = True
    while going:
        tube.put(span.done)
        going = span.more()
    return span.result("put")


def _take(tube: Tube, span: Span) -> Result:
    """Of what was put just now; it may be all taken before the time is over."""
    span.begin()
    going = True
    while going and (task := tube.take()) is not None:
        task.ack()
        going = span.more()
    return span.result("take")


def _cycle(tube: Tube, span: Span) -> Result:
    tube.truncate()
    span.begin()
    going = True
    while going:
        tube.put(span.done)
        task = tube.take()
        assert task is not None
        task.ack()
        going = span.more()
    return span.result("cycle")


def _batches(tube: Tube, span: Span, batch: int) -> Result:
    span.begin()
    going = True
    while going:
        tube.put_many(range(batch))
        tube.ack_many(tube.take_many(batch))
        going = span.more(batch)
    return span.result("batches")


def _worker(tube: Tube, span: Span, slots: int, number: int) -> Result:
    """A worker with a handler that does nothing: from its start to the last call."""
    queue = tube._queue
    ended = [0.0]

    @queue.handler(tube.name)
    async def nothing(data: object) -> None:
        ended[0] = time.perf_counter()
        span.more()

    for begin in range(0, number, AT_A_TIME):
        tube.put_many(range(begin, min(number, begin + AT_A_TIME)))
    span.tasks = number
    worker = Worker(queue, concurrency=slots, tubes=[tube.name])
    worker.on_start = span.begin
    tally = worker.run(until_empty=True, signals=False)
    return Result("worker", tally.ok, max(1e-9, ended[0] - span.began))
