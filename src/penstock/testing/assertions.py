"""assert_put(): what a program has put, and, when it is not there, what is there instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock import calls
from penstock.aio import AsyncQueue, AsyncTask, AsyncTube
from penstock.blocking import Task, Tube
from penstock.model import ops
from penstock.model.errors import TubeNotFound, UsageError, shown
from penstock.model.state import State
from penstock.testing.taking import tube_name
from penstock.view import TaskView

ANY: Any = ...
PAGE = 1000
MOST_SHOWN = 10
FIELDS = {name for name, value in vars(TaskView).items() if isinstance(value, property)} - {"data", "state"} | {"delay"}


def assert_put(
    queue: Any, tube: Any, data: Any = ANY, *, count: int | None = None, state: State | str | None = None, **fields: Any
) -> list[Any]:
    """Fail unless a task like this is in a tube; answers those that are. Tasks that are done and not kept are gone.

    tube: its name, or a handler
    data: a dict, of which the task's data have at least the items; another value, which they equal; or a function
        of the data that answers whether they will do
    count: how many there are exactly; at least one if left out
    state: the one they are in; any if left out
    fields: of the task, as pri, lane, key, attempt, reason or error, and `delay` in seconds; a value or a function

    >>> import penstock
    >>> q = penstock.connect("memory:")
    >>> task = q.create_tube("mail").put({"to": "ann", "text": "hello"}, lane="a")
    >>> (found,) = assert_put(q, "mail", {"to": "ann"}, lane="a")
    >>> assert_put(q, "mail", {"to": "bob"})
    Traceback (most recent call last):
    AssertionError: tube 'mail' has no task with data {'to': 'bob'}; it has 1:
      task 1, ready: data {'to': 'ann', 'text': 'hello'}
    """
    __tracebackhide__ = True
    wanted = Wanted(queue, tube, data, state, fields)
    found = wanted.found()
    if len(found) != count if count is not None else not found:
        raise AssertionError(wanted.report(found, count))
    return found


def assert_not_put(queue: Any, tube: Any, data: Any = ANY, *, state: State | str | None = None, **fields: Any) -> None:
    """Fail if a task like this is in a tube; arguments as for assert_put.

    >>> import penstock
    >>> q = penstock.connect("memory:")
    >>> task = q.create_tube("mail").put({"to": "ann"})
    >>> assert_not_put(q, "mail", {"to": "bob"})
    """
    __tracebackhide__ = True
    assert_put(queue, tube, data, count=0, state=state, **fields)


class Wanted:
    """What tasks of a tube should be like."""

    def __init__(self, queue: Any, tube: Any, data: Any, state: State | str | None, fields: Mapping[str, Any]) -> None:
        unknown = sorted(set(fields) - FIELDS)
        if unknown:
            raise UsageError(f"tasks have no {', '.join(unknown)}; there are {', '.join(sorted(FIELDS))}")
        queue._engine.check_owner()
        self._queue = queue
        self._engine = getattr(queue._engine, "engine", queue._engine)
        self._name = tube_name(tube)
        self._state = calls.state(state)
        self._fields = dict(fields)
        if data is not ANY:
            self._fields = {"data": _plain(data), **self._fields}
        self._all: list[Any] = []

    def found(self) -> list[Any]:
        """The tasks that are like that."""
        self._all = list(self._tasks())
        alike = (task for task in self._all if self._state is None or task.state == self._state)
        return [task for task in alike if all(_fits(w, _value(task, name)) for name, w in self._fields.items())]

    def _tasks(self) -> Iterator[Any]:
        try:
            config = self._engine.execute(ops.GetTube(self._name))
        except TubeNotFound:
            if self._name in self._queue.handlers:  # it is made when the first task is put
                return
            raise
        awaits = isinstance(self._queue, AsyncQueue)
        tube: Any = AsyncTube(self._queue, config) if awaits else Tube(self._queue, config)
        after = None
        while page := self._engine.execute(ops.ListTasks(self._name, None, PAGE, after)):
            yield from ((AsyncTask if awaits else Task)(tube, record) for record in page)
            after = page[-1].id

    def report(self, found: list[Any], count: int | None) -> str:
        """What is there instead."""
        number = f"{len(found) or 'no'} task{'' if len(found) < 2 else 's'}"
        others = "" if count is None else " instead of none" if count == 0 else f" instead of {count}"
        there = f"it has {len(self._all)}:" if self._all else self._empty()
        lines = [f"tube {self._name!r} has {number}{self._described()}{others}; {there}"]
        names = list(self._fields) or ["data"]
        for task in self._all[:MOST_SHOWN]:
            reason = f" ({task.reason})" if task.reason else ""
            facts = ", ".join(f"{name} {shown(_value(task, name))}" for name in names)
            lines.append(f"  task {task.id!r}, {task.state}{reason}: {facts}")
        if len(self._all) > MOST_SHOWN:
            lines.append(f"  and {len(self._all) - MOST_SHOWN} more")
        return "\n".join(lines)

    def _described(self) -> str:
        facts = [] if self._state is None else [f"state {str(self._state)!r}"]
        facts += [f"{name} {shown(wanted)}" for name, wanted in self._fields.items()]
        return f" with {', '.join(facts)}" if facts else ""

    def _empty(self) -> str:
        try:
            done = self._engine.execute(ops.GetStatistics(self._name))[self._name].tasks["done"]
        except TubeNotFound:
            return "it has not been made yet"
        return f"it is empty, and {done} that are done were not kept" if done else "it is empty"


def _plain(value: Any) -> Any:
    """Data as they are stored: a dataclass, a struct or a model becomes a dict."""
    if callable(value) or isinstance(value, bytes):
        return value
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    try:
        return msgspec.to_builtins(value)
    except TypeError:  # something with an == of its own, such as unittest.mock.ANY
        return value


def _value(task: TaskView, name: str) -> Any:
    if name == "delay":
        return 0.0 if task.ready_at is None else (task.ready_at - task.created_at).total_seconds()
    return getattr(task, name)


def _fits(wanted: Any, value: Any) -> bool:
    if callable(wanted):
        return bool(wanted(value))
    if isinstance(wanted, timedelta) and not isinstance(value, datetime):
        wanted = wanted.total_seconds()
    if isinstance(wanted, dict) and isinstance(value, dict):
        return all(key in value and _fits(item, value[key]) for key, item in wanted.items())
    return bool(wanted == value)
