"""A scan: tasks of a tube, or events, in the order of their seq, in batches of Arrow.

A scan is a look at what is stored. It settles nothing: a task whose delay or ttl is over is shown as it was, until
whoever keeps time in the store gets to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from penstock.model import ops
from penstock.model.errors import TaskNotFound, UsageError
from penstock.model.state import State
from penstock.model.task import HistoryRow, Record, TaskId

if TYPE_CHECKING:
    import pyarrow as pa

BEGINNING = -(1 << 62)
"""Before every seq; those of adopted tables need not be positive."""
PAGE = 10_000
"""Rows of a batch, at most."""
_AMBIGUOUS = re.compile(r'-?[0-9]+\Z|"')
Kind = Literal["bigint", "string", "binary", "double", "timestamp"]


def _columns(text: str) -> dict[str, str]:
    return dict(part.split() for part in text.split(","))


TASKS = _columns(
    "seq bigint, id string, state string, reason string, data string, body binary, pri bigint, lane string, "
    "key string, attempt bigint, max_attempts bigint, ttl double, ttr double, created_at timestamp, "
    "ready_at timestamp, expires_at timestamp, taken_at timestamp, deadline timestamp, done_at timestamp, "
    "result string, error string, errors string"
)
EVENTS = _columns(
    "seq bigint, at timestamp, tube string, task_id string, event string, from_state string, to_state string, "
    "reason string, attempt bigint, pri bigint, lane string, key string, worker string, error_class string, "
    "error string, ready_at timestamp, taken_at timestamp, delay double, data string, body binary"
)
COLUMNS = {"tasks": TASKS, "events": EVENTS}


class NotPlain(Exception):
    """Not just rows: a task has to be put together from a table of the user's, or an id from several columns."""


class Scan(NamedTuple):
    """What to read. Empty `columns` are all; None is no limit."""

    what: Literal["tasks", "events"]
    tube: str | None = None
    columns: tuple[str, ...] = ()
    lo: int = BEGINNING
    """The seq before the first."""
    hi: int | None = None
    """The last seq."""
    states: tuple[str, ...] | None = None
    """Of tasks the state, of events the state they led to."""
    lanes: tuple[str, ...] | None = None
    since: int | None = None
    until: int | None = None
    """Moments, the second one excluded: of tasks created_at, of events at."""
    by_end: bool = False
    """The moment of a task is done_at, if it has one."""

    @property
    def kinds(self) -> dict[str, str]:
        """The columns that are asked for, with their kinds."""
        known = COLUMNS[self.what]
        return known if not self.columns else {name: known[name] for name in self.columns}

    @property
    def state_column(self) -> str:
        return "state" if self.what == "tasks" else "to_state"

    def check(self) -> Scan:
        """The same, unless it cannot be read."""
        known = COLUMNS[self.what]
        if self.what == "tasks" and self.tube is None:
            raise UsageError("a scan of tasks needs a tube")
        for name in self.columns:
            if name not in known:
                raise UsageError(f"{self.what} have no column {name!r}; they have {', '.join(known)}")
        for state in self.states or ():
            if state not in list(State):
                raise UsageError(f"there is no state {state!r}; there are {', '.join(State)}")
        return self


def id_text(task_id: TaskId) -> str:
    """An id as a column shows it: text is itself, a composite one a JSON array.

    Text that looks like a number stands in quotation marks: a tube can have both tasks. So does text that begins
    with one.

    >>> id_text(7), id_text("a"), id_text("7"), id_text((7, "a"))
    ('7', 'a', '"7"', '[7, "a"]')
    """
    if isinstance(task_id, str):
        return json.dumps(task_id, ensure_ascii=False) if _AMBIGUOUS.match(task_id) else task_id
    return str(task_id) if isinstance(task_id, int) else json.dumps(task_id, ensure_ascii=False)


class Performer(Protocol):
    """What performs ops."""

    def execute(self, op: ops.Op[Any]) -> Any: ...


def batches(store: Performer, scan: Scan) -> Iterator[pa.RecordBatch]:
    """A scan by what every engine can do: page after page of ListTasks or ReadHistory."""
    from penstock.engines import arrow

    pages = _tasks(store, scan) if scan.what == "tasks" else _events(store, scan)
    for page in pages:
        rows = [row for row in page if _is_wanted(scan, row)]
        if rows:
            yield arrow.from_columns(scan.kinds, [[_value(row, name) for row in rows] for name in scan.kinds])


def _tasks(store: Performer, scan: Scan) -> Iterator[list[Record]]:
    assert scan.tube is not None
    config = store.execute(ops.GetTube(scan.tube))
    counted = config.id in ("auto", "time64") and config.adopted is None
    state = State(scan.states[0]) if scan.states and len(scan.states) == 1 else None
    seen = scan.lo
    places: list[TaskId | None] = [scan.lo] if counted and scan.lo > 0 else [None]
    while True:
        try:
            page: list[Record] = store.execute(ops.ListTasks(scan.tube, state, PAGE, places[-1]))
        except TaskNotFound:
            # The one to go on from is gone; one before it is as good.
            places.pop()
            continue
        fresh = [record for record in page if record.seq > seen and (scan.hi is None or record.seq <= scan.hi)]
        if fresh:
            yield fresh
        if len(page) < PAGE or (scan.hi is not None and page[-1].seq >= scan.hi):
            return
        seen = max(seen, page[-1].seq)
        places = [page[-1].seq] if counted else [None, *(record.id for record in page)]


def _events(store: Performer, scan: Scan) -> Iterator[list[HistoryRow]]:
    after = max(0, scan.lo)
    while True:
        page: list[HistoryRow] = store.execute(ops.ReadHistory(scan.tube, after, PAGE))
        yield [row for row in page if scan.hi is None or row.seq <= scan.hi]
        if len(page) < PAGE or (scan.hi is not None and page[-1].seq >= scan.hi):
            return
        after = page[-1].seq


def _is_wanted(scan: Scan, row: Record | HistoryRow) -> bool:
    if isinstance(row, HistoryRow):
        state, moment = row.to_state, row.at
    else:
        state, moment = row.state, (row.done_at if scan.by_end else None) or row.created_at
    return (
        (scan.states is None or state in scan.states)
        and (scan.lanes is None or row.lane in scan.lanes)
        and (scan.since is None or moment >= scan.since)
        and (scan.until is None or moment < scan.until)
    )


def _value(row: Record | HistoryRow, name: str) -> Any:
    """A column of a row; moments and durations stay whole microseconds."""
    if name == "data":
        return row.data if isinstance(row.data, str) else None
    if name == "body":
        return row.data if isinstance(row.data, bytes) else None
    value = getattr(row, name)
    return id_text(value) if name in ("id", "task_id") else value
