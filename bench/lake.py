"""Events of a queue into a new lake, in one step: raw, as lives of tasks, and counted."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter

import apsw

import penstock
from bench import pg_server
from bench.cell import Bound, Cell, Figures, Subject
from bench.scale import Scale
from bench.spark_read import warmed
from bench.spark_session import CORES, session

SECTION = f"Spark on {CORES} cores, a step of the history lake"
FIGURES = ("events/s",)
LANES = 100
PART = 1000
COPIES = 20
"""How often what happened is told, of other tasks each time: working through as many takes minutes."""
COPIED = "event, from_state, to_state, reason, attempt, pri, lane, key, worker, error_class, error, ready_at, taken_at"
_names = count()


def fill(url: str, tasks: int) -> int:
    """Tasks that were put, taken and acked, a tenth of them at the second try; answers how many events there are."""
    events = 0
    with penstock.connect(url, durability="relaxed") as queue:
        tube = queue.create_tube("bench", history=True, max_attempts=2, retry=0)
        for start in range(0, tasks, PART):
            for lane in range(start // PART * 4 % LANES, start // PART * 4 % LANES + 4):
                tube.put_many([{"n": n} for n in range(start, start + PART // 4)], lane=f"lane{lane}")
            held = tube.take_many(PART)
            for task in held[::10]:
                task.fail(f"TimeoutError: no answer after {task.id} ms")
            tube.ack_many([task for number, task in enumerate(held) if number % 10])
            tube.ack_many(tube.take_many(PART))
            events += 3 * PART + 2 * len(held[::10])
    return events


def copies(table: str, task_id: str, width: int) -> str:
    """SQL that adds the events of as many tasks again and again; task_id makes the id of a copy."""
    return (
        f"insert into {table} (seq, at, tube, task_id, {COPIED}) with recursive k (n) as "  # noqa: S608
        f"(select 1 union all select n + 1 from k where n < {COPIES - 1}) "
        f"select seq + k.n * {width}, at, tube, {task_id.format(width)}, {COPIED} from {table}, k"
    )


def step(url: str, folder: Path, events: int) -> Figures:
    from penstock.pipeline import step as steps
    from penstock.pipeline.lake import Lake

    start = perf_counter()
    done = steps.step(session(), url, Lake(folder / f"lake{next(_names)}"))
    seconds = perf_counter() - start
    assert done.events == events, done
    return {"events/s": events / seconds}


def subjects(url: str, folder: Path, events: int) -> list[Subject]:
    run = partial(step, url, folder, events)
    run()
    return [Subject("penstock", warmed(run))]


def on_postgres(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    place = stack.enter_context(pg_server.place(folder))
    events = fill(place.url, _tasks(scale))
    with place.connect() as connection:
        # Within the numbers that a transaction of the server has for its own events.
        connection.execute(copies("events", "(task_id::bigint + k.n * {})::text", 500_000))
    place.settle()
    return subjects(place.url, folder, events * COPIES)


def on_sqlite(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    path = folder / "tasks.db"
    events = fill(str(path), _tasks(scale))
    connection = apsw.Connection(str(path))
    connection.execute(copies("penstock_events", "task_id + k.n * {}", events))
    connection.close()
    return subjects(str(path), folder, events * COPIES)


def _tasks(scale: Scale) -> int:
    return max(PART, scale.stored // 200)


_BOUNDS = (Bound("events/s", 100_000),)
CELLS = (
    Cell("lake-step", SECTION, on_sqlite, FIGURES, _BOUNDS, compare="alone", rounds=3, sized=True),
    Cell(
        "lake-step-pg", f"{SECTION}, PostgreSQL", on_postgres, FIGURES, _BOUNDS, compare="alone", rounds=3, sized=True
    ),
)
