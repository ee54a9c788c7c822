"""What a worker hears from outside: SIGTERM and SIGINT stop it, SIGHUP lets it load its code anew."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType

STUCK = 1.0
"""Seconds after which a loop that has not noticed a signal is taken for stuck in a handler."""
STOPPING = (signal.SIGTERM, signal.SIGINT)


class StuckLoop(KeyboardInterrupt):
    """Raised in a handler that keeps the loop from noticing that the worker is to stop."""


class Signals:
    """Listens for a while; what others did with signals counts again afterwards."""

    def __init__(self, stop: Callable[[str], None], hang_up: Callable[[], None]) -> None:
        self._stop = stop
        self._hang_up = hang_up
        self._heard_at: float | None = None

    @contextlib.contextmanager
    def heard_by(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Tell the loop of them. Only the main thread is told of signals: elsewhere there is nothing to hear."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        actions: dict[signal.Signals, Callable[[], None]] = {one: partial(self._act, one.name) for one in STOPPING}
        if hasattr(signal, "SIGHUP"):
            actions[signal.SIGHUP] = self._hang_up
        before = {number: signal.getsignal(number) for number in actions}
        for number, action in actions.items():
            loop.add_signal_handler(number, action)
        for number in STOPPING:
            signal.signal(number, self._hear)  # the loop is woken all the same
        try:
            yield
        finally:
            for number, old in before.items():
                loop.remove_signal_handler(number)
                if old is not None:
                    signal.signal(number, old)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        """In the middle of anything that the main thread does, such as a handler that never awaits."""
        now = time.monotonic()
        if self._heard_at is None:
            self._heard_at = now
        elif now >= self._heard_at + STUCK:
            self._heard_at = now
            raise StuckLoop(f"{signal.Signals(number).name}: this does not let the worker stop")

    def _act(self, name: str) -> None:
        self._heard_at = None
        self._stop(name)
