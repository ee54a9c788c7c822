"""How long a task put by one process takes to reach a take that waits in another, through PostgreSQL.

`python -m bench.pg_wake WHO URL SCHEMA COUNT` is the other process.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles

import psycopg

import penstock
from bench import pg_ours, pg_plain
from bench.cell import Figures
from bench.pg_server import Place, place
from bench.pg_together import taker

FIGURES = ("p99 ms", "p50 ms")
PUT = (
    "with put as (insert into tasks (data) values (%s::jsonb) returning id) select pg_notify('bench', ''), id from put"
)


def measure(folder: Path, who: str, count: int) -> Figures:
    """Puts at random moments; the clock runs from before put() is called until take() has answered."""
    with place(folder) as where:
        waits = (_ours if who == pg_ours.NAME else _plain)(where, count)
    if len(waits) != count:
        raise RuntimeError(f"{len(waits)} of {count} tasks arrived")
    cut = quantiles(waits[len(waits) // 20 :], n=100)
    return {"p99 ms": cut[98], "p50 ms": cut[49]}


def _ours(where: Place, count: int) -> list[float]:
    with penstock.connect(where.url) as queue:
        return _put(where, pg_ours.NAME, count, queue.create_tube("wake", "fifo").put)


def _plain(where: Place, count: int) -> list[float]:
    """A put that tells its channel in the same transaction."""
    pg_plain.create(where)
    with where.connect() as connection:
        return _put(where, pg_plain.NAME, count, lambda at: connection.execute(PUT, (str(at),), prepare=True))


def _put(where: Place, who: str, count: int, put: Callable[[int], object]) -> list[float]:
    command = [sys.executable, "-m", "bench.pg_wake", who, where.server.url, where.name, str(count)]
    with taker(command) as waiter:
        assert waiter.stdout is not None
        waiter.stdout.readline()
        for _ in range(count):
            time.sleep(random.uniform(0.005, 0.03))
            put(time.monotonic_ns())
        found: list[float] = json.loads(waiter.communicate(timeout=30)[0])
        return found


def wait(who: str, url: str, schema: str, count: int) -> None:
    """Takes tasks as they come and prints how old each was."""
    arrivals = our_arrivals(url, schema) if who == pg_ours.NAME else plain_arrivals(url, schema)
    found = []
    for put in arrivals:
        found.append((time.monotonic_ns() - put) / 1e6)
        if len(found) == count:
            break
    print(json.dumps(found))


def our_arrivals(url: str, schema: str) -> Iterator[int]:
    with penstock.connect(f"{url}?schema={schema}") as queue:
        tube = queue.tube("wake")
        print("waiting", flush=True)
        while task := tube.take(timeout=10):
            yield task.data
            task.ack()


def plain_arrivals(url: str, schema: str) -> Iterator[int]:
    """A connection that listens, and one that takes when it has heard something."""
    options = f"-c search_path={schema}"
    with (
        psycopg.connect(url, autocommit=True, options=options) as ear,
        psycopg.connect(url, autocommit=True, options=options) as hand,
    ):
        line = pg_plain.Plain(hand)
        line.take()
        ear.execute("listen bench")
        print("waiting", flush=True)
        for _ in ear.notifies(timeout=60):
            while task := line.take():
                yield task[2]
                line.ack(task)


if __name__ == "__main__":
    wait(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
