"""From rows of a verb's function to what the op answers.

A function answers in rows of one shape: `step` rows are changes for callbacks, `task` rows are tasks, and `error`
rows are refusals or words about the call as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.model.errors import (
    DuplicateKey,
    LeaseLost,
    NotOwner,
    NotTaken,
    PenstockError,
    TaskNotFound,
    TubeFull,
    WrongState,
)
from penstock.model.state import Event, State
from penstock.model.task import Change, Record, TaskId
from penstock.model.tube import TubeConfig

Row = Sequence[Any]
KIND, TUBE, ITEM, INFO, AT, SEQ, ID, STATE, REASON, DATA, BODY, REST = range(12)


_new = tuple.__new__
"""Makes a named tuple without a look at the names: tasks are made by the hundred."""


class Tube(NamedTuple):
    """A tube as this process knows it; the functions of the database say when that is out of date."""

    number: int
    version: int
    config: TubeConfig


class Stale(Exception):
    """The tube was altered or dropped by somebody else since this process looked."""


class Unusual(Exception):
    """Not the ordinary case, for which there is a shorter way; nothing was done."""


class Again(Exception):
    """A take has looked at as much as one call may; there may be more than what it was granted."""

    def __init__(self, granted: list[Record]) -> None:
        super().__init__()
        self.granted = granted


class Answer(NamedTuple):
    """What a verb's function said: its own rows, and the changes it made."""

    rows: list[Row]
    steps: list[Row]


def split(rows: Iterable[Row]) -> Answer:
    """Tell changes from answers. A tube that was altered meanwhile has done nothing."""
    own: list[Row] = []
    steps: list[Row] = []
    for row in rows:
        if row[KIND] == "step":
            steps.append(row)
        elif row[KIND] == "error" and row[INFO].startswith("Stale"):
            raise Stale
        else:
            own.append(row)
    return Answer(own, steps)


def record(row: Row) -> Record:
    """A task."""
    seq, stored, body = row[SEQ], row[ID], row[BODY]
    return _new(
        Record,
        (
            seq,
            seq if stored is None else task_id(stored),
            *row[STATE:DATA],
            row[DATA] if body is None else body,
            *row[REST:],
        ),
    )


def task_id(stored: str) -> TaskId:
    """An id as the caller knows it; stored is its JSON."""
    value: TaskId = _tuples(json.loads(stored))
    return value


def _tuples(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple([_tuples(part) for part in value]) if isinstance(value, list) else value


def stored_id(value: TaskId) -> str:
    """The other way round."""
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)


def change(row: Row) -> Change:
    """A step of a task's life. Callbacks are told what it led to, not from where."""
    return Change(Event(row[INFO]), row[AT], None, record(row))


WRONG = {
    "bury": "; restart it before it can be buried",
    "cancel": " already",
    "dig": "; only a buried task can be dug out",
    "restart": "; only a waiting or ended task can be restarted",
    "switch": "; snatch it first",
}
"""What a verb says of a state that it is not for."""


def refusal(row: Row, config: TubeConfig, task: Any = None, key: str | None = None, verb: str = "") -> PenstockError:
    """The error that a row stands for."""
    code, _, info = row[INFO].partition(" ")
    name = config.name
    if code == "TaskNotFound":
        return TaskNotFound(f"tube {name!r} has no task with the id {task!r}")
    if code == "NotTaken":
        return NotTaken(f"task {task!r} is {info}, nobody holds it{'' if verb == 'snatch' else '; take it first'}")
    if code == "NotOwner":
        owner = info or "a session that is gone"
        return NotOwner(f"task {task!r} is held by {owner}", owner)
    if code == "LeaseLost":
        return _lost(info, task)
    if code == "WrongState":
        return WrongState(f"task {task!r} is {info}{WRONG.get(verb, '')}")
    if code == "TubeFull":
        return TubeFull(f"tube {name!r} holds its capacity of {info} tasks; finish some or wait")
    if code == "DuplicateKey":
        return _duplicate(info, name, task, key)
    raise AssertionError(f"the store answered {row[INFO]!r}")


def _lost(state: str, task: Any) -> LeaseLost:
    if state == "gone":
        return LeaseLost(f"the lease of task {task!r} is over and the task is gone", "gone")
    now = {State.TAKEN: "taken", State.DONE: "finished"}.get(State(state), "waiting")
    what = {"taken": "another run holds it", "finished": "it is finished", "waiting": f"it is {state}"}[now]
    return LeaseLost(f"the lease of task {task!r} is over: {what}; stop working on it", now)


def _duplicate(info: str, tube: str, task: Any, key: str | None) -> DuplicateKey:
    what, _, state = info.partition(" ")
    if what == "id":
        return DuplicateKey(f"tube {tube!r} has a task with the id {task!r}")
    if what == "back":
        return DuplicateKey(f"a live task has the key {state!r}; finish it before this one comes back")
    return DuplicateKey(
        f"a {state or 'new'} task of tube {tube!r} has the key {key!r}; "
        "on_conflict= ignore, replace or restart says what to do then"
    )
