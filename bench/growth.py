"""What a put, a take and an ack cost beside a backlog: stores of several sizes, measured in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import penstock
from bench import ours
from bench.cell import Figures, Subject
from bench.phases import payload
from bench.scale import Scale

FIGURES = ("put us", "take us", "ack us", "cycle us")
PART = 1000
TASKS_A_LANE = 10


@dataclass(frozen=True)
class Backlog:
    """A kind of tube, how it is filled, and the lane that measured tasks go to."""

    kind: str
    fill: Callable[[str, int, float], int]
    lane: str | None = None


def parts(count: int, limit: float) -> Iterator[range]:
    """The numbers of the tasks, a part at a time, until the time is up."""
    start = perf_counter()
    for first in range(0, count, PART):
        if perf_counter() - start > limit:
            return
        yield range(first, min(first + PART, count))


def ready(path: str, count: int, limit: float) -> int:
    """Tasks that could be taken: the measured takes get the oldest."""
    with penstock.connect(path, durability="relaxed") as queue:
        tube = queue.tube("growth")
        return sum(len(tube.put_many([payload(n) for n in part])) for part in parts(count, limit))


def delayed(path: str, count: int, limit: float) -> int:
    """Tasks due in a day and more, no two at one moment."""
    with penstock.connect(path, durability="relaxed") as queue:
        tube = queue.tube("growth")
        return sum(
            len(tube.put_many([penstock.Entry(payload(n), delay=86_400 + n / 1000) for n in part]))
            for part in parts(count, limit)
        )


def buried(path: str, count: int, limit: float) -> int:
    """Tasks set aside: put in parts, buried by id together."""

    async def fill() -> int:
        done = 0
        async with await penstock.aconnect(path, durability="relaxed") as queue:
            tube = await queue.tube("growth")
            for part in parts(count, limit):
                tasks = await tube.put_many([payload(n) for n in part])
                await asyncio.gather(*(tube.bury(task.id) for task in tasks))
                done += len(tasks)
        return done

    return asyncio.run(fill())


def busy(path: str, count: int, limit: float) -> int:
    """Ten tasks a lane, each lane's task in turn; the caller then holds the first of nine lanes in ten."""
    lanes = max(1, count // TASKS_A_LANE)
    with penstock.connect(path, durability="relaxed") as queue:
        tube = queue.tube("growth")
        return sum(
            len(tube.put_many([penstock.Entry(payload(n), lane=f"lane{n % lanes}") for n in part]))
            for part in parts(count, limit)
        )


BACKLOGS = {
    "ready": Backlog("fifo", ready),
    "delayed": Backlog("fifottl", delayed),
    "buried": Backlog("fifo", buried),
    "busy lanes": Backlog("utube", busy, lane="of our own"),
}


def open_sizes(name: str, stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    """Fill a store of every size; they stay open while they are measured in turns."""
    backlog = BACKLOGS[name]
    found = []
    for size in scale.growth:
        path = ours.file(folder)
        with penstock.connect(path, durability="relaxed") as queue:
            queue.create_tube("growth", backlog.kind)
        stored = backlog.fill(path, size, scale.fill_limit)
        tube = stack.enter_context(penstock.connect(path, durability="relaxed")).tube("growth")
        if backlog.lane:
            hold(tube, stored * 9 // (10 * TASKS_A_LANE))
        label = f"{stored:,} stored" + ("" if stored == size else f" of {size:,}: out of time")
        found.append(Subject(label, partial(measure, tube, backlog.lane, scale.growth_cycles)))
    return found


def hold(tube: penstock.Tube, lanes: int) -> None:
    """Take the first task of so many lanes and keep it."""
    while lanes > 0:
        lanes -= len(tube.take_many(min(lanes, PART))) or lanes


def measure(tube: penstock.Tube, lane: str | None, cycles: int) -> Figures:
    """Mean microseconds of each verb over some cycles; the backlog stays as large as it was."""
    put = take = ack = 0.0
    for n in range(cycles):
        start = perf_counter()
        if lane is None:
            tube.put(payload(n))
        else:
            tube.put(payload(n), lane=lane)
        stored = perf_counter()
        task = tube.take()
        taken = perf_counter()
        assert task is not None, "there was a task to take"
        task.ack()
        ended = perf_counter()
        put, take, ack = put + stored - start, take + taken - stored, ack + ended - taken
    scale = 1e6 / cycles
    return {
        "put us": put * scale,
        "take us": take * scale,
        "ack us": ack * scale,
        "cycle us": (put + take + ack) * scale,
    }
