"""The queue that a command works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.blocking import Queue, connect
from penstock.cli import settings


@contextmanager
def opened() -> Iterator[Queue]:
    """The queue of --url or PENSTOCK_URL, for one command; closed at the end."""
    with connect(settings.url()) as queue:
        yield queue
