"""The program: its commands, and what it says when one fails."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from penstock.cli import settings
from penstock.cli.command import Json, Url
from penstock.model.errors import PenstockError, UsageError

INTERRUPTED = 130
app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from penstock import __version__

        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def penstock(
    url: Url = None,
    as_json: Json = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Put work into tubes, take it out, look at it and move it; run workers."""
    settings.begin(url, as_json)


def _register() -> None:
    from importlib import import_module

    for name in ("worker", "top", "bench", "store"):
        try:
            module = import_module(f"penstock.cli.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"penstock.cli.{name}":
                raise
            continue
        module.register(app)


_register()


def run(arguments: list[str] | None = None) -> None:
    """Do what the command line says and exit."""
    sys.exit(status_of(arguments))


def status_of(arguments: list[str] | None = None) -> int:
    """Do what the command line says; answers the exit status."""
    try:
        answer: Any = app(arguments, prog_name="penstock", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except PenstockError as error:
        complain(str(error))
        return error.exit_status()
    except typer.Abort:
        return INTERRUPTED
    except typer.TyperException as error:
        complain(error.format_message())
        return UsageError.exit_status()


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"penstock: {text}", file=sys.stderr)
