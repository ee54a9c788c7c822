"""How a command joins the program: it gets --url and --json, an example in its help, and errors in one line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from penstock.cli import settings

F = TypeVar("F", bound=Callable[..., Any])
COMMON = "Every command"
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        envvar="PENSTOCK_URL",
        metavar="URL",
        help="Where the tubes are: a file name, sqlite:///path, or postgresql://user@host/database.",
        rich_help_panel=COMMON,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON, one document a line, on stdout.", rich_help_panel=COMMON)
]
_SHARED = (
    inspect.Parameter("url", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Url),
    inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json),
)


def command(
    app: typer.Typer, name: str | None = None, *, panel: str, examples: list[str], **options: Any
) -> Callable[[F], F]:
    """Add a function to the program. Its docstring is its help; the examples are run by tests, in this order."""

    def register(function: F) -> F:
        own = inspect.signature(function, eval_str=True)

        @functools.wraps(function)
        def called(*, url: str | None, as_json: bool, **arguments: Any) -> Any:
            with settings.given(url, as_json):
                return function(**arguments)

        called.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[
                *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own.parameters.values()),
                *_SHARED,
            ]
        )
        app.command(
            name,
            help=inspect.getdoc(function),
            epilog=_epilog(examples),
            rich_help_panel=panel,
            **options,
        )(called)
        return function

    return register


def _epilog(examples: list[str]) -> str:
    """Empty lines between the lines keep them apart in the help."""
    heading = "Example" if len(examples) == 1 else "Examples"
    return "\n\n".join([f"[bold]{heading}[/bold]", *(f"  {_escaped(line)}" for line in examples)])


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
