"""The cells on PostgreSQL: every subject on one server, started for this run, with synchronous_commit on."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import growth, pg_backlog, pg_node, pg_ours, pg_plain, pg_procrastinate, pg_queuer, pg_wake, phases
from bench import pg_subjects as subjects
from bench import pg_together as together
from bench.cell import Bound, Cell, Subject
from bench.pg_order import Order
from bench.pg_subjects import rates
from bench.scale import Scale

SINGLE = "PostgreSQL, one caller, one task a call"
BATCHES = "PostgreSQL, many tasks a call"
TOGETHER = "PostgreSQL, many takers at once"
GROWTH = "PostgreSQL, cost beside a backlog"
LANES = "PostgreSQL, lanes"
WAKE = "PostgreSQL, take in one process after a put in another"
WAL = "PostgreSQL, bytes of WAL for a task, one task a call"
CALLERS = 16
CLOSE = 0.667
"""The least that a call may reach of the bare statement."""


def threads(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    count, limit = scale.concurrent, 4 * scale.limit
    order = Order(("work",), count, scale.limit / 2, callers=CALLERS)
    found = [
        Subject(f"{pg_ours.NAME} {CALLERS} threads", partial(together.our_threads, folder, CALLERS, count, limit)),
        Subject(f"{pg_plain.NAME} {CALLERS} threads", partial(together.plain_threads, folder, CALLERS, count, limit)),
    ]
    summary = rates(take_ack="work")
    return found + [subjects.peer(name, folder, order, summary, f"{CALLERS} at once") for name in subjects.PEERS]


def processes(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    return [
        Subject(
            f"{name} {CALLERS} processes",
            partial(together.processes, folder, name, CALLERS, scale.concurrent, 4 * scale.limit),
        )
        for name in subjects.WHERE
    ]


def on_lanes(number: int | None, stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    """So many lanes, or as many as tasks."""
    lanes = number or scale.lanes
    each = scale.lanes // lanes
    return [
        Subject(
            f"{lanes:,} lanes x {each:,}" + (f", by {size}" if size > 1 else ""),
            partial(pg_backlog.lanes, folder, lanes, each, size, scale.limit),
        )
        for size in (1, 100)
    ]


def wakes(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    return [Subject(name, partial(pg_wake.measure, folder, name, scale.wakes)) for name in subjects.WHERE]


def close(figure: str) -> tuple[Bound, ...]:
    return (Bound(figure, CLOSE, of=pg_plain.NAME),)


CELLS = (
    Cell("pg-put", SINGLE, subjects.single(rates(put="put"), subjects.puts, ("put",)), ("put/s",), close("put/s")),
    Cell(
        "pg-take",
        SINGLE,
        subjects.single(rates(take="take"), subjects.halves, takes=True),
        ("take/s",),
        close("take/s"),
    ),
    Cell("pg-ack", SINGLE, subjects.single(rates(ack="ack"), subjects.halves), ("ack/s",), close("ack/s")),
    Cell(
        "pg-work",
        SINGLE,
        subjects.single(rates(take_ack="work"), subjects.works, ("work",), takes=True),
        ("take+ack/s",),
        close("take+ack/s"),
    ),
    Cell(
        "pg-cycle",
        SINGLE,
        subjects.single(subjects.cycle, subjects.cycles, ("put", "work"), takes=True),
        phases.FIGURES,
        close("cycle/s"),
        quick=False,
    ),
    Cell("pg-batch", BATCHES, subjects.batches, phases.FIGURES, (Bound("cycle/s", 40_000),)),
    Cell("pg-bulk", BATCHES, subjects.bulk, ("put/s",), (Bound("put/s", 200_000),)),
    Cell("pg-threads", TOGETHER, threads, together.FIGURES),
    Cell("pg-processes", TOGETHER, processes, ("take+ack/s",), quick=False),
    *(
        Cell(
            f"pg-growth-{name}",
            GROWTH,
            partial(pg_backlog.open_sizes, name),
            growth.FIGURES,
            (Bound("cycle us", most=1.5, of=""),),
            "sizes",
            15,
            sized=True,
        )
        for name in pg_backlog.BACKLOGS
    ),
    Cell("pg-lanes-many", LANES, partial(on_lanes, None), ("take+ack/s",), compare="alone", rounds=3),
    Cell("pg-lanes-ten", LANES, partial(on_lanes, 10), ("take+ack/s",), compare="alone", rounds=3),
    Cell(
        "pg-wake",
        WAKE,
        wakes,
        pg_wake.FIGURES,
        (Bound("p50 ms", most=3), Bound("p99 ms", most=10)),
        "alone",
        3,
    ),
    Cell("pg-wal", WAL, subjects.wal, ("put B", "take B", "ack B", "all B"), compare="sizes", rounds=3),
)
NOTES = {
    "PostgreSQL": "18 on 127.0.0.1, one server for all, with fsync, full_page_writes and synchronous_commit on, "
    "shared_buffers 256MB, max_wal_size 4GB; every round has a new schema, after a checkpoint, and tables are analyzed "
    'before takes are measured; every task is {"n": 12345}',
    pg_ours.NAME: pg_ours.NOTE,
    pg_plain.NAME: pg_plain.NOTE,
    pg_queuer.NAME: pg_queuer.NOTE,
    pg_procrastinate.NAME: pg_procrastinate.NOTE,
    **pg_node.NOTES,
    "workers": "the clock of a worker runs from its 50th task to its last, whatever it does before and after",
    "WAL": "how far the server's WAL grew, so with all that other connections of the same queue wrote; ratio: to ours",
}
