"""What must be true of any store at any time; run after every test of the contract."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from penstock.engines import open_store
from penstock.engines.memory import MemoryStore, MemoryTransaction, MemoryTube
from penstock.engines.memory.tube import Lane
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


def check_tubes(tx: Transaction, tubes: list[Any], now: int) -> None:
    sessions = {holder.number for holder in tx.holders()}
    tokens: Counter[int | None] = Counter()
    for tube in tubes:
        records = all_records(tube)
        check_counters(tube, records)
        for record in records:
            check_record(tube, record, sessions)
        tokens.update(record.token for record in records if record.token is not None)
        keys = Counter(record.key for record in records if record.key is not None and record.state in LIVE)
        assert all(number == 1 for number in keys.values()), f"a key is held twice: {keys}"
        if tube.config.features.lanes:
            check_lanes(tube, records, now)
    assert all(number == 1 for number in tokens.values()), "a token was granted twice"


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


def check_record(tube: TubeStore, record: Record, sessions: set[int]) -> None:
    taken = record.state == State.TAKEN
    assert taken == (record.token is not None) == (record.session is not None), record
    assert not taken or record.session in sessions, f"taken by a session that is gone: {record}"
    assert (record.reason is not None) == (record.state in (State.BURIED, State.DONE)), record
    assert record.attempt >= 0 and record.failures >= 0
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
    tx: Any = store.data if isinstance(store, MemoryStore) else store._tx  # type: ignore[attr-defined]
    if not isinstance(tx, MemoryTransaction):
        tx.begin()
    try:
        numbers = {holder.number: i for i, holder in enumerate(sorted(tx.holders(), key=lambda h: h.number))}
        return {name: dump_tube(tx.tube(name), numbers) for name in sorted(tx.tube_names())}
    finally:
        if not isinstance(tx, MemoryTransaction):
            tx.rollback()


def dump_tube(tube: Any, numbers: dict[int, int]) -> dict[str, Any]:
    records = sorted(all_records(tube), key=lambda record: record.seq)
    plain = [
        record._replace(
            state=str(record.state),
            reason=None if record.reason is None else str(record.reason),
            session=None if record.session is None else numbers[record.session],
            token=None,
            errors=record.errors and json.loads(record.errors),
        )._asdict()
        for record in records
    ]
    return {"records": plain, "statistics": tube.counters.statistics()}
