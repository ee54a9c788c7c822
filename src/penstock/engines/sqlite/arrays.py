"""Many rows by one statement: to SQLite an array is a table.

That costs less than a statement for each row. A library of SQLite that knows no arrays has only those.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import apsw

from penstock.engines.sqlite.tube import SqliteTube
from penstock.model.task import Data, Record

KNOWN = hasattr(apsw, "carray")
FEW = 16
"""Fewer rows are as quick without."""
_seq_and_deadline = itemgetter(*map(Record._fields.index, ("seq", "deadline")))


def insert(tube: SqliteTube, before: int, data: Sequence[Data], row: tuple[Any, ...]) -> None:
    """Store fresh tasks that differ in their data alone, with the seqs after this one; what they share is in `row`."""
    _, state, _, *rest = row
    if KNOWN and type(data[0]) is str:
        texts: Any = tuple(data)
        tube.database.execute(tube.sql["insert_alike"], (before, state, *rest, apsw.carray(texts)))
    else:
        rows = [(seq, state, each, *rest) for seq, each in enumerate(data, before + 1)]
        tube.database.connection.executemany(tube.sql["insert_fresh"], rows)


def grant(tube: SqliteTube, granted: list[Record], sessions: Sequence[int], before: int, now: int) -> bool:
    """Write down who has which task, with the tokens after this one; False, with nothing done, if too much differs."""
    many = len(granted)
    if not KNOWN or many < FEW or many < FEW * len(set(sessions)):
        return False
    seqs, deadlines = zip(*map(_seq_and_deadline, granted), strict=True)
    if deadlines.count(deadlines[0]) < many:
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
    if len(seqs) == 1:
        tube.database.execute(tube.sql["remove"], seqs)
    elif KNOWN and len(seqs) >= FEW:
        tube.database.execute(tube.sql["remove_all"], (apsw.carray(array("q", seqs)),))
    else:
        tube.database.connection.executemany(tube.sql["remove"], [(seq,) for seq in seqs])
