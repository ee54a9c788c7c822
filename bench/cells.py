"""The table: every cell, in the order they are measured."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import (
    beanstalk,
    files,
    growth,
    grpc,
    lake,
    net,
    ours,
    phases,
    postgres,
    remote,
    size,
    spark,
    spark_read,
    tarantool,
    wake,
    worker,
)
from bench.cell import Bound, Cell, Opener, Subject
from bench.scale import Scale

ALONE = "one caller, relaxed, cores awake"
IDLE = "one caller, relaxed, cores left alone (idle only if the busy column says so)"
TOGETHER = "50 callers, relaxed, cores awake"
BATCHES = "batches of 100"
BUSY = "busy lanes: 10 lanes, 10 callers, relaxed, cores awake"
WAKE = "take in one process after a put in another"
GROWTH = "cost beside a backlog, relaxed"
SIZE = "memory and disk"
KINDS = ("fifo", "fifottl", "utube", "utubettl", "limfifottl")


def one_caller(kind: str) -> Opener:
    def subjects(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
        lanes = scale.lanes if kind.startswith("utube") else 0
        count = lanes or scale.single
        found = [Subject(ours.NAME, partial(ours.one_caller, folder, kind, count, lanes, scale.limit))]
        for mode in ("default", tarantool.READY_BUFFER) if lanes else ("",):
            found.append(tarantool.subject(folder, kind, count, 1, scale.limit, lanes, mode))
        if kind == "fifo":
            found += [beanstalk.subject(folder, count, 1, scale.limit), *files.subjects(folder, count, scale.limit)]
        return found

    return subjects


def together(how: str, kind: str) -> Opener:
    def subjects(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
        measure = ours.threads if how == "threads" else ours.tasks
        callers, count, limit = scale.callers, scale.concurrent, scale.limit
        found = [
            Subject(f"{ours.NAME} {callers} {how}", partial(measure, folder, kind, callers, count, limit)),
            tarantool.subject(folder, kind, count, callers, limit),
        ]
        if kind == "fifo":
            found.append(beanstalk.subject(folder, count, callers, limit))
        return found

    return subjects


def batches(durability: ours.Durability) -> Opener:
    def subjects(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
        return [Subject(ours.NAME, partial(ours.batches, folder, durability, 100, scale.batched, scale.limit))]

    return subjects


def busy(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    each, limit = scale.busy[-1], 4 * scale.limit
    why = tarantool.missing()
    theirs = None if why else partial(tarantool.busy, folder, 10, each, limit)
    return [
        Subject(f"{ours.NAME} 10 x {each:,}", partial(ours.busy_lanes, folder, 10, each, limit)),
        Subject(f"{tarantool.NAME} {tarantool.READY_BUFFER}", theirs, why),
    ]


def linear(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    return [
        Subject(f"10 x {each:,}", partial(ours.busy_lanes, folder, 10, each, 4 * scale.limit)) for each in scale.busy
    ]


def wakes(durability: ours.Durability) -> Opener:
    def subjects(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
        return [Subject(ours.NAME, partial(wake.measure, folder, scale.wakes, durability))]

    return subjects


def stored(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    return [Subject(f"{scale.stored:,} tasks", partial(size.measure, folder, scale.stored, scale.fill_limit))]


RATE = phases.FIGURES
CELLS = (
    *(
        Cell(kind, ALONE, one_caller(kind), RATE, (Bound("cycle/s", 1.3, of="tarantool"),), awake=True)
        for kind in KINDS
    ),
    *(
        Cell(
            f"idle-{kind}", IDLE, one_caller(kind), RATE, (Bound("cycle/s", 1.3, of="tarantool"),), quick=kind == "fifo"
        )
        for kind in KINDS
    ),
    *(
        Cell(f"{how}-{kind}", TOGETHER, together(how, kind), RATE, (Bound("cycle/s", 1, of="tarantool"),), awake=True)
        for kind in ("fifo", "fifottl")
        for how in ("threads", "tasks")
    ),
    Cell("batch-relaxed", BATCHES, batches("relaxed"), RATE, (Bound("cycle/s", 80_000),), "alone"),
    Cell("batch-strict", BATCHES, batches("strict"), RATE, (Bound("cycle/s", 40_000),), "alone"),
    Cell(
        "busy",
        BUSY,
        busy,
        ("us/task", "take+ack/s"),
        (Bound("take+ack/s", 1, of="tarantool"),),
        rounds=3,
        awake=True,
        sized=True,
    ),
    Cell(
        "busy-linear",
        BUSY,
        linear,
        ("take+ack/s", "us/task"),
        (Bound("us/task", most=1.3, of="10 x"),),
        "sizes",
        3,
        awake=True,
        sized=True,
    ),
    *(
        Cell(f"wake-{mode}", WAKE, wakes(mode), wake.FIGURES, bounds, "alone", 3)
        for bounds in ((Bound("p50 ms", most=3), Bound("p99 ms", most=15)),)
        for mode in (ours.RELAXED, ours.STRICT)
    ),
    *(
        Cell(
            f"growth-{name.split()[0]}",
            GROWTH,
            partial(growth.open_sizes, name),
            growth.FIGURES,
            bounds,
            "sizes",
            15,
            sized=True,
        )
        for bounds in ((Bound("cycle us", most=1.5, of=""),),)
        for name in growth.BACKLOGS
    ),
    Cell("size", SIZE, stored, size.FIGURES, (Bound("filling MB", most=200),), "alone", 1, sized=True),
    *worker.CELLS,
    *net.CELLS,
    *grpc.CELLS,
    *remote.CELLS,
    *postgres.CELLS,
    *spark_read.CELLS,
    *spark.CELLS,
    *lake.CELLS,
)
NOTES = {
    "cores": "one Tarantool fiber is slower on idle cores than on awake ones, likely for the way to its WAL thread and "
    "back; one caller of Penstock is not. On a busy machine keeping cores awake costs Tarantool some of its speed",
    tarantool.NAME: tarantool.NOTE,
    beanstalk.NAME: beanstalk.NOTE,
    **files.NOTES,
    **grpc.NOTES,
    "busy lanes": "utube's default storage is left out: its take walks past every task of a busy lane",
    "busy": "share of all cores in use during the rounds, by anybody; kept awake it is always near 100%",
    "wake": "from before put() is called until take() has answered; the first twentieth is not counted",
    "growth": "ratio: the cost of a cycle to its cost in the smallest store; stores are measured in turns",
    **worker.NOTES,
    **net.NOTES,
    **postgres.NOTES,
    **spark_read.NOTES,
    **spark.NOTES,
}
