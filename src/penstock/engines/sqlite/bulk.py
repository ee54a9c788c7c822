"""Very many tasks at once: columns go straight into the tube's table.

As in fast.py, each function answers None when something has to be decided task by task; then the verbs do the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.engines import verbs
from penstock.engines.sqlite.transaction import SqliteTransaction
from penstock.engines.sqlite.tube import SqliteTube
from penstock.engines.verbs.staging import tables
from penstock.model import ops, rules
from penstock.model.errors import PenstockError
from penstock.model.staging import Promoted
from penstock.model.state import Event, State
from penstock.model.task import Data, Draft, Record

if TYPE_CHECKING:
    import pyarrow as pa

READY, DELAYED = State.READY, State.DELAYED


class Columns(NamedTuple):
    """Fresh tasks, a sequence for each column of an insert that may differ; `shared` has all the others."""

    data: Sequence[Data]
    pris: Sequence[int] | None
    lanes: Sequence[str | None] | None
    shared: Record
    own: dict[str, Sequence[Any]]
    """Columns with options that come with a time: state, ttl, ready_at and so on."""

    def column(self, name: str) -> Iterable[Any]:
        """One value for each task."""
        if name == "due_at":
            what = rules.due(self.shared)
            return self.own.get(name) or repeat(None if what is None else what.at)
        return self.own.get(name) or repeat(getattr(self.shared, name))


def load(tx: SqliteTransaction, op: ops.Load, now: int) -> list[PenstockError] | None:
    tube = _open(tx, op.tube, op.lanes is not None)
    if tube is None or not op.data or op.shared.key or op.shared.put_id or op.shared.id:
        return None
    config, shared = tube.config, op.shared
    longest = max(op.data, key=len)
    some_pri = next((pri for pri in op.pris or () if pri is not None), shared.pri)
    some_lane = next((lane for lane in op.lanes or () if lane is not None), shared.lane)
    try:
        verbs.check_draft(config, shared._replace(data=longest, pri=some_pri, lane=some_lane))
        fresh = rules.put(config, shared, now, 0, 0).after
    except PenstockError:
        return None
    if len(longest) * 4 > config.max_payload:
        return None
    pris = None if op.pris is None else [fresh.pri if pri is None else pri for pri in op.pris]
    lanes = None if op.lanes is None else [fresh.lane if lane is None else lane for lane in op.lanes]
    columns = Columns(op.data, pris, lanes, fresh, {})
    return [] if _stored(tx, tube, [columns], len(op.data), set(pris or (fresh.pri,)), now) else None


def promote(tx: SqliteTransaction, op: ops.Promote, now: int) -> Promoted | None:
    from penstock.engines import staged

    tube = _open(tx, op.tube, True)
    if tube is None:
        return None
    parts = tables(tx, op)
    for part in parts:
        staged.check_fit(tube.config, staged.extent(part))
    if tube.config.ttl == "derived" or any("key" in part.column_names for part in parts):
        return None
    fresh = rules.put(tube.config, Draft(""), now, 0, 0).after
    # Of a few bytes in a file many times as much becomes as values of Python: one portion at a time.
    columns = (_columns(tube, part, fresh, now) for part in parts if len(part))
    pris = {pri for part in parts for pri in _pris(part, fresh)}
    number = sum(map(len, parts))
    return Promoted(number) if _stored(tx, tube, columns, number, pris, now) else None


def _pris(part: pa.Table, fresh: Record) -> list[int]:
    """The priorities that occur."""
    if "pri" not in part.column_names:
        return [fresh.pri]
    return [fresh.pri if pri is None else pri for pri in part["pri"].unique().to_pylist()]


def _open(tx: SqliteTransaction, name: str, in_lanes: bool) -> SqliteTube | None:
    """The tube if what comes in can be stored without a look at what is there."""
    tube = tx.tube(name)
    config = tube.config
    if config.adopted is not None or name in tx.listened or config.id not in ("auto", "time64"):
        return None
    if config.temporary and config.history:  # two files
        return None
    return None if config.features.lanes and not tube.lane_table.plain else tube


def _columns(tube: SqliteTube, part: pa.Table, fresh: Record, now: int) -> Columns:
    """The columns of staged rows; null is the tube's default."""
    import pyarrow.compute as pc

    from penstock.engines import staged

    names = part.column_names
    pris = pc.fill_null(part["pri"], fresh.pri).to_pylist() if "pri" in names else None
    lanes = [lane or fresh.lane for lane in part["lane"].to_pylist()] if "lane" in names else None
    own = {name: column.to_pylist() for name, column in staged.timed(tube.config, part, fresh, now).items()}
    return Columns(part[staged.payload_column(part)].to_pylist(), pris, lanes, fresh, own)


