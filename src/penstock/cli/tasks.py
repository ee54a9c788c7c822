"""Tasks looked at and ended by hand: tasks, peek, delete and cancel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from penstock.blocking import Task, Tube
from penstock.cli import documents, output, values
from penstock.cli.command import command
from penstock.cli.each import each
from penstock.cli.options import DryRun, Ids, SomeIds, TubeName, Yes
from penstock.cli.place import opened
from penstock.cli.selection import Action, Selection, act, pages
from penstock.cli.status import NOTHING_THERE
from penstock.model import ops
from penstock.model.errors import TaskNotFound, UsageError
from penstock.model.state import State
from penstock.model.task import TaskId

LIVE = (State.READY, State.TAKEN, State.DELAYED, State.BURIED)


def register(app: typer.Typer) -> None:
    command(
        app,
        panel="Tasks",
        examples=[
            "penstock tasks mail --state buried --older-than 1h",
            "penstock tasks mail --limit 1000 --columns id,state,data",
            "penstock tasks mail --data '.to == ann@example.org' --json",
        ],
    )(tasks)
    command(app, panel="Tasks", examples=["penstock peek mail 1"])(peek)
    command(
        app,
        panel="Tasks",
        examples=["penstock delete mail 1", "penstock delete mail --state buried --older-than 7d --dry-run"],
    )(delete)
    command(
        app,
        panel="Tasks",
        examples=["penstock cancel crawl --key http://a.example/", "penstock cancel crawl --lane a.example --yes"],
    )(cancel)


def tasks(
    tube: TubeName,
    *,
    selection: Selection,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Those that come after this task.")] = None,
    columns: Annotated[str | None, typer.Option(help=f"Which, of {', '.join(documents.TASK)}; between commas.")] = None,
) -> None:
    """List tasks in the order they were put."""
    names = _columns(columns)
    with opened() as queue:
        start = None if after is None else values.task_id(after)
        found = _chosen(queue.tube(tube), selection, limit + 1, start)
        last = _print(found, names, limit)
    if last is not None:
        output.message(f"there are more: --limit {limit * 10}, or --after {values.shown_id(last)} for the next {limit}")


def _columns(given: str | None) -> tuple[str, ...]:
    if given is None:
        return documents.COLUMNS
    names = tuple(name.strip() for name in given.split(","))
    for name in names:
        if name not in documents.TASK:
            raise UsageError(f"there is no column {name!r}; there are {', '.join(documents.TASK)}")
    return names


def _chosen(tube: Tube, selection: Selection, limit: int, after: TaskId | None) -> Iterator[list[Task]]:
    """Tasks that match, by pages of which the first ones come at once."""
    matches = selection.test()
    if limit <= 1000 and not selection.given:
        yield tube.tasks(None, limit, after)
        return
    for page in pages(tube, selection.state, after):
        found = [task for task in page if matches(task)][:limit]
        yield found
        limit -= len(found)
        if limit <= 0:
            return


def _print(found: Iterator[list[Task]], names: tuple[str, ...], limit: int) -> TaskId | None:
    """Print up to so many tasks; answers the last one if there are more."""
    plain = None if sys.stdout.isatty() or output.as_json() else output.Plain(names, documents.NUMBERS)
    shown, last = list[Task](), None
    for page in found:
        rest = limit
        page, more = page[:rest], len(page) > rest
        limit -= len(page)
        if page:
            last = page[-1].id
        if output.as_json():
            for task in page:
                output.json_line(documents.task(task), flush=task is page[-1])
        elif plain is not None:
            plain.print([[output.shown(documents.cell(task, name)) for name in names] for task in page])
        else:
            shown += page
        if more:
            break
    else:
        last = None
    if shown:
        _table(shown, names)
    return last


def _table(tasks: list[Task], names: tuple[str, ...]) -> None:
    """On a terminal the columns in which nothing stands are left out."""
    rows = [[documents.cell(task, name) for name in names] for task in tasks]
    kept = [i for i, name in enumerate(names) if name in ("id", "data") or any(row[i] not in (None, 0) for row in rows)]
    output.table(
        [names[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        right=documents.NUMBERS,
        cut=documents.LONG,
        spare=documents.SPARE,
    )


def peek(tube: TubeName, ids: Ids) -> None:
    """Look at tasks by their ids."""
    status = 0
    with opened() as queue:
        found = queue.tube(tube)
        for number, text in enumerate(ids):
            try:
                task = found.peek(values.task_id(text))
            except TaskNotFound as error:
                output.complain(error)
                status = error.exit_status()
                continue
            if number and not output.as_json():
                output.line()
            documents.show(task)
    if status:
        raise typer.Exit(status)


def delete(
    tube: TubeName,
    ids: SomeIds = None,
    *,
    selection: Selection,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Remove tasks by their ids, or those that a filter finds.

    They may be in any state, whoever holds them. With a filter a person is asked first; anybody else needs --yes.
    `penstock truncate` removes all.
    """
    if bool(ids) == selection.given:
        raise UsageError("delete what? Ids, or a filter such as --state buried: one of them; truncate removes all")
    with opened() as queue:
        found = queue.tube(tube)
        if ids:
            each(ids, found.delete)
            return
        action = Action("delete", "deleted", lambda id: ops.Delete(tube, id), risky=True)
        act(queue, found, selection, action, dry_run=dry_run, yes=yes)


def cancel(
    tube: TubeName,
    ids: SomeIds = None,
    *,
    selection: Selection,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """End tasks that nobody needs any more.

    They are named by ids, by --key, or found by a filter. A task that runs is asked to stop. With a filter other
    than --key a person is asked first; anybody else needs --yes.
    """
    if bool(ids) == selection.given:
        raise UsageError("cancel what? Ids, or --key, or a filter such as --lane: one of them")
    with opened() as queue:
        found = queue.tube(tube)
        if ids:
            each(ids, found.cancel)
        elif selection == Selection(key=selection.key) and not dry_run:
            _cancel_key(found, str(selection.key))
        else:
            action = Action("cancel", "cancelled", lambda id: ops.Cancel(tube, id), risky=True, states=LIVE)
            act(queue, found, selection, action, dry_run=dry_run, yes=yes)


def _cancel_key(tube: Tube, key: str) -> None:
    task = tube.cancel(key=key)
    if task is None:
        output.message(f"no live task of tube {tube.name!r} has the key {key!r}")
        raise typer.Exit(NOTHING_THERE)
    each([values.shown_id(task.id)], lambda id: task)
