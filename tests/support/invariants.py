"""What must be true of any store at any time; run after every test of the contract."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.support.snapshot import Snapshot, Stored, TubeSnapshot, snapshot

from penstock.engines import open_store
from penstock.engines.memory import MemoryStore, MemoryTransaction, MemoryTube
from penstock.engines.memory.tube import Lane
from penstock.engines.postgres.store import PostgresStore
from penstock.engines.sqlite.store import SqliteStore
from penstock.engines.sqlite.tube import SqliteTube
from penstock.engines.transaction import Transaction, TubeStore
from penstock.model import lane as lanes
from penstock.model import rules
from penstock.model.state import LIVE, State
from penstock.model.task import Record


def check(url: str) -> None:
    """Raise AssertionError if the open store of a URL is not sound."""
    store = open_store(url)
    if store is None or store.closed:
        return
    if isinstance(store, PostgresStore):
        check_postgres(url, store.clock.now() if store.clock.manual else None)
        return
    with store._mutex:
        if isinstance(store, MemoryStore):
            check_tubes(store.data, list(store.data.tubes.values()), store.clock.now())
        elif isinstance(store, SqliteStore) and store.writable:
            tx = store._tx
            tx.begin()
            try:
                tx.take_edits()
                check_tubes(tx, [tx.tube(name) for name in tx.tube_names()], store.clock.now())
            finally:
                tx.rollback()
            store._main.check_integrity()


def check_postgres(url: str, now: int | None = None) -> None:
    """Raise AssertionError if a schema is not sound, whoever has it open; now is the server's unless given."""
    check_snapshot(snapshot(url), now)


def check_snapshot(seen: Snapshot, now: int | None = None, lowered: bool = False) -> None:
    """lowered: limits of lanes may have been lowered while tasks were held."""
    tokens: Counter[int | None] = Counter()
    for tube in seen.tubes:
        records = tube.records
        counters = tube.counters
        rows = Counter(State(record.state) for record in records)
        for state in State:
            assert counters.rows(state) == rows[state], f"{state}: counted {counters.rows(state)}, stored {rows[state]}"
        for task in tube.tasks:
            check_stored(task, set(seen.sessions))
        tokens.update(record.token for record in records if record.token is not None)
        check_unique(records)
        if tube.config.features.lanes:
            check_tickets(tube, seen.now if now is None else now, lowered or tube.version > 1)
    assert all(number == 1 for number in tokens.values()), "a token was granted twice"


def check_stored(task: Stored, sessions: set[int]) -> None:
    record = task.record
    check_lease(record, sessions)
    what = rules.due(record)
    due = (None, None) if what is None else (what.at, what.rank)
    assert (task.due_at, task.due_rank) == due, f"due is {(task.due_at, task.due_rank)}, should be {due}: {record}"


def check_tickets(tube: TubeSnapshot, now: int, lowered: bool) -> None:
    """No lane is forgotten: one that could give a task has a ticket, one whose rate is shut has it for then."""
    for task in tube.tasks:
        assert task.record.lane is not None or task.place is not None, f"it has no place in the line: {task.record}"
    for name, members in tube.by_lane().items():
        limits = tube.limits(name)
        taken = sum(record.state == State.TAKEN for record in members)
        if limits.concurrency is not None and not lowered and name not in tube.lanes:
            assert taken <= limits.concurrency, f"lane {name!r} has {taken} taken, its limit is {limits.concurrency}"
        full = limits.concurrency is not None and taken >= limits.concurrency
        if full or limits.paused or first(tube, members) is None:
            continue
        opens_at = lanes.opens_at(limits, tube.tat(name)) if limits.rate else now
        tickets = [ticket for ticket in tube.tickets if ticket.lane == name]
        # One that is due stands for a lane that nobody has looked at since its rate has opened.
        good = [ticket for ticket in tickets if ticket.at is None or ticket.at <= max(now, opens_at)]
        assert good, f"lane {name!r} is open from {opens_at}, it is {now}, and its tickets are {tickets}: {members}"


def line(tube: TubeSnapshot, now: int) -> list[int]:
    """Who stands in the line of a tube on PostgreSQL, first in it first."""
    standing = [
        (task.record.pri, task.place or 0, task.record.seq)
        for task in tube.tasks
        if task.record.lane is None and task.record.state == State.READY
    ]
    for name, members in tube.by_lane().items():
        limits = tube.limits(name)
        taken = sum(record.state == State.TAKEN for record in members)
        full = limits.concurrency is not None and taken >= limits.concurrency
        late = bool(limits.rate) and now < lanes.opens_at(limits, tube.tat(name))
        head = first(tube, members)
        if not (full or late or limits.paused or head is None):
            places = [ticket.place for ticket in tube.tickets if ticket.lane == name and ticket.at is None]
            place = min(places, default=-1) if tube.config.lane_pick == "turns" else head.seq
            standing.append((head.pri, place, head.seq))
    return [seq for *_, seq in sorted(standing)]


def check_tubes(tx: Transaction, tubes: list[Any], now: int) -> None:
    sessions = {holder.number for holder in tx.holders()}
    tokens: Counter[int | None] = Counter()
    for tube in tubes:
        records = all_records(tube)
        check_counters(tube, records)
        for record in records:
            check_record(tube, record, sessions)
        tokens.update(record.token for record in records if record.token is not None)
        check_unique(records)
        if tube.config.features.lanes:
            check_lanes(tube, records, now)
    assert all(number == 1 for number in tokens.values()), "a token was granted twice"


