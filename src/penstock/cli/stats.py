"""`penstock stats`: how many tasks are in which state, and what happened to them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from penstock.blocking import Queue
from penstock.cli import completion, output
from penstock.cli.command import command
from penstock.cli.place import opened
from penstock.model.stats import CALLS, Statistics

STATES = ("ready", "taken", "delayed", "buried", "total", "kept", "done")


def register(app: typer.Typer) -> None:
    command(app, panel="Tubes", examples=["penstock stats", "penstock stats mail --json"])(stats)


def stats(
    tube: Annotated[
        str | None, typer.Argument(metavar="TUBE", help="Only this one.", autocompletion=completion.tubes)
    ] = None,
) -> None:
    """Count tasks by state, and what happened to them.

    What happened (`done`, and calls) is counted since the store's run began: on SQLite that is when a process opened
    the file that nobody had open, which may be this command itself. `total` is the sum of ready,
    taken, delayed and buried; `kept` are done tasks that are still stored; `done` is how many have become done.
    """
    with opened() as queue:
        found = queue.statistics() if tube is None else {tube: queue.tube(tube).statistics()}
        since = _since(queue)
    if output.as_json():
        for name, statistics in found.items():
            output.json_line({"tube": name, "tasks": statistics.tasks, "calls": statistics.calls})
    elif tube is not None:
        output.fields({name: found[tube].tasks[name] for name in STATES})
        output.line()
        output.fields({f"{name} calls": number for name, number in found[tube].calls.items() if number})
    else:
        _tables(found)
    if since is not None and found:
        output.message(f"done and calls are counted since {output.shown(since)}, when nobody else had the file open")


def _since(queue: Queue) -> datetime | None:
    """When a run began that ends whenever nobody has the store open; None where runs last."""
    store: Any = queue._engine.store
    if type(store).__name__ != "SqliteStore":
        return None
    from penstock.engines.sqlite.holdings import run_began

    return datetime.fromtimestamp(run_began(store._place), UTC)


def _tables(found: dict[str, Statistics]) -> None:
    states = [(name, *(statistics.tasks[state] for state in STATES)) for name, statistics in found.items()]
    output.table(("tube", *STATES), states, right=STATES)
    calls = [call.value for call in CALLS if any(statistics.calls[call.value] for statistics in found.values())]
    if calls:
        output.line()
        rows = [(name, *(statistics.calls[call] for call in calls)) for name, statistics in found.items()]
        output.table(("calls", *calls), rows, right=calls)
