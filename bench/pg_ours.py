"""Penstock on PostgreSQL, measured through the API its users call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import penstock
from bench.pg_phase import payload
from bench.pg_server import Place

NAME = "penstock"
NOTE = (
    "on PostgreSQL puts and acks wait for the disk, takes do not: a take that the server forgets in a crash is a task "
    "offered again. The plain statements and the others wait in every call"
)


class Ours:
    """A tube, called as other queues are."""

    def __init__(self, tube: penstock.Tube) -> None:
        self.tube = tube

    def put(self, n: int) -> object:
        return self.tube.put(payload(n))

    def take(self) -> penstock.Task | None:
        return self.tube.take()

    def ack(self, task: penstock.Task) -> object:
        return task.ack()

    def put_many(self, numbers: range) -> object:
        return self.tube.put_many([payload(n) for n in numbers])

    def take_many(self, size: int) -> list[penstock.Task]:
        return self.tube.take_many(size)

    def ack_many(self, tasks: list[Any]) -> object:
        return self.tube.ack_many(tasks)


@contextmanager
def line(place: Place, kind: str = "fifo") -> Iterator[Ours]:
    with penstock.connect(place.url) as queue:
        yield Ours(queue.create_tube("bench", kind))
