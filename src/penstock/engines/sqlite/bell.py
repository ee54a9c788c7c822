"""Hearing that another process writes, without looking all the time: Linux tells when the log of the file changes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.engines.keeper import Bell

IN_MODIFY = 0x2
ALERT = 0.05
"""Seconds after a write in which its commit is looked for: the log is written first, synced and only then seen."""
QUIET = 0.001
"""Seconds in which further writes are not heard: many small ones must not wake a thread each."""


class WriteBell(Bell):
    """A bell that also rings when a file is written to, as long as somebody listens."""

    def __init__(self, library: Any, listening: Callable[[], object]) -> None:
        self._library = library
        self._listening = listening
        self._rung = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._heard = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._heard < 0:
            os.close(self._rung)
            raise OSError(ctypes.get_errno(), "the system has no more watches for this user")
        self._heard_at = 0.0
        self._told = select.poll()
        self._told.register(self._rung, select.POLLIN)
        self._both = select.poll()
        self._both.register(self._rung, select.POLLIN)
        self._both.register(self._heard, select.POLLIN)
        self._open = True

    @classmethod
    def made(cls, listening: Callable[[], object]) -> WriteBell | None:
        """None where the system has nothing of the kind, or no more of it."""
        if not hasattr(os, "eventfd"):
            return None
        try:
            library = ctypes.CDLL(None, use_errno=True)
            return cls(library, listening)
        except (OSError, AttributeError):
            return None

    def watch(self, path: Path) -> bool:
        """Ring when this file is written to; answers whether it will."""
        return self._open and self._library.inotify_add_watch(self._heard, os.fsencode(path), IN_MODIFY) >= 0

    @property
    def is_alert(self) -> bool:
        """Somebody has just written."""
        return time.monotonic() - self._heard_at < ALERT

    def ring(self) -> None:
        if self._open:
            with contextlib.suppress(OSError):
                os.eventfd_write(self._rung, 1)

    def wait(self, seconds: float) -> None:
        if self._listening():
            rest = self._heard_at + QUIET - time.monotonic()
            if rest > 0 and self._told.poll(max(1.0, rest * 1000)):
                self._clear()
                return
            found = dict(self._both.poll(max(1.0, seconds * 1000)))
        else:
            found = dict(self._told.poll(max(1.0, seconds * 1000)))
        if self._rung in found:
            self._clear()
        if self._heard in found:
            self._heard_at = time.monotonic()
            with contextlib.suppress(OSError):
                os.read(self._heard, 65536)

    def _clear(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_read(self._rung)

    def close(self) -> None:
        """Give the handles free; in a child after fork too, where they are copies."""
        if self._open:
            self._open = False
            for handle in (self._rung, self._heard):
                if handle >= 0:
                    os.close(handle)
