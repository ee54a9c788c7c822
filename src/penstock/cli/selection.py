"""Tasks chosen by what they are like, and what is done with all of them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

import typer

from penstock.blocking import Queue, Task, Tube
from penstock.cli import output, values
from penstock.cli.status import NOTHING_THERE
from penstock.model.errors import PenstockError, TaskNotFound, UsageError, shown
from penstock.model.ops import Op
from penstock.model.state import State
from penstock.model.task import TaskId

PAGE = 1000
FILTERS = "Filters (all must hold)"
CONDITION = re.compile(r"\s*\.([^\s=.]+)\s*==?\s*(.+?)\s*\Z", re.S)


@dataclass(frozen=True)
class Selection:
    """Which tasks: all of these must hold."""

    state: Annotated[State | None, typer.Option(help="Tasks in this state.", rich_help_panel=FILTERS)] = None
    lane: Annotated[str | None, typer.Option(help="Tasks of this lane.", rich_help_panel=FILTERS)] = None
    key: Annotated[str | None, typer.Option(help="The task with this key.", rich_help_panel=FILTERS)] = None
    older_than: Annotated[
        Any,
        typer.Option(
            parser=values.seconds,
            metavar="TIME",
            help="Tasks that were put this long ago, or longer.",
            rich_help_panel=FILTERS,
        ),
    ] = None
    error_contains: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Tasks whose last error has this text.", rich_help_panel=FILTERS),
    ] = None
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="'.FIELD == VALUE'",
            help="Tasks whose data has a field with this value; may be repeated.",
            rich_help_panel=FILTERS,
        ),
    ] = None

    @property
    def given(self) -> bool:
        return any(value not in (None, []) for value in astuple(self))

    def limited_to(self, state: State, verb: str) -> Selection:
        """The same among tasks in the one state that a verb is for."""
        if self.state not in (None, state):
            raise UsageError(f"{verb} is for {state} tasks, not for {self.state} ones")
        return replace(self, state=state)

    def test(self) -> Callable[[Task], bool]:
        """What says whether a task, in the right state, is one of them."""
        fields = [_condition(text) for text in self.data or ()]
        latest = None if self.older_than is None else _ago(self.older_than)

        def matches(task: Task) -> bool:
            return (
                (self.lane is None or (task.lane or "") == self.lane)
                and (self.key is None or task.key == self.key)
                and (latest is None or task.created_at <= latest)
                and (self.error_contains is None or self.error_contains in (task.error or ""))
                and all(_has(task.data, name, value) for name, value in fields)
            )

        return matches


def _ago(seconds: float) -> datetime:
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _condition(text: str) -> tuple[str, Any]:
    match = CONDITION.match(text)
    if match is None:
        raise UsageError(f"--data {shown(text)} is no condition such as '.site == \"a.example\"' or '.n == 7'")
    try:
        return match[1], json.loads(match[2])
    except ValueError:
        return match[1], match[2]


def _has(data: Any, name: str, value: Any) -> bool:
    # 1 and True are equal in Python, and are not in JSON.
    return (
        isinstance(data, dict)
        and name in data
        and data[name] == value
        and isinstance(data[name], bool) == isinstance(value, bool)
    )


def pages(tube: Tube, state: State | None, after: TaskId | None = None) -> Iterator[list[Task]]:
    """All tasks in the order they were put. Each page is read before anything is done to the one before it."""
    page = tube.tasks(state, PAGE, after)
    while page:
        following = _page_after(tube, state, page) if len(page) == PAGE else []
        yield page
        page = following


def _page_after(tube: Tube, state: State | None, page: list[Task]) -> list[Task]:
    """The next page, from the last task of this one that is still there."""
    seen = list[TaskId]()
    for task in reversed(page):
        try:
            found = tube.tasks(state, PAGE, task.id)
            return [task for task in found if task.id not in seen]
        except TaskNotFound:
            seen.append(task.id)
    raise TaskNotFound(f"all tasks of a page of tube {tube.name!r} went away while it was read; try again")


class Action(NamedTuple):
    """What is done with each task that was chosen."""

    verb: str
    past: str
    op: Callable[[TaskId], Op[Any]]
    risky: bool = False
    """Whether a person is asked first."""
    states: tuple[State, ...] = tuple(State)
    """Which tasks it is for."""

    def chooses(self, selection: Selection) -> Callable[[Task], bool]:
        """What says whether it is to be done with a task."""
        matches = selection.test()
        return lambda task: task.state in self.states and matches(task)


def act(
    queue: Queue,
    tube: Tube,
    selection: Selection,
    action: Action,
    *,
    dry_run: bool = False,
    yes: bool = False,
    limit: int | None = None,
) -> None:
    """Do something with every task that matches, in the order they were put; prints how many."""
    total = _rows(tube, selection.state)
    if dry_run or (action.risky and not yes):
        found = _count(tube, selection, action, total, limit)
        if dry_run:
            output.number("matched", found, dry_run=True)
            output.message(f"{output.tasks(found)} would be {action.past}; nothing is changed")
            raise typer.Exit(0 if found else NOTHING_THERE)
        if found:
            confirm(f"{action.verb} {output.tasks(found)} of tube {tube.name!r}?", yes)
        # No more than what was said yes to.
        limit = found
    # Tasks that are put meanwhile could keep this going for ever.
    limit = total if limit is None else min(limit, total)
    done, failed = _do(queue, tube, selection, action, total, limit)
    output.number(action.past, done, failed=failed)
    if failed:
        output.message(f"{output.tasks(failed)} not {action.past}, having changed meanwhile")
    if not done:
        raise typer.Exit(NOTHING_THERE)


def _rows(tube: Tube, state: State | None) -> int:
    tasks = tube.statistics().tasks
    if state is None:
        return tasks["total"] + tasks["kept"]
    return tasks["kept" if state is State.DONE else state.value]


def _count(tube: Tube, selection: Selection, action: Action, total: int, limit: int | None) -> int:
    matches, found, seen = action.chooses(selection), 0, 0
    with output.progress(f"looking through {tube.name}", total) as tell:
        for page in pages(tube, selection.state):
            found += sum(map(matches, page))
            seen += len(page)
            tell(seen)
            if limit is not None and found >= limit:
                return limit
    return found


def _do(queue: Queue, tube: Tube, selection: Selection, action: Action, total: int, limit: int) -> tuple[int, int]:
    matches, done, failed, seen = action.chooses(selection), 0, 0, 0
    with output.progress(f"{action.verb} {tube.name}", total) as tell:
        for page in pages(tube, selection.state):
            chosen = [task.id for task in page if matches(task)][: limit - done - failed]
            if chosen:
                answers = queue._engine.execute_many([action.op(id) for id in chosen])
                bad = [answer for answer in answers if isinstance(answer, Exception)]
                for answer in bad:
                    if not isinstance(answer, PenstockError):
                        raise answer
                done, failed = done + len(chosen) - len(bad), failed + len(bad)
            seen += len(page)
            tell(seen)
            if done + failed >= limit:
                break
    return done, failed


def confirm(question: str, yes: bool) -> None:
    """Ask a person; whoever is no person needs --yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question.rstrip('?')}: nobody is there to ask; pass --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(NOTHING_THERE)
