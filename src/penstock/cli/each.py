"""One thing done with several tasks by their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer

from penstock.blocking import Task
from penstock.cli import documents, output, values
from penstock.model.errors import PenstockError
from penstock.model.task import TaskId


def each(ids: Iterable[str], verb: Callable[[TaskId], Task | None]) -> None:
    """Print the id and the state of each task afterwards. One that is refused does not hold up the others."""
    status = 0
    for text in ids:
        try:
            task = verb(values.task_id(text))
        except PenstockError as error:
            output.complain(error)
            status = status or error.exit_status()
            continue
        if task is None:
            continue
        if output.as_json():
            output.json_line(documents.task(task))
        else:
            output.line(f"{values.shown_id(task.id)}  {task.state}")
    if status:
        raise typer.Exit(status)
