"""`penstock lanes`: the sub-queues of a tube and their limits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.blocking import Tube
from penstock.cli import output, values
from penstock.cli.command import command
from penstock.cli.options import TubeName
from penstock.cli.place import opened
from penstock.model.errors import UsageError
from penstock.model.lane import LaneInfo, LaneLimits

COLUMNS = ("lane", "ready", "taken", "concurrency", "rate", "burst", "paused", "next_at")
NUMBERS = COLUMNS[1:6]
READ = {"concurrency": values.whole, "rate": values.real, "burst": values.whole}


def register(app: typer.Typer) -> None:
    command(
        app,
        panel="Tubes",
        examples=[
            "penstock lanes crawl",
            "penstock lanes crawl a.example --rate 0.5 --concurrency 1",
            "penstock lanes crawl a.example --pause",
        ],
    )(lanes)


def lanes(
    tube: TubeName,
    lane: Annotated[str | None, typer.Argument(metavar="LANE", help="Give this lane limits of its own.")] = None,
    concurrency: Annotated[str | None, typer.Option(metavar="N", help="How many of its tasks at once.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="N", help="How many of its tasks a second.")] = None,
    burst: Annotated[str | None, typer.Option(metavar="N", help="How many at once after idling.")] = None,
    paused: Annotated[
        bool | None, typer.Option("--pause/--resume", help="Grant none of its tasks, or grant them again.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many lanes at most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="LANE", help="Those that come after this one.")] = None,
) -> None:
    """List the lanes of a tube, or give one limits.

    Lanes are listed that hold tasks or have limits of their own. `none` as a limit goes back to what the tube says.
    """
    words = {"concurrency": concurrency, "rate": rate, "burst": burst}
    given: dict[str, Any] = {
        name: values.option(name, text, READ[name]) for name, text in words.items() if text is not None
    }
    if paused is not None:
        given["paused"] = paused
    if bool(given) != (lane is not None):
        raise UsageError("to give a lane limits pass its name and --concurrency, --rate, --burst, --pause or --resume")
    with opened() as queue:
        found = queue.tube(tube)
        if lane is None:
            _list(found, limit, after)
        else:
            _tell(tube, lane, found.lane(lane).configure(**given))


def _list(tube: Tube, limit: int, after: str | None) -> None:
    found = tube.lanes(limit + 1, after)
    shown = found[:limit]
    if output.as_json():
        for info in shown:
            output.json_line(_document(info))
    else:
        rows = [list(_document(info).values()) for info in shown]
        output.table(COLUMNS, rows, right=NUMBERS)
    if len(found) > limit:
        output.message(f"there are more: --after {shown[-1].name!r}")


def _document(info: LaneInfo) -> dict[str, Any]:
    counted = {"lane": info.name, "ready": info.ready, "taken": info.taken}
    return {**counted, **info.limits._asdict(), "next_at": info.next_at}


def _tell(tube: str, lane: str, limits: LaneLimits) -> None:
    if output.as_json():
        output.json_line({"lane": lane, **limits._asdict()})
        return
    told = ", ".join(f"{name} {output.shown(value)}" for name, value in limits._asdict().items())
    output.message(f"lane {lane!r} of tube {tube!r}: {told}")
