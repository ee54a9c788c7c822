"""The thread that keeps a store's sessions alive, does what is due and notices other processes."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Protocol

log = logging.getLogger("penstock")


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


class Keeper:
    """Calls beat() of a store again and again, in a daemon thread, for as long as the store is open."""

    def __init__(self, store: Beating, name: str, bell: Bell) -> None:
        self._store = weakref.ref(store)
        self._bell = bell
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
            except Exception:
                if self._stopped:
                    return
                log.exception("the keeper could not do its work; it tries again in a second")
                pause = 1.0
            del store
            self._bell.wait(pause)
