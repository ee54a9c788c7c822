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
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from penstock.engines.sqlite import edits
from penstock.engines.sqlite.adopted_statements import adopted_sql, data_of, per_call, quoter
from penstock.engines.sqlite.database import Database, Row
from penstock.engines.sqlite.statements import Keys, named, render
from penstock.engines.sqlite.tube import SqliteTube
from penstock.model import rules
from penstock.model.duration import FOREVER, SECOND
from penstock.model.errors import DuplicateKey, UsageError
from penstock.model.rules import Due
from penstock.model.state import Event, State
from penstock.model.stats import Counters
from penstock.model.task import Change, Record, TaskId
from penstock.model.tube import TubeConfig

if TYPE_CHECKING:
    from penstock.engines.sqlite.transaction import SqliteTransaction

LETTERS = {State.READY: "R", State.TAKEN: "T", State.DELAYED: "W", State.BURIED: "B"}
TRIGGERS = ("on_insert", "on_update", "on_delete")
_SQL = named("adopted.sql")
log = logging.getLogger("penstock")


class Update(NamedTuple):
    """Columns that a verb changes together with the task."""

    stored: Record
    """The task as it is stored."""
    seen: Record
    """The same with its new lane and priority, which is what the verb goes on with."""
    columns: dict[str, Any]


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
        self._data: list[str] = []
        self._schema = -1
        self._broken: str | None = None
        self._update: Update | None = None
        self._unattended = False
        self.look()

    # -- the table as it is ------------------------------------------------------------------------

    def forget(self) -> None:
        super().forget()
        self.look()

    def look(self, installed: bool = True) -> None:
        """Notice columns that were added, and that the table was renamed or dropped."""
        schema = self.database.value("PRAGMA schema_version")
        if schema == self._schema:
            return
        self._schema = schema if installed else -1
        columns = [row[0] for row in self.database.rows(_SQL["columns"], (self.table,))]
        missing = {*self._key, *self.fields.values()}.difference(columns)
        watched = self.database.value(_SQL["count_triggers"], (self.table, self.number)) == len(TRIGGERS)
        self._broken = None
        if not columns or (installed and not watched):
            self._broken = f"the table {self.table!r} was dropped or renamed, or its triggers were"
        elif missing:
            self._broken = f"the table {self.table!r} has no columns {', '.join(sorted(missing))} any more"
        self._data = [c for c in columns if c not in self._key and c not in self.fields.values()]
        self._keys = Keys(tuple(self._key), data_of(self.number, self.config, self._data, self._quote))
        self.sql = render(self.number, self.config, self._keys)

    def check(self) -> None:
        """Nothing can be done with tasks whose table is gone; all other tubes go on."""
        if self._broken:
            raise UsageError(
                f"tube {self.config.name!r} cannot be used: {self._broken}; restore it, "
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
            # REPLACE INTO removes rows without a word to triggers.
            self.tx.remove_orphan(self, record)
            return None
        return record

    def records(self, rows: list[Row]) -> list[Record]:
        return [record for row in rows if (record := self.record(row)) is not None]

    def key_of(self, task_id: TaskId) -> Any:
        """An id as the side table has it: the key, or the JSON array that SQLite makes of a composite one."""
        parts = task_id if isinstance(task_id, tuple) else (task_id,)
        kinds = {"number": int, "text": str}
        fits = len(parts) == len(self._key) and all(
            isinstance(part, kinds.get(kind, int | str)) for part, kind in zip(parts, self._kinds, strict=True)
        )
        if not fits:
            wanted = ", ".join(f"{key} ({kind})" for key, kind in zip(self._key, self._kinds, strict=True))
            what = f"the tuple ({wanted})" if len(self._key) > 1 else wanted
            raise UsageError(f"an id of tube {self.config.name!r} is {what}, got {task_id!r}")
        if len(parts) == 1:
            return parts[0]
        return self.database.value(f"SELECT json_array({', '.join('?' * len(parts))})", parts)

    @staticmethod
    def _parts(task_id: TaskId) -> tuple[Any, ...]:
        return task_id if isinstance(task_id, tuple) else (task_id,)

    def stored(self, record: Record) -> tuple[Any, ...]:
        values = list(record)
        values[1], values[4] = self.key_of(record.id), None
        return (*values, *self._parts(record.id))

    def next_seq(self, at_least: int = 0) -> int:
        if self.config.id in ("auto", "time64"):
            highest = self.database.value(self._own["highest"])
            at_least = max(at_least, highest + 1 if isinstance(highest, int) else 1)
        return super().next_seq(at_least)

    def letter(self, record: Record) -> str:
        """xqueue's letter of a state."""
        if record.state != State.DONE:
            return LETTERS[State(record.state)]
        for_ever = record.keep == FOREVER or (record.keep is None and not self.adopted["zombie"])
        return "D" if record.purge_at is None and for_ever else "Z"

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
        changes, columns = self._with_update(list(changes))
        self._check_features(changes)
        with self.whole():
            before, after = changes[0].before, changes[-1].after
            if before is None:
                after = self._insert_row(after)
                changes = [changes[0]._replace(after=after)]
            elif columns:
                self._change_row(after.id, columns)
                data = self.database.value(self.sql["data_of"], (self.key_of(after.id),))
                changes = [change._replace(after=change.after._replace(data=data)) for change in changes]
            return super().save(changes)

    def _with_update(self, changes: list[Change]) -> tuple[list[Change], dict[str, Any]]:
        """Columns given by update=, or as new data by release(data=) and on_conflict='replace'."""
        update, self._update = self._update, None
        before, after = changes[0].before, changes[-1].after
        columns: dict[str, Any] = {}
        if before is None:
            return changes, columns
        if update is not None and before is update.seen:
            columns = update.columns
            changes[0] = changes[0]._replace(before=update.stored)
        if after.data != before.data:
            columns = {**columns, **self._columns(after.data)}
        return changes, columns

    def _check_features(self, changes: Sequence[Change]) -> None:
        name, event, after = self.config.name, changes[0].event, changes[-1].after
        if not self.adopted["buried"]:
            if event in (Event.BURY, Event.FAIL) and changes[0].after.state == State.BURIED:
                raise UsageError(f"tube {name!r} was adopted with buried=False, so nothing can be buried; release it")
            if event == Event.PUT and after.max_attempts is not None:
                raise UsageError(f"tube {name!r} was adopted with buried=False: max_attempts needs the feature buried")
        keeps = self.adopted["keep"] or self.adopted["zombie"]
        if event == Event.PUT and after.keep and not keeps:
            raise UsageError(f"option 'keep' needs the feature keep or zombie, which tube {name!r} lacks")
        if event == Event.ACK and after.purge_at is not None and after.done_at is not None:
            asked = after.purge_at - after.done_at not in (0, self.config.keep, rules.WATCH_KEEP)
            if asked and not self.adopted["zombie"]:
                raise UsageError(f"keep=seconds needs the feature zombie, which tube {name!r} lacks")
        if event == Event.ACK and after.state == State.DONE and after.purge_at is None and not keeps:
            raise UsageError(f"keep=True needs the feature keep or zombie, which tube {name!r} lacks")

    def insert(self, record: Record, now: int) -> None:
        super().insert(record._replace(data=""), now)
        self.write_row(record)

    def update(self, before: Record, after: Record, now: int) -> None:
        super().update(before, after._replace(data=None), now)  # type: ignore[arg-type]
        self.write_row(after)

    def remove(self, record: Record, now: int) -> None:
        super().remove(record, now)
        self._run(self._own["delete"], self._parts(record.id))

    def write_row(self, record: Record) -> None:
        """Let the mapped columns say what the side table says."""
        values = self.mapped(record)
        values.update((f"k{i}", part) for i, part in enumerate(self._parts(record.id)))
        self._run(self._own["write"], values)

    def mapped(self, record: Record) -> dict[str, Any]:
        """The mapped columns of a task, by field."""
        what = rules.due(record)
        values = {
            "status": self.letter(record),
            "run_at": 0 if what is None else what.at / SECOND,
            "priority": record.pri,
            "lane": "" if record.lane is None and self.adopted["lane_required"] else record.lane,
            "attempts": record.attempt,
        }
        return {name: values[name] for name in self.fields}

    def _run(self, text: str, values: Any) -> None:
        """A statement on the user's table: his constraints are his to keep."""
        try:
            self.database.execute(text, values)
        except (apsw.ConstraintError, apsw.MismatchError) as error:
            if not (self._unattended or self.tx.unattended):
                raise UsageError(f"table {self.table!r} refuses this: {error}") from error
            # Time, or the end of a session, must not be stopped by one row: the queue goes on without it.
            log.error("table %r refuses what tube %r has to write: %s", self.table, self.config.name, error)

    def _insert_row(self, record: Record) -> Record:
        columns = self._columns(record.data)
        for name, part in zip(self._key, self._parts(record.id), strict=True):
            if columns.pop(name, part) != part:
                raise UsageError(f"the data has another {name!r} than the id of the task: {part!r}")
        moved = self._moved(record, columns)
        if self.database.value(self._own["exists"], self._parts(record.id)) is not None:
            raise DuplicateKey(f"table {self.table!r} has a row with the key {record.id!r}")
        self.key_of(record.id)
        mapped = {self.fields[name]: value for name, value in self.mapped(moved).items()}
        values = {**dict(zip(self._key, self._parts(record.id), strict=True)), **mapped, **self._free(columns)}
        names = ", ".join(map(self._quote, values))
        text = per_call("insert_row", self.config, self._quote, names=names, marks=", ".join("?" * len(values)))
        # The side table comes first, so that the trigger on the row finds it there and stays silent.
        return moved._replace(data=self._insert_both(moved, text, list(values.values())))

    def truncate(self) -> int:
        """Remove the rows that are tasks; rows with other letters are not ours."""
        self.check()
        self.tx.take_edits()
        with self.whole():
            self._run(self._own["delete_all"], ())
            number = super().truncate()
            self.database.execute(self._own["forget_edits"])
        return number