def check_unique(records: list[Record]) -> None:
    keys = Counter(record.key for record in records if record.key is not None and record.state in LIVE)
    assert all(number == 1 for number in keys.values()), f"a key is held twice: {keys}"


def all_records(tube: TubeStore) -> list[Record]:
    if isinstance(tube, MemoryTube):
        return list(tube._records.values())
    assert isinstance(tube, SqliteTube)
    return tube.records(tube.database.rows(tube.sql["page"], (0, -1)))


def check_counters(tube: TubeStore, records: list[Record]) -> None:
    rows = Counter(State(record.state) for record in records)
    for state in State:
        assert tube.counters.rows(state) == rows[state], (
            f"{state}: counted {tube.counters.rows(state)}, stored {rows[state]}"
        )


def check_lease(record: Record, sessions: set[int]) -> None:
    taken = record.state == State.TAKEN
    assert taken == (record.token is not None) == (record.session is not None), record
    assert not taken or record.session in sessions, f"taken by a session that is gone: {record}"
    assert (record.reason is not None) == (record.state in (State.BURIED, State.DONE)), record
    assert record.attempt >= 0 and record.failures >= 0


def check_record(tube: TubeStore, record: Record, sessions: set[int]) -> None:
    check_lease(record, sessions)
    what = rules.due(record)
    if what is not None:
        assert tube.next_due is not None and tube.next_due <= what.at, "a timer would be missed"
    if isinstance(tube, SqliteTube):
        due_at = tube.database.value(f"SELECT due_at FROM penstock_tasks_{tube.number} WHERE seq = ?", (record.seq,))  # noqa: S608
        assert due_at == (None if what is None else what.at), f"due_at {due_at}, should be {what}"


def check_lanes(tube: Any, records: list[Record], now: int) -> None:
    """No lane over its limit, and the right task of each open lane stands in the line."""
    standing = standing_tasks(tube)
    by_lane: dict[str, list[Record]] = {}
    for record in records:
        if record.lane is None:
            assert record.state != State.READY or record.seq in standing, f"lost: {record}"
        else:
            by_lane.setdefault(record.lane, []).append(record)
    for name, members in by_lane.items():
        limits, tat = limits_of(tube, name)
        taken = sum(record.state == State.TAKEN for record in members)
        full = limits.concurrency is not None and taken >= limits.concurrency
        late = bool(limits.rate) and now < lanes.opens_at(limits, tat)
        head = first(tube, members)
        expected = set() if full or late or limits.paused or head is None else {head.seq}
        actual = {record.seq for record in members if record.seq in standing and record.state == State.READY}
        due = tube.next_due is not None and tube.next_due <= now
        assert actual == expected or due, f"lane {name!r}: {actual} stand in line, should be {expected}"


def first(tube: Any, members: list[Record]) -> Record | None:
    by_key = tube.config.adopted is not None
    order = sorted(members, key=lambda record: (record.pri, record.id if by_key else record.seq))
    if tube.config.lane_order == "strict":
        rest = [record for record in order if record.state in (State.READY, State.DELAYED, State.BURIED)]
        return rest[0] if rest and rest[0].state == State.READY else None
    return next((record for record in order if record.state == State.READY), None)


def standing_tasks(tube: Any) -> set[int]:
    if isinstance(tube, MemoryTube):
        return set(tube._places)
    table = f"penstock_tasks_{tube.number}"
    rows = tube.database.rows(f"SELECT seq FROM {table} WHERE place IS NOT NULL AND state = 'ready'")  # noqa: S608
    return {seq for (seq,) in rows}


def limits_of(tube: Any, name: str) -> tuple[Any, int]:
    if isinstance(tube, MemoryTube):
        lane = tube._lanes.get(name) or Lane()
        return tube.limits(lane), lane.tat
    row = tube.lane_table.row(name)
    return tube.lane_table.limits(name, row), row.tat if row else 0


def dump(url: str) -> dict[str, Any]:
    """Everything a store holds, in a form two engines can be compared by."""
    store = open_store(url)
    assert store is not None
    if isinstance(store, PostgresStore):
        return dump_snapshot(snapshot(url))
    tx: Any = store.data if isinstance(store, MemoryStore) else store._tx  # type: ignore[attr-defined]
    if not isinstance(tx, MemoryTransaction):
        tx.begin()
    try:
        numbers = {holder.number: i for i, holder in enumerate(sorted(tx.holders(), key=lambda h: h.number))}
        return {name: dump_tube(tx.tube(name), numbers) for name in sorted(tx.tube_names())}
    finally:
        if not isinstance(tx, MemoryTransaction):
            tx.rollback()


def dump_snapshot(seen: Snapshot) -> dict[str, Any]:
    numbers = {number: i for i, number in enumerate(seen.sessions)}
    return {
        tube.config.name: {"records": dump_records(tube.records, numbers), "statistics": tube.counters.statistics()}
        for tube in sorted(seen.tubes, key=lambda tube: tube.config.name)
    }


def dump_tube(tube: Any, numbers: dict[int, int]) -> dict[str, Any]:
    return {"records": dump_records(all_records(tube), numbers), "statistics": tube.counters.statistics()}


def dump_records(records: list[Record], numbers: dict[int, int]) -> list[dict[str, Any]]:
    return [
        record._replace(
            state=str(record.state),
            reason=None if record.reason is None else str(record.reason),
            session=None if record.session is None else numbers[record.session],
            token=None,
            errors=record.errors and json.loads(record.errors),
        )._asdict()
        for record in sorted(records, key=lambda record: record.seq)
    ]
