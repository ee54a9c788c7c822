"""Tubes: tubes, create, alter, drop, truncate, pause and resume."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.blocking import Queue
from penstock.cli import completion, documents, output
from penstock.cli.command import command
from penstock.cli.options import TubeName, Yes
from penstock.cli.place import opened
from penstock.cli.selection import confirm
from penstock.cli.tube_options import PANEL, TubeOptions
from penstock.model.errors import UsageError

COUNTS = ("ready", "taken", "delayed", "buried", "kept", "done")
TubeNames = Annotated[
    list[str], typer.Argument(metavar="TUBE", help="Names of tubes.", autocompletion=completion.tubes)
]


def register(app: typer.Typer) -> None:
    command(app, panel="Tubes", examples=["penstock tubes"])(tubes)
    command(
        app,
        panel="Tubes",
        examples=[
            "penstock create reports",
            "penstock create polite --lane-rate 2 --lane-concurrency 1 --retry 1,5,30",
            "penstock create orders utube --keep 7d --if-not-exists",
        ],
    )(create)
    command(app, panel="Tubes", examples=["penstock alter mail --max-attempts 5 --ttr none"])(alter)
    command(app, panel="Tubes", examples=["penstock pause mail crawl"])(pause)
    command(app, panel="Tubes", examples=["penstock resume mail crawl"])(resume)
    command(app, panel="Tubes", examples=["penstock truncate crawl --yes"])(truncate)
    command(app, panel="Tubes", examples=["penstock drop crawl --yes"])(drop)


def tubes() -> None:
    """List the tubes.

    With each is how many tasks are in which state; --json has the options too.
    """
    with opened() as queue:
        counted = queue.statistics()
        found = [(tube, counted[tube.name]) for tube in queue.tubes() if tube.name in counted]
    if output.as_json():
        for tube, statistics in found:
            output.json_line(documents.tube(tube, statistics))
        return
    rows = [
        (tube.name, tube.kind, *(statistics.tasks[name] for name in COUNTS), _remarks(tube.options))
        for tube, statistics in found
    ]
    output.table(("name", "kind", *COUNTS, "remarks"), rows, right=COUNTS)
    if not rows:
        output.message("no tubes yet; `penstock create TUBE` makes one")


def _remarks(options: dict[str, object]) -> str:
    return ", ".join(name for name in ("paused", "temporary") if options[name])


def create(
    tube: Annotated[str, typer.Argument(metavar="TUBE", help="Its name: letters, digits, _ . and -")],
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="fifo, fifottl, limfifottl, utube, utubettl or standard.")
    ] = "standard",
    *,
    options: TubeOptions,
    id: Annotated[
        str | None, typer.Option(metavar="auto|time64|uuid|required", help="What ids are.", rich_help_panel=PANEL)
    ] = None,
    payload: Annotated[
        str | None, typer.Option(metavar="json|bytes", help="What the data of tasks is.", rich_help_panel=PANEL)
    ] = None,
    temporary: Annotated[bool, typer.Option("--temporary", help="Not synced to disk, empty at the next run.")] = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Find the tube that is there, if it is the same.")
    ] = False,
) -> None:
    """Make a tube, and the file it is in if that is not there."""
    given = options.given()
    fixed = {"id": id, "payload": payload}
    with opened(create=True) as queue:
        if id == "function":
            raise UsageError("ids that a function makes need a program: create_tube(.., id=function)")
        queue.create_tube(
            tube,
            kind,
            if_not_exists=if_not_exists,
            temporary=temporary,
            **given,
            **{name: value for name, value in fixed.items() if value is not None},
        )
        _show(queue, tube, f"tube {tube!r} of kind {kind!r} is there")


def alter(tube: TubeName, *, options: TubeOptions) -> None:
    """Change options of a tube.

    Defaults of tasks count for later puts, the rest from now on.
    """
    given = options.given()
    if not given:
        raise UsageError("alter what? Pass an option, such as --max-attempts 5; `none` goes back to none")
    with opened() as queue:
        queue.tube(tube).alter(**given)
        _show(queue, tube, f"tube {tube!r} is altered: {', '.join(given)}")


def pause(tubes: TubeNames) -> None:
    """Grant no more tasks of tubes; everything else goes on."""
    with opened() as queue:
        for found in [queue.tube(name) for name in tubes]:
            found.pause()
            _show(queue, found.name, f"tube {found.name!r} is paused; `penstock resume {found.name}` goes on")


def resume(tubes: TubeNames) -> None:
    """Grant tasks of paused tubes again."""
    with opened() as queue:
        for found in [queue.tube(name) for name in tubes]:
            found.resume()
            _show(queue, found.name, f"tube {found.name!r} goes on")


def truncate(tube: TubeName, yes: Yes = False) -> None:
    """Remove all tasks of a tube.

    It is one step: all go or none. Settings, ids and counts of calls stay. Prints how many.
    """
    with opened() as queue:
        found = queue.tube(tube)
        counted = found.statistics().tasks
        confirm(f"remove {output.tasks(counted['total'] + counted['kept'])} of tube {tube!r}?", yes)
        with output.progress(f"truncate {tube}"):
            number = found.truncate()
    output.number("removed", number)


def drop(
    tube: TubeName,
    force: Annotated[bool, typer.Option("--force", help="Also while tasks are taken.")] = False,
    yes: Yes = False,
) -> None:
    """Remove a tube with all its tasks.

    A table that was adopted stays.
    """
    with opened() as queue:
        found = queue.tube(tube)
        counted = found.statistics().tasks
        confirm(f"drop tube {tube!r} with {output.tasks(counted['total'] + counted['kept'])}?", yes)
        with output.progress(f"drop {tube}"):
            found.drop(force)
    if output.as_json():
        output.json_line({"dropped": tube})
    else:
        output.message(f"tube {tube!r} is dropped")


def _show(queue: Queue, tube: str, text: str) -> None:
    if output.as_json():
        found = queue.tube(tube)
        output.json_line(documents.tube(found, found.statistics()))
    else:
        output.message(text)
