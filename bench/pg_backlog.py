"""Penstock on PostgreSQL beside a backlog, and on lanes."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import penstock
from bench import growth, pg_ours
from bench.cell import Figures, Subject
from bench.pg_phase import Clock, finish, parts, payload
from bench.pg_server import place
from bench.scale import Scale

PART = 5_000


def buried(url: str, count: int, limit: float) -> int:
    """Tasks whose only attempt was lost, since those are set aside many at a time."""
    until = monotonic() + limit
    with penstock.connect(url, durability="relaxed") as queue:
        tube = queue.tube("growth")
        for part in growth.parts(count, limit):
            tube.put_many([penstock.Entry(payload(n), ttr=0.001, max_attempts=1) for n in part])
            tube.take_many(len(part))
        while (found := tube.statistics().tasks["buried"]) < count and monotonic() < until:
            queue.tick()
            sleep(0.05)
        return found


BACKLOGS = {
    "ready": growth.BACKLOGS["ready"],
    "delayed": growth.BACKLOGS["delayed"],
    "buried": growth.Backlog("fifottl", buried),
}


def open_sizes(name: str, stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    """Fill a schema of every size; they stay open while they are measured in turns."""
    backlog = BACKLOGS[name]
    found = []
    for size in scale.growth:
        where = stack.enter_context(place(folder))
        with penstock.connect(where.url) as queue:
            queue.create_tube("growth", backlog.kind)
        stored = backlog.fill(where.url, size, scale.fill_limit)
        where.settle()
        tube = stack.enter_context(penstock.connect(where.url)).tube("growth")
        growth.measure(tube, None, 20)
        label = f"{stored:,} stored" + ("" if stored == size else f" of {size:,}: out of time")
        found.append(Subject(label, partial(growth.measure, tube, None, scale.growth_cycles)))
    return found


def lanes(folder: Path, number: int, each: int, batch: int, limit: float) -> Figures:
    """Take and ack on lanes, the tasks put in turns over all of them; the rate is of what was done in time."""
    count = number * each
    with place(folder) as where, pg_ours.line(where, "utube") as line:
        for part in parts(count, PART):
            line.tube.put_many([penstock.Entry(payload(n), lane=f"lane{n % number}") for n in part])
        where.analyze()

        def several(done: int) -> int:
            tasks = line.take_many(batch)
            line.ack_many(tasks)
            return len(tasks)

        step = several if batch > 1 else lambda done: finish(line)
        warm = sum(step(0) for _ in range(5))
        return {"take+ack/s": Clock(where.wal, limit).run(count - warm, step)[1].rate}
