"""A table of the user's as a tube.

The user's row keeps its status letter (and run_at, priority, lane, attempts where mapped); everything else a
task needs lives in a side table with its own indexes, keyed by the primary key. Triggers in plain SQL note
rows that were changed by hand; the next transaction of any process takes them into account. A trigger is
silent when the side table already says what the row says, which is how our own writes do not notify us.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import apsw

from penstock.engines.sqlite.database import Database, Row
from penstock.engines.sqlite.statements import Keys, named, render
from penstock.engines.sqlite.tube import SqliteTube
from penstock.model import rules
from penstock.model.duration import SECOND
from penstock.model.errors import UsageError
from penstock.model.state import Reason, State
from penstock.model.task import Draft, Record, TaskId
from penstock.model.tube import TubeConfig

if TYPE_CHECKING:
    from penstock.engines.sqlite.transaction import SqliteTransaction

STATES = {"R": State.READY, "T": State.TAKEN, "W": State.DELAYED, "B": State.BURIED, "Z": State.DONE, "D": State.DONE}


class AdoptedTube(SqliteTube):
    def __init__(self, tx: SqliteTransaction, database: Database, number: int, config: TubeConfig) -> None:
        adopted = config.adopted
        assert adopted is not None
        self._table: str = adopted["table"]
        self._key: list[str] = adopted["key"]
        self._fields: dict[str, str] = adopted["fields"]
        self._data: list[str] = adopted["data"]
        self._quote = quoter(database)
        self._as_list = adopted["retval"] == "tuple"
        self._sql = adopted_sql(number, config, self._quote)
        data = self._sql["data"].replace("<data>", self._data_expression())
        self.keys = Keys(tuple(self._key), f"({data})")
        super().__init__(tx, database, number, config, self.keys)

    def _data_expression(self) -> str:
        shown = [f"CASE typeof(u.{c}) WHEN 'blob' THEN hex(u.{c}) ELSE u.{c} END" for c in map(self._quote, self._data)]
        if self._as_list:
            return f"json_array({', '.join(shown)})"
        names = [_literal(name) for name in self._data]
        return f"json_object({', '.join(f'{name}, {value}' for name, value in zip(names, shown, strict=True))})"

    # -- ids ---------------------------------------------------------------------------------------

    def record(self, row: Row | None) -> Record | None:
        if row is None:
            return None
        record: Record = tuple.__new__(Record, row)
        return record._replace(id=tuple(json.loads(row[1]))) if len(self._key) > 1 else record

    def records(self, rows: list[Row]) -> list[Record]:
        return [record for row in rows if (record := self.record(row)) is not None]

    def key_of(self, task_id: TaskId) -> Any:
        if len(self._key) == 1:
            return task_id
        if not isinstance(task_id, tuple) or len(task_id) != len(self._key):
            raise UsageError(f"an id of {self.config.name!r} is a tuple of {', '.join(self._key)}, got {task_id!r}")
        return json.dumps(task_id)

    def _parts(self, task_id: TaskId) -> tuple[Any, ...]:
        return task_id if isinstance(task_id, tuple) else (task_id,)

    def stored(self, record: Record) -> tuple[Any, ...]:
        values = list(record)
        values[1], values[4] = self.key_of(record.id), None
        return (*values, *self._parts(record.id))

    # -- writing both sides ------------------------------------------------------------------------

    def insert(self, record: Record, now: int) -> None:
        what = rules.due(record)
        self.note_due(record)
        self.note_pri(record)
        place = self.next_place(record.seq) if self.config.features.lanes and record.lane is None else None
        values = self.stored(record)
        keys = len(self._key)
        due_at = None if what is None else what.at
        # The insert lists the record's columns, then the key's, then due_at and place.
        self.database.execute(self.sql["insert"], (*values[:-keys], *values[-keys:], due_at, place))
        if self.database.value(self._sql["exists"], self._parts(record.id)) is None:
            self._insert_row(record)
        self._write_row(record)
        if record.lane is not None:
            self.lane_table.refresh(record.lane, now)

    def _insert_row(self, record: Record) -> None:
        columns = json.loads(record.data)
        if not isinstance(columns, dict):
            raise UsageError(f"put into an adopted table takes a mapping of columns, got {record.data[:100]!r}")
        columns = self._checked_columns(columns)
        names = [*self._key, self._fields["status"], *columns]
        values = [*self._parts(record.id), self.letter(record), *columns.values()]
        text = self._sql["insert_row"].replace("<names>", ", ".join(map(self._quote, names)))
        text = text.replace("<marks>", ", ".join("?" * len(names)))
        self._run_for_user(text, values)

    def _checked_columns(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        unknown = set(columns) - set(self._data)
        if unknown:
            raise UsageError(
                f"table {self._table!r} has no free columns {sorted(unknown)}; it has {', '.join(self._data)}"
            )
        return {name: json.dumps(v) if isinstance(v, dict | list) else v for name, v in columns.items()}

    def _run_for_user(self, text: str, values: list[Any]) -> None:
        """A statement on the user's table: his constraints are his to keep."""
        try:
            self.database.execute(text, values)
        except (apsw.ConstraintError, apsw.MismatchError) as error:
            raise UsageError(f"table {self._table!r} refuses this: {error}") from error

    def update(self, before: Record, after: Record, now: int) -> None:
        super().update(before, after._replace(data=None), now)  # type: ignore[arg-type]
        self._write_row(after)

    def remove(self, record: Record, now: int) -> None:
        super().remove(record, now)
        self.database.execute(self._sql["delete"], self._parts(record.id))

    def _write_row(self, record: Record) -> None:
        what = rules.due(record)
        values = {
            "status": self.letter(record),
            "run_at": 0 if what is None else what.at / SECOND,
            "priority": record.pri,
            "lane": record.lane,
            "attempts": record.attempt,
        }
        self.database.execute(self._sql["write"], (*(values[name] for name in self._fields), *self._parts(record.id)))

    @staticmethod
    def letter(record: Record) -> str:
        """xqueue's letter of a state."""
        if record.state == State.DONE:
            return "D" if record.purge_at is None else "Z"
        return {State.READY: "R", State.TAKEN: "T", State.DELAYED: "W", State.BURIED: "B"}[State(record.state)]

    def change_columns(self, record: Record, update: Mapping[str, Any]) -> Record:
        own = {name: self._fields[name] for name in ("lane", "priority") if name in self._fields}
        columns = {name: value for name, value in update.items() if name not in own.values()}
        if columns:
            checked = self._checked_columns(columns)
            text = ", ".join(f"{self._quote(name)} = ?" for name in checked)
            text = self._sql["change"].replace("<assignments>", text)
            self._run_for_user(text, [*checked.values(), *self._parts(record.id)])
        found = self.find(record.id)
        assert found is not None
        record = record._replace(data=found.data)
        if own.get("lane") in update:
            moved = record._replace(lane=update[own["lane"]])
            super().update(record, moved._replace(data=None), 0)  # type: ignore[arg-type]
            record = moved
        return record._replace(pri=update[own["priority"]]) if own.get("priority") in update else record

    # -- changes by hand ---------------------------------------------------------------------------

    def install(self, now: int) -> None:
        """Make the side table and the triggers, and take in the rows that are there."""
        sql = render(self.number, self.config, self.keys)
        for name, text in sql.items():
            lane_index = name in ("create_waiting_index", "create_slot_index")
            if name.startswith("create") and (self.config.features.lanes or not lane_index):
                self.database.execute(text)
        for row in self.database.rows(self._sql["all_keys"]):
            self.reconcile(list(row), now)
        for name in ("on_insert", "on_update", "on_delete"):
            self.database.execute(self._sql[name])

    def reconcile(self, row_id: list[Any], now: int) -> None:
        """Make the side table say what a row says."""
        task_id: TaskId = row_id[0] if len(row_id) == 1 else tuple(row_id)
        record = self.find(task_id)
        row = self.database.row(self._sql["read"], row_id)
        state = None if row is None else STATES.get(row[0])
        if state is None:
            if record is not None:
                self.counters.move(record.state, None)
                super().remove(record, now)
            return
        assert row is not None
        new = self._from_row(record, task_id, dict(zip(self._fields, row, strict=True)), state, now)
        if record is None:
            self.counters.move(None, new.state)
            self.insert(new, now)
        else:
            self.counters.move(record.state, new.state)
            self.update(record, new, now)

    def _from_row(self, old: Record | None, task_id: TaskId, row: dict[str, Any], state: State, now: int) -> Record:
        if old is None:
            seq = self.next_seq(task_id if isinstance(task_id, int) and self.config.id in ("auto", "time64") else 0)
            old = rules.put(self.config, Draft("{}"), now, seq, task_id).after
        run_at = round((row.get("run_at") or 0) * SECOND) or None
        # A row that says T has no lease behind it: whoever wrote that cannot finish it.
        state = State.READY if state == State.TAKEN else state
        return old._replace(
            state=state,
            reason={State.BURIED: Reason.ASKED, State.DONE: Reason.SUCCESS}.get(state),
            pri=row.get("priority") or 0,
            lane=self.config.lane_of(row.get("lane")),
            attempt=row.get("attempts") or 0,
            ready_at=run_at if state == State.DELAYED else now,
            expires_at=run_at if state == State.READY and self.config.features.ttl else None,
            done_at=now if state == State.DONE else None,
            purge_at=run_at if state == State.DONE and row["status"] == "Z" else None,
            session=None,
            token=None,
            taken_at=None,
            deadline=None,
        )

    def drop(self) -> None:
        """Un-adopt: the user's table stays as it is."""
        for name in ("on_insert", "on_update", "on_delete"):
            self.database.execute(self._sql[f"drop_{name}"])
        super().drop()


