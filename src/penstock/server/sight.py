"""What a person who watches from afar is shown."""

from __future__ import annotations

from penstock.engines.holdings import watcher_of
from penstock.engines.store import Store
from penstock.wire import codec, talk


def look(store: Store, asked: talk.Look) -> bytes:
    """Look at a store once."""
    watcher = watcher_of(store)
    try:
        if asked.tube is not None:
            return codec.pack(watcher.lanes(asked.tube, asked.first, asked.limit))
        return codec.pack((watcher.sessions(), watcher.holdings()))
    finally:
        watcher.close()
