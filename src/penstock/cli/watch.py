"""Looks at the files of a program, and tells the worker when one has changed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.worker.app import App

EVERY = 0.5


@contextmanager
def watched(app: App) -> Iterator[None]:
    """Send this process SIGHUP whenever a file of the program has changed."""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(app, _times(app), over), name="penstock watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(app: App, seen: dict[str, int], over: threading.Event) -> None:
    while not over.wait(EVERY):
        now = _times(app)
        # A file that is new has just been imported; one that is gone may be in the middle of being written.
        if any(name in seen and seen[name] != changed for name, changed in now.items()):
            os.kill(os.getpid(), signal.SIGHUP)
        seen = {**seen, **now}


def _times(app: App) -> dict[str, int]:
    found = dict[str, int]()
    for file in app.files():
        try:
            found[file] = os.stat(file).st_mtime_ns
        except OSError:
            continue
    return found