def quoter(database: Database) -> Any:
    """Identifiers, quoted by SQLite itself."""

    def quote(name: str) -> str:
        quoted: str = database.value("SELECT printf('\"%w\"', ?)", (name,))
        return quoted

    return quote


def _literal(text: str) -> str:
    """Text as a literal, quoted by the driver."""
    literal: str = apsw.format_sql_value(text)
    return literal


def adopted_sql(number: int, config: TubeConfig, quote: Any) -> dict[str, str]:
    """Statements on the user's table."""
    adopted = config.adopted
    assert adopted is not None
    fields: dict[str, str] = adopted["fields"]
    keys: list[str] = adopted["key"]
    side = {
        "status": _STATUS,
        "run_at": "coalesce(due_at, 0) / 1000000.0",
        "priority": "pri",
        "lane": "lane",
        "attempts": "attempt",
    }
    table = quote(adopted["table"])
    values = {
        "table": table,
        "side": f'"tasks_{number}"',
        "number": number,
        "columns": ", ".join(quote(column) for column in fields.values()),
        "row_of_side": " AND ".join(f"u.{quote(key)} IS k{i}" for i, key in enumerate(keys)),
        "keys": ", ".join(quote(key) for key in keys),
        "match": " AND ".join(f"{quote(key)} IS ?" for key in keys),
        "assignments": ", ".join(f"{quote(column)} = ?" for column in fields.values()),
        "watched": ", ".join(quote(column) for column in (*fields.values(), *keys)),
        "same_key": " AND ".join(f"k{i} IS NEW.{quote(key)}" for i, key in enumerate(keys)),
        "old_key": " AND ".join(f"k{i} IS OLD.{quote(key)}" for i, key in enumerate(keys)),
        "new_id": "json_array(" + ", ".join(f"NEW.{quote(key)}" for key in keys) + ")",
        "old_id": "json_array(" + ", ".join(f"OLD.{quote(key)}" for key in keys) + ")",
        "moved": " OR ".join(f"NEW.{quote(key)} IS NOT OLD.{quote(key)}" for key in keys),
        "same_values": " AND ".join(
            f"{side[name]} IS {_shown(name, quote(column))}" for name, column in fields.items()
        ),
    }
    return {name: text.format(**values) for name, text in named("adopted.sql").items()}


_STATUS = (
    "CASE state WHEN 'ready' THEN 'R' WHEN 'taken' THEN 'T' WHEN 'delayed' THEN 'W' WHEN 'buried' THEN 'B' "
    "ELSE iif(purge_at IS NULL, 'D', 'Z') END"
)


def _shown(name: str, column: str) -> str:
    """A mapped column as the side table has it: nothing there counts as zero."""
    return f"coalesce(NEW.{column}, 0)" if name in ("run_at", "priority", "attempts") else f"NEW.{column}"
