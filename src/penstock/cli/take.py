"""`penstock take`: tasks out of a tube, for a script, a pipe or a command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Annotated, Any, NoReturn

import typer

from penstock.blocking import Queue, Task
from penstock.cli import documents, output, values
from penstock.cli.advice import advised
from penstock.cli.command import command
from penstock.cli.interruption import Signals
from penstock.cli.options import SessionUuid, TubeName
from penstock.cli.place import holding, opened
from penstock.cli.shell import Shell
from penstock.cli.status import NOTHING_THERE
from penstock.model.errors import LeaseLost, TaskFailed, UsageError


def register(app: typer.Typer) -> None:
    command(
        app,
        panel="Tasks",
        examples=[
            "penstock take mail --hold 5m",
            "penstock take mail -n 2 --timeout 1s --ack --json",
            "penstock take mail -n 100 --exec 'grep -q example.org'",
        ],
    )(take)


def take(
    tube: TubeName,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many at most.")] = 1,
    timeout: Annotated[
        Any, typer.Option(parser=values.seconds, metavar="TIME", help="How long to wait for the first one.")
    ] = "0",
    lane: Annotated[str | None, typer.Option(help="Only of this lane.")] = None,
    hold: Annotated[
        Any,
        typer.Option(parser=values.seconds, metavar="TIME", help="How long the lease lasts after this command."),
    ] = "60",
    ack: Annotated[bool, typer.Option("--ack", help="Print the data and ack the tasks: nothing stays taken.")] = False,
    run: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="COMMAND",
            help="Run a shell command for each task, the data on stdin: 0 acks it, anything else fails it.",
        ),
    ] = None,
    session: SessionUuid = None,
) -> None:
    """Take tasks, for a script, a pipe or a command.

    The lease stays when this command has ended: ack, release, bury or fail the tasks with its session. What is not
    finished within --hold goes back to the tube. With --exec a command runs for each task, one after another; its
    environment has PENSTOCK_TASK_ID, PENSTOCK_TUBE, PENSTOCK_ATTEMPT, PENSTOCK_LAST_ATTEMPT, PENSTOCK_LANE and
    PENSTOCK_KEY, and the end of what it says on stderr is the error of a task that fails.

    The exit status is 1 if there is no task, and 80 if a command failed.
    """
    if ack and run is not None:
        raise UsageError("--ack or --exec, one of them: with --exec a command that ends with 0 acks the task")
    if run is not None:
        _run_each(tube, number, timeout, lane, run)
    elif ack:
        _ack_each(tube, number, timeout, lane)
    else:
        _hold(tube, number, timeout, lane, hold, session)


def _hold(tube: str, number: int, timeout: float, lane: str | None, hold: float, session: str | None) -> None:
    with holding(hold, session) as queue:
        found = queue.tube(tube)
        # The lease ends by itself too: a session on a file that nobody has open is not watched by anybody.
        ttr = hold if found._config.features.ttr else None
        tasks = found.take_many(number, timeout, lane=lane, ttr=ttr)
        if not tasks:
            _nothing(tube)
        uuid = queue.identify()
        _show(tasks, number, uuid)
    id = shlex.quote(values.shown_id(tasks[0].id)) if len(tasks) == 1 else "ID"
    output.message(f"held for {output.shown(hold)} seconds; to finish: penstock ack {tube} {id} --session {uuid}")


def _nothing(tube: str) -> NoReturn:
    output.message(f"no task of tube {tube!r} can be taken now")
    raise typer.Exit(NOTHING_THERE)


def _show(tasks: list[Task], number: int, session: str) -> None:
    if number == 1 or output.as_json():
        for task in tasks:
            documents.show(task, session=session)
        return
    rows = [(values.shown_id(task.id), task.attempt, session, documents.cell(task, "data")) for task in tasks]
    output.table(("id", "attempt", "session", "data"), rows, right=["attempt"], cut=["data"])


def _ack_each(tube: str, number: int, timeout: float, lane: str | None) -> None:
    with opened() as queue:
        tasks = queue.tube(tube).take_many(number, timeout, lane=lane)
        for task in tasks:
            _print_data(task)
        # Acked once they are printed: when nobody reads on, they go back.
        queue.tube(tube).ack_many(tasks)
    if not tasks:
        _nothing(tube)


def _print_data(task: Task) -> None:
    if output.as_json():
        output.json_line(documents.task(task))
    elif isinstance(task.data, bytes):
        sys.stdout.flush()
        sys.stdout.buffer.write(task.data)
        sys.stdout.buffer.flush()
    else:
        output.line(documents.data_text(task.data))


def _run_each(tube: str, number: int, timeout: float, lane: str | None, run: str) -> None:
    failed = done = 0
    with opened() as queue, Signals() as signals:
        shell = Shell(run, signals)
        for task in _one_by_one(queue, tube, number, timeout, lane):
            done += 1
            error = shell.run(task)
            try:
                ended = task.ack() if error is None else task.fail(error)
            except LeaseLost as lost:
                output.complain(lost, f"task {values.shown_id(task.id)} took too long: {advised(lost)}")
                failed += 1
                continue
            failed += error is not None
            if output.as_json():
                output.json_line(documents.task(ended))
    if failed:
        raise TaskFailed(
            f"the command failed for {failed} of {output.tasks(done)}; `penstock tasks {tube}` shows their errors"
        )
    if not done:
        _nothing(tube)


def _one_by_one(queue: Queue, tube: str, number: int, timeout: float, lane: str | None) -> Iterator[Task]:
    found = queue.tube(tube)
    for _ in range(number):
        task = found.take(timeout, lane=lane)
        if task is None:
            return
        yield task
