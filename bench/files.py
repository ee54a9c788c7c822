"""Peers from PyPI that keep their tasks in a SQLite file."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec

from bench import phases
from bench.cell import Figures, Subject
from bench.phases import payload

NOTES = {
    "huey": "SqliteStorage, fsync off: take deletes, there is no ack, a worker's death loses the task; no ttl, lanes",
    "litequeue": "put, pop, done: no ttl, ttr, lanes; finished rows stay in the file",
    "persist-queue": "SQLiteAckQueue, pickle, SQLite's default sync: no ttl, ttr, lanes; one process; acked rows stay",
}
_numbers = itertools.count(1)


def huey(folder: Path, count: int, limit: float) -> Figures:
    from huey.storage import SqliteStorage  # type: ignore[import-untyped]

    storage = SqliteStorage("bench", filename=str(folder / f"huey-{next(_numbers)}.db"), fsync=False)
    try:
        return phases.alone(
            lambda n: storage.enqueue(msgspec.json.encode(payload(n))),
            lambda: msgspec.json.decode(storage.dequeue()),
            count,
            limit,
        )
    finally:
        storage.close()


def litequeue(folder: Path, count: int, limit: float) -> Figures:
    from litequeue import LiteQueue  # type: ignore[import-untyped]

    queue = LiteQueue(str(folder / f"litequeue-{next(_numbers)}.db"))

    def take() -> None:
        message = queue.pop()
        msgspec.json.decode(message.data)
        queue.done(message.message_id)

    try:
        return phases.alone(lambda n: queue.put(msgspec.json.encode(payload(n)).decode()), take, count, limit)
    finally:
        queue.conn.close()


def persist_queue(folder: Path, count: int, limit: float) -> Figures:
    from persistqueue import SQLiteAckQueue

    queue = SQLiteAckQueue(str(folder / f"persist-{next(_numbers)}"))
    try:
        return phases.alone(
            lambda n: queue.put(payload(n)), lambda: queue.ack(queue.get(block=False, raw=True)), count, limit
        )
    finally:
        queue.close()


RUNS: dict[str, tuple[str, Callable[[Path, int, float], Figures]]] = {
    "huey": ("huey", huey),
    "litequeue": ("litequeue", litequeue),
    "persist-queue": ("persistqueue", persist_queue),
}


def subjects(folder: Path, count: int, limit: float) -> list[Subject]:
    """Those that are installed, and a word for those that are not."""
    return [
        Subject(name, partial(run, folder, count, limit))
        if find_spec(module)
        else Subject(name, missing="not present: pip install -r requirements/bench.txt")
        for name, (module, run) in RUNS.items()
    ]
