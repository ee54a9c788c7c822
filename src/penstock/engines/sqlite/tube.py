"""One tube in its table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.engines.sqlite.database import Database, Row
from penstock.engines.sqlite.head import Head, load
from penstock.engines.sqlite.lanes import Lanes
from penstock.engines.sqlite.statements import NO_KEYS, Keys, named, render
from penstock.engines.transaction import TubeStore
from penstock.model import rules
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.state import State
from penstock.model.stats import Counters
from penstock.model.task import HistoryRow, Record, TaskId
from penstock.model.tube import TubeConfig

if TYPE_CHECKING:
    from penstock.engines.sqlite.transaction import SqliteTransaction

STAYS, GIVEN_UP, SLOT = 0, 1, 2
"""What an update does to a task's place."""
_SHARED = named("store.sql")


class SqliteTube(TubeStore):
    tx: SqliteTransaction

    def __init__(
        self, tx: SqliteTransaction, database: Database, number: int, config: TubeConfig, keys: Keys = NO_KEYS
    ) -> None:
        self.tx = tx
        self.database = database
        self.number = number
        self.config = config
        self.sql = render(number, config, keys)
        self._own_id = config.id not in ("auto", "time64") or bool(keys.columns)
        self._head: Head | None = None
        self.lane_table = Lanes(self)

    # -- the head ----------------------------------------------------------------------------------

    @property
    def head(self) -> Head:
        """This tube's small row, loaded on first use and written back at the end of the transaction."""
        if self._head is None:
            self._head = load(self.database, self.sql)
        self.tx.dirty[self.number] = self
        return self._head

    def forget(self) -> None:
        """Another process, or a rollback, may have changed the row."""
        self._head = None

    def flush(self) -> None:
        if self._head is not None:
            self.database.execute(self.sql["save_head"], (self._head.pack(),))

    @property
    def counters(self) -> Counters:  # type: ignore[override]
        return self.head.counters

    @property
    def next_due(self) -> int | None:
        return self.head.next_due

    @next_due.setter
    def next_due(self, moment: int | None) -> None:
        self.head.next_due = moment

    def next_seq(self, at_least: int = 0) -> int:
        head = self.head
        head.seq = max(head.seq + 1, at_least)
        return head.seq

    def next_token(self) -> int:
        return self.next_tokens(1) + 1

    def next_tokens(self, number: int) -> int:
        """Reserve tokens; answers the one before the first. Blocks of one tube never meet another's."""
        head = self.head
        if head.token + number > head.token_end:
            head.token, head.token_end = self.tx.token_block(number)
        first = head.token
        head.token += number
        return first

    def next_place(self, seq: int) -> int:
        """At the back of the line or, where lanes are picked by order, where the seq puts it."""
        if self.config.lane_pick == "order":
            return seq
        self.head.turn += 1
        return self.head.turn

    # -- storage -----------------------------------------------------------------------------------

    def record(self, row: Row | None) -> Record | None:
        return None if row is None else tuple.__new__(Record, row)

    def records(self, rows: list[Row]) -> list[Record]:
        return [tuple.__new__(Record, row) for row in rows]

    def key_of(self, task_id: TaskId) -> Any:
        """An id as the table has it; None for one that no task of this tube can have."""
        return task_id if isinstance(task_id, int | str if self._own_id else int) else None

    def find(self, task_id: TaskId) -> Record | None:
        return self.record(self.database.row(self.sql["find"], (self.key_of(task_id),)))

    def find_key(self, key: str) -> Record | None:
        return self.record(self.database.row(self.sql["find_key"], (key,)))

    def find_put_id(self, put_id: str) -> Record | None:
        return self.record(self.database.row(self.sql["find_put_id"], (put_id,)))

    def stored(self, record: Record) -> tuple[Any, ...]:
        """A record as the values of an insert."""
        return tuple(record) if self._own_id else (record[0], *record[2:])

    def insert(self, record: Record, now: int) -> None:
        what = rules.due(record)
        self.note_due(record)
        self.note_pri(record)
        place = None
        if self.config.features.lanes and record.lane is None:
            place = self.next_place(record.seq)
        values = (*self.stored(record), None if what is None else what.at, place)
        self.database.execute(self.sql["insert"], values)
        if record.lane is not None:
            self.lane_table.refresh(record.lane, now)

    def note_pri(self, record: Record) -> None:
        if record.pri != self.config.pri:
            self.head.mixed_pri = 1

    def update(self, before: Record, after: Record, now: int) -> None:
        self.note_due(after)
        self.note_pri(after)
        what = rules.due(after)
        place = self._place(before, after, now)
        values = (*after[2:], None if what is None else what.at, place, after.seq)
        self.database.execute(self.sql["update"], values)
        if before.lane != after.lane:
            if before.lane is not None:
                self.lane_table.refresh(before.lane, now)
            if after.lane is None:
                self.database.execute(self.sql["set_place"], (self.next_place(after.seq), after.seq))
        if after.lane is not None:
            if after.state == State.TAKEN and before.state == State.READY:
                self.lane_table.granted(after.lane, now)
            self.lane_table.refresh(after.lane, now)

    def _place(self, before: Record, after: Record, now: int) -> int:
        if after.lane is None:
            return STAYS if before.lane is None else GIVEN_UP
        same = before.state == after.state and before.lane == after.lane and before.pri == after.pri
        if same and after.state in (State.READY, State.TAKEN):
            return STAYS
        limited = self.lane_table.limits(after.lane).concurrency is not None
        return SLOT if after.state == State.TAKEN and limited else GIVEN_UP

    def remove(self, record: Record, now: int) -> None:
        self.database.execute(self.sql["remove"], (record.seq,))
        if record.lane is not None:
            self.lane_table.refresh(record.lane, now)

    def record_history(self, row: HistoryRow) -> None:
        task_id = json.dumps(row.task_id) if isinstance(row.task_id, tuple) else row.task_id
        self.tx.main.execute(_SHARED["insert_event"], (*row[1:3], task_id, *row[4:]))

    def truncate(self) -> int:
        head = self.head
        number = head.counters.live() + head.counters.rows(State.DONE)
        for state in State:
            head.counters.move(state, None, head.counters.rows(state))
        self.database.execute(self.sql["truncate"])
        head.next_due = self.first_due()
        head.mixed_pri = 0
        return number

    def drop(self) -> None:
        self.database.execute(self.sql["drop"])

    # -- reading -----------------------------------------------------------------------------------

    def is_shut(self) -> bool:
        """True while nothing may be granted: paused, or as many taken as the tube may have."""
        config = self.config
        full = config.concurrency is not None and self.counters.rows(State.TAKEN) >= config.concurrency
        return config.paused or full

    def candidate(self, lane: str | None, now: int) -> Record | None:
        if self.is_shut():
            return None
        if lane is None:
            return self.record(self.database.row(self.sql["candidate"]))
        return self.record(self.database.row(self.sql["lane_candidate"], (lane,)))

    def due_tasks(self, until: int, limit: int) -> list[Record]:
        return self.records(self.database.rows(self.sql["due"], (until, limit)))

    def due_lanes(self, until: int) -> list[tuple[int, str]]:
        if not self.head.lane_rows:
            return []
        rows = self.database.rows(_SHARED["due_lanes"], (self.number, until))
        return [(at, lane) for at, lane in rows]

    def open_lane(self, lane: str, at: int) -> None:
        self.lane_table.refresh(lane, at)

    def first_due(self) -> int | None:
        moments = [self.database.value(self.sql["first_due"])]
        if self.head.lane_rows:
            moments.append(self.database.value(_SHARED["first_wake"], (self.number,)))
        return min((moment for moment in moments if moment is not None), default=None)

    def buried(self, limit: int | None) -> list[Record]:
        return self.records(self.database.rows(self.sql["buried"], (-1 if limit is None else limit,)))

    def exhausted(self) -> list[Record]:
        return self.records(self.database.rows(self.sql["exhausted"]))

    def taken(self, session: int | None = None) -> list[Record]:
        if session is None:
            return self.records(self.database.rows(self.sql["taken"]))
        return self.records(self.database.rows(self.sql["taken_by"], (session,)))

    def page(self, state: State | None, limit: int, after: TaskId | None) -> list[Record]:
        start = 0
        if after is not None:
            found = self.database.value(self.sql["seq_of"], (self.key_of(after),))
            start = found if found is not None else max(0, after) if isinstance(after, int) else 0  # row 0 is no task
        if state is None:
            return self.records(self.database.rows(self.sql["page"], (start, limit)))
        return self.records(self.database.rows(self.sql["page_of_state"], (start, state, limit)))

    def extent(self) -> tuple[int, int] | None:
        row = self.database.row(self.sql["extent"])
        assert row is not None
        return None if row[0] is None else (row[0], row[1])

    # -- lanes -------------------------------------------------------------------------------------

    def configure_lane(self, lane: str, options: Mapping[str, Any], now: int) -> LaneLimits:
        return self.lane_table.configure(lane, options, now)

    def lanes(self, limit: int, after: str | None, now: int) -> list[LaneInfo]:
        return self.lane_table.page(limit, after, now)
