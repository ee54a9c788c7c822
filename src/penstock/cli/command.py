"""How a command joins the program: it gets --url and --json, an example in its help, and errors in one line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from penstock.cli import settings

F = TypeVar("F", bound=Callable[..., Any])
COMMON = "Every command"
KEYWORD = inspect.Parameter.KEYWORD_ONLY
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
    inspect.Parameter("url", KEYWORD, default=None, annotation=Url),
    inspect.Parameter("as_json", KEYWORD, default=False, annotation=Json),
)


def command(
    app: typer.Typer, name: str | None = None, *, panel: str, examples: list[str], **options: Any
) -> Callable[[F], F]:
    """Add a function to the program. Its docstring is its help; the examples are run by tests, in this order.

    A parameter that is a dataclass stands for a group of options: its fields.
    """

    def register(function: F) -> F:
        own = inspect.signature(function, eval_str=True).parameters
        groups: dict[str, Any] = {name: it.annotation for name, it in own.items() if is_dataclass(it.annotation)}

        @functools.wraps(function)
        def called(*, url: str | None, as_json: bool, **arguments: Any) -> Any:
            for name, group in groups.items():
                arguments[name] = group(**{field.name: arguments.pop(field.name) for field in fields(group)})
            with settings.given(url, as_json):
                return function(**arguments)

        parameters = list[inspect.Parameter]()
        for parameter in own.values():
            group = groups.get(parameter.name)
            parameters += [parameter.replace(kind=KEYWORD)] if group is None else _options(group)
        called.__signature__ = inspect.Signature([*parameters, *_SHARED])  # type: ignore[attr-defined]
        help = inspect.getdoc(function)
        app.command(name, help=help, epilog=_epilog(examples), rich_help_panel=panel, **options)(called)
        return function

    return register


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(field.name, KEYWORD, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]


def _epilog(examples: list[str]) -> str:
    """Empty lines between the lines keep them apart in the help."""
    heading = "Example" if len(examples) == 1 else "Examples"
    return "\n\n".join([f"[bold]{heading}[/bold]", *(f"  {_escaped(line)}" for line in examples)])


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
