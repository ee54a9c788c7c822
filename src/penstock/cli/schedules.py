"""`penstock schedules`: what is put again and again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import completion, output, values
from penstock.cli.command import command, epilog
from penstock.cli.options import TubeName
from penstock.cli.place import opened
from penstock.cli.status import NOTHING_THERE
from penstock.model.duration import seconds
from penstock.schedules import Schedule

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.", autocompletion=completion.schedules)]


def register(app: typer.Typer) -> None:
    group = typer.Typer(rich_markup_mode="rich", epilog=epilog(["penstock schedules list"]))
    group.callback(invoke_without_command=True)(schedules)
    command(group, "list", panel="Schedules", examples=["penstock schedules list"])(listed)
    command(
        group,
        "add",
        panel="Schedules",
        examples=[
            "penstock schedules add nightly reports --cron '0 3 * * *' --tz Europe/Berlin",
            "penstock schedules add sweep reports --every 10m",
        ],
    )(add)
    command(group, "remove", panel="Schedules", examples=["penstock schedules remove sweep"])(remove)
    app.add_typer(group, name="schedules", rich_help_panel="Tubes")


def schedules(context: typer.Context) -> None:
    """What workers put again and again."""
    if context.invoked_subcommand is None:
        context.get_help()


def listed() -> None:
    """List schedules, with when they fire next."""
    with opened() as queue:
        found = queue.schedules()
    if output.as_json():
        for schedule in found:
            output.json_line(_document(schedule))
        return
    rows = [
        (it.name, it.tube, it.cron or f"every {output.shown(seconds(it.every))} s", it.tz, it.next_at) for it in found
    ]
    output.table(("name", "tube", "when", "tz", "next"), rows)


def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name; one that is there is replaced.")],
    tube: TubeName,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="The data of the tasks, JSON.")] = None,
    cron: Annotated[
        str | None, typer.Option(metavar="'M H D M W'", help="Minute, hour, day, month, day of the week.")
    ] = None,
    every: Annotated[
        Any, typer.Option(parser=values.seconds, metavar="TIME", help="From one to the next, instead of --cron.")
    ] = None,
    tz: Annotated[str, typer.Option(metavar="ZONE", help="The time zone of --cron.")] = "UTC",
    missed: Annotated[
        str, typer.Option(metavar="coalesce|skip|all", help="What becomes of fires while no worker ran.")
    ] = "coalesce",
) -> None:
    """Put a task into a tube again and again.

    Workers do it, once a fire over all of them.
    """
    with opened() as queue:
        queue.tube(tube)
        value = None if data is None else values.data(data)
        made = queue.schedule(name, tube, value, cron=cron, every=every, tz=tz, missed=missed)  # type: ignore[arg-type]
    if output.as_json():
        output.json_line(_document(made))
    else:
        output.message(f"schedule {name!r} fires next at {output.shown(made.next_at)}")


def remove(name: Name) -> None:
    """Remove a schedule; tasks that it has put stay."""
    with opened() as queue:
        found = queue.unschedule(name)
    if output.as_json():
        output.json_line({"removed": found})
    elif not found:
        output.message(f"there is no schedule {name!r}; `penstock schedules list` shows those that are there")
    if not found:
        raise typer.Exit(NOTHING_THERE)


def _document(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "tube": schedule.tube,
        "data": schedule.data,
        "cron": schedule.cron,
        "every": seconds(schedule.every),
        "tz": schedule.tz,
        "missed": schedule.missed,
        "options": dict(schedule.options),
        "next_at": schedule.next_at,
    }
