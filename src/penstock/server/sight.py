"""What a person who watches from afar is shown."""

from __future__ import annotations

from penstock.engines.holdings import lookout_of
from penstock.engines.store import Store
from penstock.wire import codec, talk


def look(store: Store, asked: talk.Look) -> bytes:
    """Look at a store once."""
    lookout = lookout_of(store)
    try:
        if asked.tube is not None:
            return codec.pack(lookout.lanes(asked.tube, asked.first, asked.limit))
        return codec.pack((lookout.sessions(), lookout.holdings()))
    finally:
        lookout.close()
