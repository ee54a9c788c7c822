"""What a signal does to a command that has something to put in order before it ends."""

from __future__ import annotations

import os
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


class Starting:
    """What signals do until a worker listens to them: SIGTERM ends it, SIGHUP is for later."""

    def __init__(self) -> None:
        self._is_over = False
        self._is_hung_up = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        numbers = {signal.SIGTERM: self._leave}
        if hasattr(signal, "SIGHUP"):
            numbers[signal.SIGHUP] = self._hang_up
        before = {number: signal.signal(number, act) for number, act in numbers.items()}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)

    def over(self) -> None:
        """The worker listens now; what it was told before it hears now."""
        self._is_over = True
        if self._is_hung_up:
            signal.raise_signal(signal.SIGHUP)

    def _leave(self, number: int, frame: object) -> None:
        if not self._is_over:
            raise Terminated
        # The worker has worked: what it holds is given back, and nobody has to be waited for.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _hang_up(self, number: int, frame: object) -> None:
        self._is_hung_up = True
