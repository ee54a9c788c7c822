"""A table of the user's as a tube.

The user's row keeps its status letter (and run_at, priority, lane, attempts where mapped); everything else a
task needs lives in a side table with its own indexes, keyed by the primary key. Triggers in plain SQL note
rows that were changed by hand; the next transaction of any process takes them into account. A trigger is
silent when the side table already says what the row says, which is how our own writes do not notify us.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from penstock.engines.adoption import check_kept, check_task_id, storable, take_moved
from penstock.engines.sqlite import edits
from penstock.engines.sqlite.adopted_statements import adopted_sql, data_of, per_call, quoter
from penstock.engines.sqlite.database import Database, Row
from penstock.engines.sqlite.head import Head
from penstock.engines.sqlite.patient import PatientLanes
from penstock.engines.sqlite.statements import Keys, named, render
from penstock.engines.sqlite.tube import SqliteTube
from penstock.model import rules
from penstock.model.duration import FOREVER
from penstock.model.errors import DuplicateKey, UsageError
from penstock.model.rules import Due
from penstock.model.state import Event, State
from penstock.model.stats import Counters
from penstock.model.task import Change, Record, TaskId
from penstock.model.tube import TubeConfig

if TYPE_CHECKING:
    from penstock.engines.sqlite.transaction import SqliteTransaction

TRIGGERS = ("on_insert", "on_update", "on_delete")
_SQL = named("adopted.sql")
log = logging.getLogger("penstock")


class AdoptedTube(SqliteTube):
    tx: SqliteTransaction

    def __init__(self, tx: SqliteTransaction, database: Database, number: int, config: TubeConfig) -> None:
        adopted = config.adopted
        assert adopted is not None
        self.adopted: Mapping[str, Any] = adopted
        self.table: str = adopted["table"]
        self.fields: dict[str, str] = adopted["fields"]
        self._key: list[str] = adopted["key"]
        self._kinds: list[str] = adopted["kinds"]
        self._quote = quoter(database)
        self._own = adopted_sql(number, config, self._quote)
        self._keys = Keys(tuple(self._key), "''")
        super().__init__(tx, database, number, config, self._keys)
        self.lane_table: PatientLanes = PatientLanes(self)
        self._data: list[str] = []
        self._schema = -1
        self.broken: str | None = None
        self._update: edits.Update | None = None
        self._unattended = False
        self.look()

    # -- the table as it is ------------------------------------------------------------------------

    def forget(self) -> None:
        super().forget()
        self.look()

    def look(self) -> None:
        """Notice columns that were added, and that the table was renamed or dropped."""
        schema = self.database.value("PRAGMA schema_version")
        if schema == self._schema:
            return
        self._schema = schema
        columns = [row[0] for row in self.database.rows(_SQL["columns"], (self.table,))]
        missing = {*self._key, *self.fields.values()}.difference(columns)
        watched = self.database.value(_SQL["count_triggers"], (self.table, self.number)) == len(TRIGGERS)
        self.broken = None
        if not columns or not watched:
            self.broken = f"the table {self.table!r} was dropped or renamed, or its triggers were"
        elif missing:
            self.broken = f"the table {self.table!r} has no columns {', '.join(sorted(missing))} any more"
        self._data = [c for c in columns if c not in self._key and c not in self.fields.values()]
        self._keys = Keys(tuple(self._key), data_of(self.number, self.config, self._data, self._quote))
        self.sql = render(self.number, self.config, self._keys)

    def check(self) -> None:
        """Nothing can be done with tasks whose table is gone; all other tubes go on."""
        if self.broken:
            raise UsageError(
                f"tube {self.config.name!r} cannot be used: {self.broken}; restore it, "
                "or drop(force=True) the tube and adopt the table again"
            )

    # -- ids and records ---------------------------------------------------------------------------

    def record(self, row: Row | None) -> Record | None:
        if row is None:
            return None
        record: Record = tuple.__new__(Record, row)
        if len(self._key) > 1:
            record = record._replace(id=tuple(json.loads(row[1])))
        if record.data is None:
            self._remove_orphan(record)
            return None
        return record

    def records(self, rows: list[Row]) -> list[Record]:
        return [record for row in rows if (record := self.record(row)) is not None]

    def key_of(self, task_id: TaskId) -> Any:
        """An id as the side table has it: the key, or the JSON array that SQLite makes of a composite one."""
        return self._side_id(check_task_id(self.config, task_id))

    def _side_id(self, parts: Sequence[Any]) -> Any:
        return parts[0] if len(parts) == 1 else self.database.value(self._own["id"], parts)

    @staticmethod
    def _parts(task_id: TaskId) -> tuple[Any, ...]:
        return task_id if isinstance(task_id, tuple) else (task_id,)

    def stored(self, record: Record) -> tuple[Any, ...]:
        values = list(record)
        parts = self._parts(record.id)
        values[1], values[4] = self._side_id(parts), None
        return (*values, *parts)

    def next_seq(self, at_least: int = 0) -> int:
        self.check()
        if self.config.id in ("auto", "time64"):
            highest = self.database.value(self._own["highest"])
            at_least = max(at_least, highest + 1 if isinstance(highest, int) else 1)
        return super().next_seq(at_least)

    # -- writing both sides ------------------------------------------------------------------------

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All of it or nothing, on both sides and in the counters."""
        head, counters = copy.copy(self.head), Counters(self.head.counters)
        announced = len(self.tx.announced)
        self.database.execute("SAVEPOINT adopted")
        try:
            yield
        except BaseException:
            if self.database.connection.in_transaction:
                self.database.execute("ROLLBACK TO adopted")
                self.database.execute("RELEASE adopted")
            head.counters = counters
            self._head = head
            del self.tx.announced[announced:]
            raise
        self.database.execute("RELEASE adopted")

    def save(self, changes: Sequence[Change]) -> Record:
        self.check()
        before = changes[0].before
        columns: dict[str, Any] = {}
        if before is None:
            changes = [changes[0]._replace(after=self._placed(changes[0].after))]
        else:
            changes, columns = self._with_update(list(changes))
        self._check_features(changes)
        with self.whole():
            if columns:
                self._change_row(changes[-1].after.id, columns)
                data = self._found(changes[-1].after.id).data
                changes = [change._replace(after=change.after._replace(data=data)) for change in changes]
            saved = super().save(changes)
            return saved if before is not None else saved._replace(data=self._found(saved.id).data)

    def _found(self, task_id: TaskId) -> Record:
        found = self.find(task_id)
        if found is None:
            raise UsageError(f"table {self.table!r} did not keep the row {task_id!r}")
        return found

    def _placed(self, record: Record) -> Record:
        """A task about to be put: its data may name the columns of the lane and the priority too."""
        self.key_of(record.id)
        if self.database.value(self._own["exists"], self._parts(record.id)) is not None:
            raise DuplicateKey(f"table {self.table!r} has a row with the key {record.id!r}")
        columns = self._columns(record.data)
        for name, part in zip(self._key, self._parts(record.id), strict=True):
            if columns.pop(name, part) != part:
                raise UsageError(f"the data has another {name!r} than the id of the task: {part!r}")
        placed = self._moved(record, columns)
        self._free(columns)
        return placed

    def _with_update(self, changes: list[Change]) -> tuple[list[Change], dict[str, Any]]:
        """Columns given by update=, or as new data by release(data=) and on_conflict='replace'."""
        update, self._update = self._update, None
        before, after = changes[0].before, changes[-1].after
        assert before is not None
        columns: dict[str, Any] = {}
        if update is not None and before is update.seen:
            columns = update.columns
            changes[0] = changes[0]._replace(before=update.stored)
        if after.data != before.data:
            columns = {**columns, **self._free(self._columns(after.data))}
        return changes, columns

    def _check_features(self, changes: Sequence[Change]) -> None:
        """What needs a feature that was not asked for."""
        name, event, after = self.config.name, changes[0].event, changes[-1].after
        if not self.adopted["buried"]:
            if event in (Event.BURY, Event.FAIL) and changes[0].after.state == State.BURIED:
                raise UsageError(f"tube {name!r} was adopted with buried=False, so nothing can be buried; release it")
            if event == Event.PUT and after.max_attempts is not None:
                raise UsageError(f"tube {name!r} was adopted with buried=False: max_attempts needs the feature buried")
        if event == Event.PUT:
            check_kept(self.config, after.keep or 0)
        elif event == Event.ACK and after.state == State.DONE:
            watched = after.watched_until is not None and after.watched_until > changes[0].at
            keep = FOREVER if after.purge_at is None else after.purge_at - changes[0].at
            if keep != self.config.keep and not (watched and keep == rules.WATCH_KEEP):
                check_kept(self.config, keep)

    def insert(self, record: Record, now: int) -> None:
        # The side table comes first, so that the trigger on the row finds the task there and stays silent.
        super().insert(record, now)
        columns = self._columns(record.data)
        own = [*self._key, *self.fields.values()]
        values = {
            **dict(zip(self._key, self._parts(record.id), strict=True)),
            **{self.fields[name]: value for name, value in edits.mapped(self.config, record).items()},
            **self._free({name: value for name, value in columns.items() if name not in own}),
        }
        names = ", ".join(map(self._quote, values))
        marks = ", ".join("?" * len(values))
        self._run(per_call("insert_row", self.config, self._quote, names=names, marks=marks), list(values.values()))

    def update(self, before: Record, after: Record, now: int) -> None:
        super().update(before, after._replace(data=None), now)  # type: ignore[arg-type]
        self._write_row(after)

    def remove(self, record: Record, now: int) -> None:
        super().remove(record, now)
        self._run(self._own["delete"], self._parts(record.id))

    def _write_row(self, record: Record) -> None:
        """Let the mapped columns say what the side table says."""
        values = edits.mapped(self.config, record)
        values.update((f"k{i}", part) for i, part in enumerate(self._parts(record.id)))
        self._run(self._own["write"], values)

    def _change_row(self, task_id: TaskId, columns: dict[str, Any]) -> None:
        text = ", ".join(f"{self._quote(name)} = ?" for name in columns)
        text = per_call("change", self.config, self._quote, changes=text)
        self._run(text, [*columns.values(), *self._parts(task_id)])

    def _run(self, text: str, values: Any) -> None:
        """A statement on the user's table: his constraints are his to keep."""
        try:
            self.database.execute(text, values)
        except (apsw.ConstraintError, apsw.MismatchError) as error:
            if not self.database.connection.in_transaction:
                raise  # a trigger of his has rolled everything back
            if not self._unattended:
                raise UsageError(f"table {self.table!r} refuses this: {error}") from error
            # Time, or the end of a session, is not stopped by one row: the queue goes on without it.
            log.error("table %r refuses what tube %r has to write: %s", self.table, self.config.name, error)

    def truncate(self) -> int:
        """Remove the rows that are tasks; rows with other letters are not ours."""
        self.check()
        self.tx.take_edits()
        with self.whole():
            self._run(self._own["delete_all"], ())
            number = super().truncate()
            self.database.execute(self._own["forget_edits"], (1 << 62,))
        return number

    # -- columns -----------------------------------------------------------------------------------

    def _columns(self, data: Any) -> dict[str, Any]:
        """A task's data as columns: a mapping, or with retval='tuple' also a list of all of them."""
        columns = json.loads(data)
        if self.adopted["retval"] == "tuple" and isinstance(columns, list) and len(columns) == len(self._data):
            columns = dict(zip(self._data, columns, strict=True))
        if not isinstance(columns, dict):
            raise UsageError(f"the data of an adopted table is a mapping of columns, got {data[:100]}")
        return columns

    def _free(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Columns that are neither mapped nor part of the key, with values that SQLite can hold."""
        unknown = set(columns) - set(self._data)
        if unknown:
            raise UsageError(
                f"table {self.table!r} has no free columns {sorted(unknown)}; it has {', '.join(self._data) or 'none'}"
            )
        return {name: storable(name, value) for name, value in columns.items()}

    def _moved(self, record: Record, columns: dict[str, Any]) -> Record:
        """Take the columns of the lane and the priority out of the columns, into the record."""
        moved = take_moved(self.config, columns)
        if moved.has_lane:
            record = record._replace(lane=moved.lane)
        return record if moved.pri is None else record._replace(pri=moved.pri)

    def change_columns(self, record: Record, update: Mapping[str, Any]) -> Record:
        """The update is written by save(), together with the task: both or none."""
        self.check()
        if not isinstance(update, Mapping):
            raise UsageError(f"update is a mapping of columns, got {update!r}")
        columns = dict(update)
        seen = self._moved(record, columns)
        # A record of its own, so that save() recognises it.
        self._update = edits.Update(record, seen._replace(), self._free(columns))
        return self._update.seen

    # -- changes by hand ---------------------------------------------------------------------------

    def install(self, now: int) -> None:
        """Make the side table and the triggers, and take in the rows that are there."""
        for name, text in render(self.number, self.config, self._keys).items():
            lane_index = name in ("create_waiting_index", "create_slot_index")
            if name.startswith("create") and (self.config.features.lanes or not lane_index):
                self.database.execute(text)
        self.database.execute(self.sql["insert_head"], (Head.fresh(),))
        self._take_in_all(now)
        for name in TRIGGERS:
            self.database.execute(self._own[name])
        self.look()

    def _take_in_all(self, now: int) -> None:
        rows, keys = [], len(self._key)
        for row in self.database.rows(self._own["read_all"]):
            values = dict(zip(self.fields, row[keys:], strict=True))
            if values["status"] not in edits.STATES or not all(type(part) in (int, str) for part in row[:keys]):
                continue
            record = self._fresh(row[0] if keys == 1 else row[:keys], values, now)
            what = rules.due(record)
            self.note_due(record)
            self.note_pri(record)
            self.counters.move(None, record.state)
            place = record.seq if self.config.features.lanes and record.lane is None else None
            rows.append((*self.stored(record), None if what is None else what.at, place))
            if edits.differs(self.config, record, values):
                self._write_row(record)
        self.database.connection.executemany(self.sql["insert"], rows)
        if self.config.features.lanes:
            self.lane_table.refresh_all(now)

    def _fresh(self, task_id: TaskId, values: dict[str, Any], now: int) -> Record:
        ids = self.config.id in ("auto", "time64") and isinstance(task_id, int) and task_id < 1 << 62
        seq = super().next_seq(task_id if ids else 0)  # type: ignore[arg-type]
        return edits.fresh(self.config, task_id, seq, values, now)

    def reconcile(self, row_ids: list[list[Any]], now: int) -> None:
        """Make the side table say what rows say."""
        self.lane_table.gather()
        try:
            with self._alone():
                for row_id in row_ids:
                    self._reconcile(row_id, now)
        finally:
            self.lane_table.catch_up(now)

    def flush(self) -> None:
        """Before a commit: what triggers of the user's made of our writes counts too, once."""
        if self._head is not None and not self.broken:
            rows = self.database.rows(self._own["own_edits"])
            if rows:
                self.reconcile([json.loads(row_id) for _, row_id in rows], self.tx.now())
                self.database.execute(self._own["forget_edits"], (rows[-1][0],))
        super().flush()

    def _reconcile(self, row_id: list[Any], now: int) -> None:
        task_id: TaskId = row_id[0] if len(row_id) == 1 else tuple(row_id)
        record = super().record(self.database.row(self.sql["find"], (self._side_id(row_id),)))
        row = self.database.row(self._own["read"], row_id)
        values = None if row is None else dict(zip(self.fields, row, strict=True))
        if values is None or values["status"] not in edits.STATES:
            if record is not None:
                self._forget_task(record._replace(id=task_id), now)
            return
        if record is None:
            new = self._fresh(task_id, values, now)
            self.counters.move(None, new.state)
            super().insert(new, now)
        else:
            record = record._replace(id=task_id)
            if not edits.differs(self.config, record, values):
                return
            new = edits.edited(self.config, record, values, now)
            self.counters.move(record.state, new.state)
            super().update(record, new, now)
        if edits.differs(self.config, new, values):
            self._write_row(new)

    def _forget_task(self, record: Record, now: int) -> None:
        self.counters.move(record.state, None)
        super().remove(record, now)

    def _remove_orphan(self, record: Record) -> None:
        """REPLACE INTO removes rows without a word to triggers."""
        if not self.database.connection.readonly("main"):
            self._forget_task(record, self.tx.now())

    def drop(self) -> None:
        """Un-adopt: the user's table stays as it is."""
        for name in TRIGGERS:
            self.database.execute(self._own[f"drop_{name}"])
        super().drop()

    # -- time, and tables that are gone ------------------------------------------------------------

    def settle(self, until: int) -> None:
        if not self.broken:
            super().settle(until)

    def _settle_step(self, record: Record, what: Due) -> Record | None:
        with self._alone():
            return super()._settle_step(record, what)

    def give_back(self, changes: Sequence[Change]) -> Record:
        with self._alone():
            return self.save(changes)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody is there to be told what the table refuses."""
        self._unattended = True
        try:
            yield
        finally:
            self._unattended = False

    def taken(self, session: int | None = None) -> list[Record]:
        if session is None:
            self.check()
        return [] if self.broken else super().taken(session)

    def find(self, task_id: TaskId) -> Record | None:
        self.check()
        return super().find(task_id)

    def find_key(self, key: str) -> Record | None:
        self.check()
        return super().find_key(key)

    def find_put_id(self, put_id: str) -> Record | None:
        self.check()
        return super().find_put_id(put_id)

    def candidate(self, lane: str | None, now: int) -> Record | None:
        self.check()
        while True:
            ready = self.counters.rows(State.READY)
            record = super().candidate(lane, now)
            if record is not None or self.counters.rows(State.READY) == ready:
                return record  # else an orphan was removed: there may be another task

    def buried(self, limit: int | None) -> list[Record]:
        self.check()
        return super().buried(limit)

    def exhausted(self) -> list[Record]:
        self.check()
        return super().exhausted()

    def page(self, state: State | None, limit: int, after: TaskId | None) -> list[Record]:
        self.check()
        return super().page(state, limit, after)
