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


class Keeper:
    """Calls beat() of a store again and again, in a daemon thread, for as long as the store is open."""

    def __init__(self, store: Beating, name: str) -> None:
        self._store = weakref.ref(store)
        self._poked = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"penstock keeper of {name}", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Beat now rather than when it was planned."""
        self._poked.set()

    def stop(self) -> None:
        self._stopped = True
        self._poked.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopped:
            store = self._store()
            if store is None:
                return
            try:
                pause = store.beat()
            except Exception:
                if self._stopped:
                    return
                log.exception("the keeper could not do its work; it tries again in a second")
                pause = 1.0
            del store
            self._poked.wait(pause)
            self._poked.clear()
