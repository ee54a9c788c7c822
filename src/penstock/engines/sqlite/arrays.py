"""Many rows by one statement: to SQLite an array is a table.

That costs half of what a statement for each row does. A library of SQLite that knows no arrays has only those.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import apsw

from penstock.engines.sqlite.tube import SqliteTube
from penstock.model.task import Data

KNOWN = hasattr(apsw, "carray")
FEW = 8
"""So many rows are as quick without."""


def insert(tube: SqliteTube, before: int, data: Sequence[Data], row: tuple[Any, ...]) -> None:
    """Store fresh tasks that differ in their data alone, with the seqs after this one; what they share is in `row`."""
    _, state, _, *rest = row
    if KNOWN and type(data[0]) is str:
        tube.database.execute(tube.sql["insert_alike"], (before, state, *rest, apsw.carray(tuple(data))))
    else:
        rows = [(seq, state, each, *rest) for seq, each in enumerate(data, before + 1)]
        tube.database.connection.executemany(tube.sql["insert_fresh"], rows)


def grant(
    tube: SqliteTube, seqs: list[int], sessions: Sequence[int], before: int, now: int, deadlines: list[int | None]
) -> bool:
    """Write down who has which task, with the tokens after this one; False, with nothing done, if too much differs."""
    many = len(seqs)
    if not KNOWN or many < FEW * len(set(sessions)) or deadlines.count(deadlines[0]) < many:
        return False
    start = 0
    for session, run in groupby(sessions):
        part = array("q", seqs[start : start + len(list(run))])
        values = (session, before + start, now, deadlines[0], apsw.carray(part))
        tube.database.execute(tube.sql["grant_alike"], values)
        start += len(part)
    return True


def remove(tube: SqliteTube, seqs: list[int]) -> None:
    """Remove tasks."""
    if KNOWN and len(seqs) >= FEW:
        tube.database.execute(tube.sql["remove_all"], (apsw.carray(array("q", seqs)),))
    elif len(seqs) == 1:
        tube.database.execute(tube.sql["remove"], seqs)
    else:
        tube.database.connection.executemany(tube.sql["remove"], [(seq,) for seq in seqs])
