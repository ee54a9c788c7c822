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
from penstock.payload import error_text

BURY = ["penstock bury mail 4 --error 'who is this?'", "penstock bury mail --older-than 1s --dry-run"]
WAITING = (State.READY, State.DELAYED)


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
    command(app, panel="Tasks", examples=BURY)(bury)
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
    ids: SomeIds = None,
    session: SessionUuid = None,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; it is stored with the task.")] = None,
    *,
    selection: Selection,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Set tasks aside until kick, dig or plow.

    By their ids they are tasks that wait, or that a session holds. By a filter they are those that wait, ready or
    delayed; a person is asked first, anybody else needs --yes.
    """
    if bool(ids) == selection.given:
        raise UsageError("bury what? Ids, or a filter such as --lane: one of them")
    if not ids:
        _bury_found(tube, error, selection, dry_run, yes)
        return
    place: AbstractContextManager[Queue] = holding(uuid=session) if session else opened()
    with place as queue:
        found = queue.tube(tube)
        each(ids, lambda id: found.bury(id, error))


def _bury_found(tube: str, error: str | None, selection: Selection, dry_run: bool, yes: bool) -> None:
    if selection.state not in (None, *WAITING):
        raise UsageError(
            f"a filter of bury finds ready and delayed tasks, not {selection.state} ones; those that are taken are "
            "buried by id with --session, or released first"
        )
    with opened() as queue:
        session = queue._session
        action = Action(
            "bury", "buried", lambda id: ops.Bury(tube, ops.Lease(id), session, error_text(error)), True, WAITING
        )
        act(queue, queue.tube(tube), selection, action, dry_run=dry_run, yes=yes)


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
