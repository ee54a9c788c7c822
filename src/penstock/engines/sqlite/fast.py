"""Put, take and ack of ordinary tasks in as few statements as can be.

A select and a plain update cost less than one statement with a subquery or RETURNING: those make SQLite build
a temporary table. The write lock is held from the first read, so nothing can come between.

Each function answers None when the case is not an ordinary one; then the verbs, which know every rule, do
the work. What is ordinary: no history, no callback, no adopted table, lanes without settings or rates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.engines import verbs
from penstock.engines.sqlite import arrays
from penstock.engines.sqlite.transaction import SqliteTransaction
from penstock.engines.sqlite.tube import SqliteTube
from penstock.model import ops, rules
from penstock.model.duration import FOREVER
from penstock.model.errors import PenstockError, TubeFull
from penstock.model.state import Event, State
from penstock.model.task import Data, Draft, Gone, Placed, Record

READY, TAKEN, DELAYED, BURIED, DONE = State


def ordinary(tx: SqliteTransaction, name: str) -> SqliteTube | None:
    """The tube, settled, if the fast statements are right for it."""
    tube = tx.tube(name)
    config = tube.config
    if config.history or config.adopted is not None or name in tx.listened:
        return None
    return None if config.features.lanes and not tube.lane_table.plain else tube


def put(tx: SqliteTransaction, op: ops.Put, now: int) -> list[Placed | PenstockError] | None:
    tube = ordinary(tx, op.tube)
    if tube is None:
        return None
    alike = shared_data(op.drafts)
    if not _are_ordinary(tube, op.drafts if alike is None else op.drafts[:1]):
        return None
    config, head = tube.config, tube.head
    tube.settle(now)
    if alike is not None and (placed := _put_alike(tx, tube, op.drafts[0], alike, now)) is not None:
        return placed
    room = None if config.capacity is None else config.capacity - head.counters.live()
    least = now * 1000 if config.id == "time64" else 0
    stencil = Stencil(tube, now)
    results: list[Placed | PenstockError] = []
    rows: list[tuple[Any, ...]] = []
    delayed = 0
    for draft in op.drafts:
        try:
            stencil.check(draft)
            if room is not None and len(rows) >= room:
                raise TubeFull(
                    f"tube {config.name!r} holds its capacity of {config.capacity} tasks; finish some or wait"
                )
            seq = head.seq = max(head.seq + 1, least)
            record, row = stencil.cut(draft, seq)
        except PenstockError as error:
            results.append(error)
            continue
        rows.append(row)
        delayed += record.state == DELAYED
        results.append(Placed(record, "new"))
    if rows:
        _write(tube, "insert_in_lane" if config.features.lanes else "insert_fresh", rows)
        _count(tx, tube, len(rows), delayed)
    return results


def shared_data(drafts: tuple[Draft, ...]) -> tuple[Data, ...] | None:
    """The data of drafts that differ in nothing else; None if they do, or are few."""
    number = len(drafts)
    if number < arrays.FEW:
        return None
    data, *options = zip(*drafts, strict=True)
    if any(column.count(column[0]) < number for column in options) or len(set(map(type, data))) > 1:
        return None
    return data


def _put_alike(
    tx: SqliteTransaction, tube: SqliteTube, first: Draft, data: tuple[Data, ...], now: int
) -> list[Placed | PenstockError] | None:
    """Put drafts that are the first one with other data; None if some of them have to be looked at by themselves."""
    config, head, number = tube.config, tube.head, len(data)
    full = config.capacity is not None and head.counters.live() + number > config.capacity
    if full or config.features.lanes or max(map(len, data)) * 4 > config.max_payload:
        return None
    try:
        verbs.check_draft(config, first)
    except PenstockError:
        return None
    before = max(head.seq, now * 1000 - 1) if config.id == "time64" else head.seq
    record, row = Stencil(tube, now).cut(first, before + 1)
    arrays.insert(tube, before, data, row)
    head.seq = before + number
    _count(tx, tube, number, number if record.state == DELAYED else 0)
    state, rest, new = record.state, record[5:], tuple.__new__
    return [
        new(Placed, (new(Record, (seq, seq, state, None, each, *rest)), "new"))
        for seq, each in enumerate(data, before + 1)
    ]


def _count(tx: SqliteTransaction, tube: SqliteTube, number: int, delayed: int) -> None:
    """Fresh tasks have come."""
    counters = tube.head.counters
    counters.call(Event.PUT, number)
    counters.move(None, READY, number - delayed)
    counters.move(None, DELAYED, delayed)
    tx.touched.add(tube.config.name)


class Stencil:
    """Makes records and rows of drafts; drafts that differ in their data alone share the work."""

    def __init__(self, tube: SqliteTube, now: int) -> None:
        self._tube = tube
        self._now = now
        self._options: tuple[Any, ...] | None = None
        self._lanes = tube.config.features.lanes
        self._kind: type | None = None
        """Of the data: text or bytes."""
        self._room = tube.config.max_payload

    def fits(self, draft: Draft) -> bool:
        """Whether nothing but the data differs from the draft before, and there are no lanes."""
        data = draft[0]
        return draft[1:] == self._options and type(data) is self._kind and len(data) * 4 <= self._room

    def check(self, draft: Draft) -> None:
        """Refuse what does not fit the tube; options that were right for the draft before are right again."""
        if not self.fits(draft):
            verbs.check_draft(self._tube.config, draft)

    def cut(self, draft: Draft, seq: int) -> tuple[Record, tuple[Any, ...]]:
        if draft[1:] == self._options:
            record: Record = tuple.__new__(Record, (seq, seq, self._state, None, draft.data, *self._rest))
        else:
            record = self._set(draft, seq)
        row = (seq, self._state, draft.data, *self._row)
        if not self._lanes:
            return record, row
        waits = record.lane is not None and self._state != READY
        return record, (record.lane, None if waits else self._tube.next_place(seq), *row)

    def _set(self, draft: Draft, seq: int) -> Record:
        tube, head = self._tube, self._tube.head
        record = rules.put(tube.config, draft, self._now, seq, seq).after
        due_at = None
        if (what := rules.due(record)) is not None:
            due_at = what.at
            if head.next_due is None or due_at < head.next_due:
                head.next_due = due_at
        if record.pri != tube.config.pri:
            head.mixed_pri = 1
        self._options = draft[1:]
        if not self._lanes:
            self._kind = type(draft.data)
        self._state = record.state
        self._rest = record[5:]
        self._row = (
            record.pri,
            record.max_attempts,
            record.ttl,
            record.ttr,
            record.created_at,
            record.ready_at,
            record.expires_at,
            record.repeat,
            record.keep,
            due_at,
        )
        return record


def _are_ordinary(tube: SqliteTube, drafts: tuple[Draft, ...]) -> bool:
    """No keys to look up and, where there are lanes, nobody who could overtake the first of a lane."""
    config = tube.config
    lanes = config.features.lanes
    if config.id not in ("auto", "time64") or (lanes and tube.head.mixed_pri):
        return False
    for draft in drafts:
        if draft.key is not None or draft.put_id is not None or draft.id is not None:
            return False
        if lanes and draft.pri not in (None, config.pri):
            return False
    return True


def _write(tube: SqliteTube, name: str, rows: list[tuple[Any, ...]]) -> None:
    """One statement for one row or for many."""
    if len(rows) == 1:
        tube.database.execute(tube.sql[name], rows[0])
    else:
        tube.database.connection.executemany(tube.sql[name], rows)


def take(tx: SqliteTransaction, op: ops.Take, now: int) -> list[Record] | None:
    tube = ordinary(tx, op.tube)
    if tube is None or op.lane is not None or op.drain:
        return None
    config = tube.config
    verbs.check_take(config, op)
    wanted = room(tube, op.n, now)
    if wanted <= 0:
        return []
    holder = tx.join(op.session, now)
    if not config.features.lanes or config.lane_concurrency is not None:
        return _grant(tube, op, holder.number, now, wanted, False)
    granted: list[Record] = []
    part = wanted
    while len(granted) < wanted:
        more = _grant(tube, op, holder.number, now, min(part, wanted - len(granted)), True)
        granted += more
        if not more:
            break
        lane = more[-1].lane
        if lane is not None:
            next_in_lane(tube, lane)
        # Where there are lanes, what comes after one of theirs is known only once its next task stands in the line.
        part = 2 * part if lane is None else 1
    return granted


def room(tube: SqliteTube, wanted: int, now: int) -> int:
    """How many of so many tasks can be granted now, if any."""
    tube.settle(now)
    config, counters = tube.config, tube.head.counters
    wanted = min(wanted, counters.rows(READY))
    if config.concurrency is not None:
        wanted = min(wanted, config.concurrency - counters.rows(TAKEN))
    return 0 if config.paused else wanted


def _grant(tube: SqliteTube, op: ops.Take, session: int, now: int, wanted: int, to_lane: bool) -> list[Record]:
    """Grant the first tasks of the line; with to_lane none after the first one that is in a lane."""
    rows = tube.database.execute(tube.sql["candidates"], (wanted,)).fetchall()
    if to_lane:
        last = next((i for i, row in enumerate(rows) if row[_LANE] is not None), len(rows))
        rows = rows[: last + 1]
    return grant(tube, rows, [session] * len(rows), now, op.ttr)


def grant(
    tube: SqliteTube, rows: list[tuple[Any, ...]], sessions: Sequence[int], now: int, ttr: int | None
) -> list[Record]:
    """Give these tasks to the sessions of these numbers, one each."""
    if not rows:
        return []
    head = tube.head
    before = tube.next_tokens(len(rows))
    granted: list[Record] = []
    token = before
    for row, session in zip(rows, sessions, strict=True):  # as rules.take does
        token += 1
        values = list(row)
        limit = values[_TTR] if ttr is None else ttr
        deadline = None if limit is None or limit >= FOREVER else now + limit
        if deadline is not None and (head.next_due is None or deadline < head.next_due):
            head.next_due = deadline
        values[_STATE] = _TAKEN
        values[_ATTEMPT] += 1
        values[_TAKEN_AT] = now
        values[_DEADLINE] = deadline
        values[_SESSION] = session
        values[_TOKEN] = token
        granted.append(tuple.__new__(Record, values))
    if not arrays.grant(tube, granted, sessions, before, now):
        grants = [(it.session, it.token, it.attempt, now, it.deadline, it.deadline, it.seq) for it in granted]
        _write(tube, "grant", grants)
    head.counters.call(Event.TAKE, len(granted))
    head.counters.move(READY, TAKEN, len(granted))
    return granted


_TAKEN = TAKEN.value
_STATE, _SESSION, _TOKEN, _TAKEN_AT, _ATTEMPT, _TTR, _DEADLINE, _LANE = (
    Record._fields.index(name)
    for name in ("state", "session", "token", "taken_at", "attempt", "ttr", "deadline", "lane")
)


def next_in_lane(tube: SqliteTube, lane: str) -> None:
    """The next task of a lane stands in the line, unless another one of the lane has a slot."""
    waiting = tube.database.execute(tube.sql["first_waiting"], (lane,)).fetchone()
    if waiting is not None and tube.database.execute(tube.sql["slots"], (lane,)).fetchone() is None:
        tube.database.execute(tube.sql["set_place"], (tube.next_place(waiting[0]), waiting[0]))


def ack(tx: SqliteTransaction, op: ops.Ack, now: int) -> list[Record | Gone | PenstockError] | None:
    tube = ordinary(tx, op.tube)
    if tube is None or tube.config.keep:
        return None
    holder = tx.holder(op.session.uuid)
    ids = plain_ids(op.items)
    if holder is None or ids is None:
        return None
    if len(op.items) == 1:
        token = op.items[0].lease.token
        rows = tube.database.execute(tube.sql["lease"], (ids[0],)).fetchall()
        if not rows or not is_plain(rows[0], token, holder.number, now):
            return [*verbs.ack(tx, op, now)]
        account(tx, tube, rows)
        return [Gone(now)]
    acked: list[tuple[Any, ...]] = []
    results = finish(tx, tube, op, found(tube, ids), now, acked)
    account(tx, tube, acked)
    return results


def found(tube: SqliteTube, ids: list[Any]) -> dict[Any, tuple[Any, ...]]:
    """The leases of these tasks, by id."""
    rows = tube.database.execute(tube.sql["leases"], (json.dumps(ids),)).fetchall()
    return {row[1]: row for row in rows}


def finish(
    tx: SqliteTransaction,
    tube: SqliteTube,
    op: ops.Ack,
    leases: dict[Any, tuple[Any, ...]],
    now: int,
    acked: list[tuple[Any, ...]],
) -> list[Any]:
    """Results of an ack. Leases that end in the ordinary way are moved to `acked`, for others to account for."""
    holder, gone = tx.holder(op.session.uuid), Gone(now)
    session = None if holder is None else holder.number
    results: list[Any] = []
    for item in op.items:
        task_id, token = item[0]
        row = leases.pop(task_id, None)
        if row is not None and is_plain(row, token, session, now):
            acked.append(row)
            results.append(gone)
        else:
            account(tx, tube, acked)  # lanes that it opens join the line behind those
            acked.clear()
            results += verbs.ack(tx, ops.Ack(op.tube, (item,), op.session), now)
    return results


def is_plain(row: tuple[Any, ...], token: int | None, session: int | None, now: int) -> bool:
    """A lease that is the caller's, of a task that nobody keeps, repeats or watches."""
    return row[2] == token and row[3] == session and not row[5] and ((end := row[4]) is None or end > now)


def plain_ids(items: Sequence[ops.Finish]) -> list[Any] | None:
    """The tasks of an ack that asks for no more than their end; None if it does."""
    ids = []
    for (task_id, token), _, keep, update in items:
        if token is None or keep is not None or update is not None or isinstance(task_id, tuple):
            return None
        ids.append(task_id)
    return ids


def account(tx: SqliteTransaction, tube: SqliteTube, rows: list[tuple[Any, ...]]) -> None:
    """Remove tasks that are done, and count them."""
    if not rows:
        return
    arrays.remove(tube, [row[0] for row in rows])
    counters = tube.head.counters
    counters.call(Event.ACK, len(rows))
    counters.move(TAKEN, None, len(rows))
    counters.finished(len(rows))
    tx.touched.add(tube.config.name)
    if tube.config.features.lanes and tube.config.lane_concurrency is not None:
        # Of several slots of a lane the last one to go opens it.
        for lane in reversed(dict.fromkeys(row[-1] for row in reversed(rows))):
            if lane is not None:
                next_in_lane(tube, lane)
