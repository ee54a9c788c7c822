"""What a signal does to a command that has something to put in order before it ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from penstock.cli.status import Terminated


@contextmanager
def in_order() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: what it has opened is closed."""

    def leave(number: int, frame: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
