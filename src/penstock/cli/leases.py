"""The end of leases: ack, release, bury and fail, by the session that take has printed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer

from penstock.blocking import Queue
from penstock.cli import output, values
from penstock.cli.command import command
from penstock.cli.each import each
from penstock.cli.options import Delay, DryRun, Ids, SessionUuid, SomeIds, Ttl, TubeName, Yes
from penstock.cli.place import holding, opened
from penstock.cli.selection import Action, Selection, act, confirm
from penstock.cli.status import NOTHING_THERE
from penstock.model import duration, ops
from penstock.model.errors import UsageError
from penstock.model.state import State


def register(app: typer.Typer) -> None:
    command(app, panel="Tasks", examples=["penstock ack mail 1 --session $SESSION"])(ack)
    command(
        app,
        panel="Tasks",
        examples=[
            "penstock release mail 2 --session $SESSION --delay 1m",
            "penstock release mail --older-than 1h --dry-run",
            "penstock release mail --all --yes",
        ],
    )(release)
    command(app, panel="Tasks", examples=["penstock bury mail 4 --error 'who is this?'"])(bury)
    command(app, panel="Tasks", examples=["penstock fail mail 3 --session $SESSION --error 'no route'"])(fail)


def ack(
    tube: TubeName,
    ids: Ids,
    session: SessionUuid = None,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="Stored with a task that is kept.")] = None,
    keep: Annotated[
        Any, typer.Option(parser=values.keep, metavar="yes|no|TIME", help="How long the tasks stay, now they are done.")
    ] = None,
) -> None:
    """Finish tasks that a session holds."""
    answer = None if result is None else values.data(result)
    with holding(uuid=_needed(session)) as queue:
        found = queue.tube(tube)
        each(ids, lambda id: found.ack(id, answer, keep))


def release(
    tube: TubeName,
    ids: SomeIds = None,
    session: SessionUuid = None,
    delay: Delay = None,
    pri: Annotated[int | None, typer.Option(help="A new priority; lower comes first.")] = None,
    ttl: Ttl = None,
    refund: Annotated[bool, typer.Option("--refund", help="Do not count the attempt.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every taken task, whoever holds it.")] = False,
    *,
    selection: Selection,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Give tasks back to the tube.

    Those that a session holds by their ids, others by a filter or --all. With a filter or --all they are taken away
    from whoever holds them; a person is asked first, anybody else needs --yes.
    """
    _check_one(bool(ids), everything, selection.given)
    if ids:
        with holding(uuid=_needed(session)) as queue:
            found = queue.tube(tube)
            each(ids, lambda id: found.release(id, delay, pri, ttl, refund=refund))
        return
    if pri is not None or ttl is not None or refund:
        raise UsageError("--pri, --ttl and --refund are for tasks by id: they need the session that holds them")
    wait = duration.delay(delay)
    action = Action("release", "released", lambda id: ops.Snatch(tube, id, wait), risky=True)
    with opened() as queue:
        found = queue.tube(tube)
        if everything and delay is None and not dry_run:
            _release_all(queue, tube, yes)
            return
        act(queue, found, selection.limited_to(State.TAKEN, "release"), action, dry_run=dry_run, yes=yes)


def _release_all(queue: Queue, tube: str, yes: bool) -> None:
    found = queue.tube(tube)
    taken = found.statistics().tasks["taken"]
    if taken:
        confirm(f"release {output.tasks(taken)} of tube {tube!r}?", yes)
    number = found.release_all()
    output.number("released", number)
    if not number:
        raise typer.Exit(NOTHING_THERE)


def _check_one(ids: bool, everything: bool, filtered: bool) -> None:
    if ids + everything + filtered != 1:
        raise UsageError("release what? Ids with --session, or a filter such as --lane, or --all: one of them")


def bury(
    tube: TubeName,
    ids: Ids,
    session: SessionUuid = None,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; it is stored with the task.")] = None,
) -> None:
    """Set tasks aside until kick, dig or plow.

    They are tasks that wait, or that a session holds.
    """
    place: AbstractContextManager[Queue] = holding(uuid=session) if session else opened()
    with place as queue:
        found = queue.tube(tube)
        each(ids, lambda id: found.bury(id, error))


def fail(
    tube: TubeName,
    ids: Ids,
    session: SessionUuid = None,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="What went wrong; it is stored.")] = None,
    delay: Delay = None,
    abort: Annotated[bool, typer.Option("--abort", help="Bury it; do not try again.")] = False,
) -> None:
    """Say that an attempt failed.

    The task is tried again as its tube says, or buried.
    """
    with holding(uuid=_needed(session)) as queue:
        found = queue.tube(tube)
        each(ids, lambda id: found.fail(id, error, delay, abort))


def _needed(session: str | None) -> str:
    if not session:
        raise UsageError("which session holds the tasks? Pass the one that take printed, --session UUID")
    return session