def _stored(
    tx: SqliteTransaction, tube: SqliteTube, columns: Iterable[Columns], number: int, pris: set[int], now: int
) -> bool:
    """Insert, count and record; False, with nothing done, if somebody might be overtaken or there is no room."""
    config = tube.config
    tube.settle(now)
    head = tube.head
    mixed = bool(pris - {config.pri})
    if config.features.lanes and (mixed or head.mixed_pri):
        return False
    if config.capacity is not None and head.counters.live() + number > config.capacity:
        return False
    first = max(head.seq + 1, now * 1000 if config.id == "time64" else 0)
    for part in columns:
        _insert(tube, part, max(head.seq + 1, first))
    if number:
        head.counters.call(Event.PUT, number)
        head.mixed_pri = int(head.mixed_pri or mixed)
        tx.touched.add(config.name)
        if config.history:
            tube.database.execute(tube.sql["insert_events"], (config.name, config.history_data, first))
    return True


def _insert(tube: SqliteTube, part: Columns, first: int) -> None:
    head, number = tube.head, len(part.data)
    seqs = range(first, first + number)
    rest = ("max_attempts", "ttl", "ttr", "created_at", "ready_at", "expires_at", "repeat", "keep", "due_at")
    states = part.own.get("state")
    rows: Iterable[tuple[Any, ...]] = zip(
        seqs,
        states or repeat(part.shared.state),
        part.data,
        part.pris or repeat(part.shared.pri),
        *(part.column(name) for name in rest),
        strict=False,
    )
    if tube.config.features.lanes:
        lanes = part.lanes or [part.shared.lane] * number
        places = _places(tube, part, lanes, seqs)
        rows = ((lane, place, *row) for lane, place, row in zip(lanes, places, rows, strict=True))
        tube.database.connection.executemany(tube.sql["insert_in_lane"], rows)
    else:
        tube.database.connection.executemany(tube.sql["insert_fresh"], rows)
    head.seq = first + number - 1
    delayed = states.count(DELAYED) if states else number * (part.shared.state == DELAYED)
    head.counters.move(None, READY, number - delayed)
    head.counters.move(None, DELAYED, delayed)
    due = [moment for moment in part.own["due_at"] if moment is not None] if part.own else []
    if not part.own and (what := rules.due(part.shared)) is not None:
        due = [what.at]
    if due and (head.next_due is None or min(due) < head.next_due):
        head.next_due = min(due)


def _places(tube: SqliteTube, part: Columns, lanes: Sequence[str | None], seqs: range) -> Iterable[int | None]:
    """Where each would stand in the line; in a lane only what is ready does."""
    head = tube.head
    places: Sequence[int] = seqs
    if tube.config.lane_pick == "turns":
        places = range(head.turn + 1, head.turn + 1 + len(seqs))
        head.turn += len(seqs)
    states = part.own.get("state") or [part.shared.state] * len(seqs)
    return [
        None if lane is not None and state != READY else place
        for lane, state, place in zip(lanes, states, places, strict=True)
    ]
