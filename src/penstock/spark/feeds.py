"""How far the consumers of the event feed have read, so that nobody forgets events they still need.

A position is the number of the last note in the ledger `feed:<name>`.
"""

from __future__ import annotations

import json
from contextlib import suppress

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.errors import DuplicateKey

PREFIX = "feed:"
PAGE = 1000


def advance(engine: Engine, name: str, seq: int) -> None:
    """A consumer needs no event up to and including this seq any more. It never goes back."""
    if seq <= position(engine, name, -1):
        return
    note = json.dumps({"at": engine.clock.now()})
    with suppress(DuplicateKey):
        engine.execute(ops.WriteLedger(PREFIX + name, seq, (note,)))
    engine.execute(ops.TrimLedger(PREFIX + name, seq - 1))


def position(engine: Engine, name: str, default: int = 0) -> int:
    """The last seq that a consumer has read."""
    notes = engine.execute(ops.LastNotes(PREFIX + name))
    return notes[0].number if notes else default


def positions(engine: Engine) -> dict[str, int]:
    """All consumers, and where they are."""
    found: dict[str, int] = {}
    after = ""
    while names := engine.execute(ops.ListLedgers(PREFIX, PAGE, after)):
        found |= {name.removeprefix(PREFIX): position(engine, name.removeprefix(PREFIX)) for name in names}
        after = names[-1]
    return found


def lowest(engine: Engine) -> int | None:
    """Up to here every consumer has read; None if there is none."""
    return min(positions(engine).values(), default=None)


def leave(engine: Engine, name: str) -> None:
    """A consumer will not come back: nothing waits for it any more."""
    engine.execute(ops.TrimLedger(PREFIX + name, position(engine, name)))
