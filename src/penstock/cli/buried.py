"""Buried tasks made ready again: kick, dig and plow."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.blocking import Tube
from penstock.cli import output
from penstock.cli.command import command
from penstock.cli.each import each
from penstock.cli.options import Delay, DryRun, Ids, Ttl, TubeName
from penstock.cli.place import opened
from penstock.cli.selection import Action, Selection, act
from penstock.cli.status import NOTHING_THERE
from penstock.model import duration, ops
from penstock.model.state import State

STEP = 10_000
"""How many tasks plow revives in a transaction."""


def register(app: typer.Typer) -> None:
    command(
        app,
        panel="Tasks",
        examples=["penstock kick mail 5 --error-contains timeout --dry-run", "penstock kick mail 10"],
    )(kick)
    command(app, panel="Tasks", examples=["penstock dig mail 4 --delay 1h"])(dig)
    command(
        app,
        panel="Tasks",
        examples=["penstock plow mail --delay 10s", "penstock plow crawl --data '.site == \"a.example\"'"],
    )(plow)


def kick(
    tube: TubeName,
    number: Annotated[int, typer.Argument(min=1, metavar="N", help="How many at most.")] = 1,
    *,
    selection: Selection,
    dry_run: DryRun = False,
) -> None:
    """Make the first buried tasks ready again.

    With a filter they are the first that it finds. Prints how many.
    """
    with opened() as queue:
        found = queue.tube(tube)
        if selection.given or dry_run:
            chosen = selection.limited_to(State.BURIED, "kick")
            action = Action("kick", "kicked", lambda id: ops.Dig(tube, id))
            act(queue, found, chosen, action, dry_run=dry_run, limit=number)
        else:
            _tell("kicked", found.kick(number))


def dig(tube: TubeName, ids: Ids, delay: Delay = None, ttl: Ttl = None) -> None:
    """Make buried tasks ready again by their ids."""
    with opened() as queue:
        found = queue.tube(tube)
        each(ids, lambda id: found.dig(id, delay, ttl))


def plow(
    tube: TubeName,
    delay: Delay = None,
    ttl: Ttl = None,
    *,
    selection: Selection,
    dry_run: DryRun = False,
) -> None:
    """Make all buried tasks ready again.

    With a filter they are all that it finds. Prints how many. It goes in steps, so that others can work meanwhile;
    what is buried while it goes on stays.
    """
    with opened() as queue:
        found = queue.tube(tube)
        if selection.given or dry_run:
            chosen = selection.limited_to(State.BURIED, "plow")
            wait, life = duration.delay(delay), duration.length(ttl, "ttl")
            action = Action("plow", "plowed", lambda id: ops.Dig(tube, id, wait, life))
            act(queue, found, chosen, action, dry_run=dry_run)
        else:
            _tell("plowed", _plow(found, delay, ttl))


def _plow(tube: Tube, delay: Delay, ttl: Ttl) -> int:
    total, done = tube.statistics().tasks["buried"], 0
    with output.progress(f"plow {tube.name}", total) as tell:
        while done < total:
            step = tube.plow(min(STEP, total - done), delay, ttl)
            if not step:
                break
            done += step
            tell(done)
    return done


def _tell(done: str, number: int) -> None:
    output.number(done, number)
    if not number:
        raise typer.Exit(NOTHING_THERE)
