"""The thread that keeps a store's sessions alive, does what is due and notices other processes."""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("penstock")
REMIND = 60.0
"""Seconds after which an error that lasts is named again."""
CALM = 3.0
"""Seconds without an error after which it is over: not every beat has something to do that can fail."""
NUMBERS = re.compile(r"[0-9]+")
"""What differs from one time to the next when the same error is met: a process, a place in a file."""


class Beating(Protocol):
    def beat(self) -> float:
        """Do what is to be done now; answer the seconds until the next beat."""


class Bell:
    """What wakes the keeper."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Until it rings, or so long."""
        self._event.wait(seconds)
        self._event.clear()

    def close(self) -> None:
        """Nobody waits for it any more."""


class Trouble:
    """What keeps a keeper from its work, said in a line when it begins, once a minute while it lasts, and at its end.

    A schema that was dropped, or a full disk, stays so for hours, and is met every second.
    """

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._now = now
        self._error = ""
        self._said_at = self._met_at = 0.0

    def met(self, error: Exception) -> None:
        """The work could not be done."""
        now, line = self._now(), " ".join(f"{type(error).__name__}: {error}".split())
        same = NUMBERS.sub("", line)
        self._met_at = now
        if same != self._error or now - self._said_at >= REMIND:
            self._error, self._said_at = same, now
            log.error("the keeper of %s could not do its work and tries again each second: %s", self._name, line)
        log.debug("the keeper of %s could not do its work", self._name, exc_info=error)

    def over(self) -> None:
        """There was no error this time."""
        if self._error and self._now() - self._met_at >= CALM:
            self._error = ""
            log.warning("the keeper of %s does its work again", self._name)


class Keeper:
    """Calls beat() of a store again and again, in a daemon thread, for as long as the store is open."""

    def __init__(self, store: Beating, name: str, bell: Bell) -> None:
        self._store = weakref.ref(store)
        self._bell = bell
        self._trouble = Trouble(name)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"penstock keeper of {name}", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Beat now rather than when it was planned."""
        self._bell.ring()

    def stop(self) -> None:
        self._stopped = True
        self._bell.ring()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._bell.close()

    def _run(self) -> None:
        while not self._stopped:
            store = self._store()
            if store is None:
                self._bell.close()
                return
            try:
                pause = store.beat()
                self._trouble.over()
            except Exception as error:
                if self._stopped:
                    return
                self._trouble.met(error)
                del error  # its traceback holds the store
                pause = 1.0
            del store
            self._bell.wait(pause)
