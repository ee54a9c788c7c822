"""The program: its commands, and what it says when one fails."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from penstock.cli import output, settings
from penstock.cli.command import Json, Url, epilog, paragraphs
from penstock.cli.status import INTERRUPTED, PIPE_CLOSED
from penstock.model.errors import PenstockError, UsageError

PARTS = {
    "put": ("put",),
    "take": ("take",),
    "leases": ("ack", "release", "bury", "fail"),
    "buried": ("kick", "dig", "plow"),
    "tasks": ("tasks", "peek", "delete", "cancel"),
    "tubes": ("tubes", "create", "alter", "pause", "resume", "truncate", "drop"),
    "lanes": ("lanes",),
    "stats": ("stats",),
    "schedules": ("schedules",),
    "worker": ("worker",),
    "serve": ("serve",),
    "login": ("login",),
    "top": ("top",),
    "store": ("migrate", "doctor"),
    "pipeline": ("pipeline",),
    "bench": ("bench",),
}
"""Modules and the commands they have, in the order of the help."""


def program(only: str | None = None) -> typer.Typer:
    """All commands, or those of the module that has one: a command starts faster without the others."""
    app = typer.Typer(
        name="penstock",
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=epilog(["penstock create mail --url tasks.db"]),
    )
    app.callback(invoke_without_command=True, help=paragraphs(penstock.__doc__ or ""))(penstock)
    for module, commands in PARTS.items():
        if only is None or only in commands:
            import_module(f"penstock.cli.{module}").register(app)
    return app


def _version(asked: bool) -> None:
    if asked:
        from penstock import __version__

        output.line(f"penstock {__version__}")
        raise typer.Exit


def penstock(
    context: typer.Context,
    url: Url = None,
    as_json: Json = False,
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Put work into tubes, take it out, look at it and move it; run workers.

    Data goes to stdout, everything else to stderr. The exit status is 0 when all went well, 1 when there was
    nothing, and 64 or more, one for each kind of error, when something was refused.
    """
    settings.begin(url, as_json)
    if context.invoked_subcommand is None:
        context.get_help()


def run(arguments: list[str] | None = None) -> None:
    """Do what the command line says and exit."""
    status = status_of(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        status = PIPE_CLOSED
    if status == PIPE_CLOSED:
        # What is left in the buffer has nowhere to go; the interpreter would complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def status_of(arguments: list[str]) -> int:
    """Do what the command line says; answers the exit status."""
    first = arguments[0] if arguments else ""
    known = any(first in commands for commands in PARTS.values())
    try:
        answer: Any = program(first if known else None)(arguments, prog_name="penstock", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except PenstockError as error:
        return _refused(error, arguments)
    except typer.Abort:
        return INTERRUPTED
    except typer.TyperException as error:
        return _refused(UsageError(f"{error.format_message().rstrip('.')}; {_hint(error)}"), arguments)


def _refused(error: PenstockError, arguments: list[str]) -> int:
    """Say why; answers the exit status."""
    # What is wrong may be the options themselves, so it is not known whether --json is one of them.
    with settings.given(None, "--json" in arguments):
        output.complain(error)
    return error.exit_status()


def _hint(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"see {context.command_path if context else 'penstock'} --help"
