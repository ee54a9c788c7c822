"""How a command joins the program: it gets --url and --json, an example in its help, and errors in one line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from penstock.cli import settings
from penstock.cli.status import PIPE_CLOSED, TERMINATED, Terminated

F = TypeVar("F", bound=Callable[..., Any])
COMMON = "Every command"
VALUES = {bool: "", str: "TEXT", int: "N", float: "N"}
TIMES = "\n\nTIME is a number of seconds, or one with a unit: 500ms, 30s, 10m, 2h, 1d, 1w; or forever."
KEYWORD = inspect.Parameter.KEYWORD_ONLY
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        "-u",
        metavar="URL",
        help="Where the tubes are: a file name, sqlite:///path, postgresql://user@host/database, "
        "or a server: penstock://host:3301, grpc://host:3302. "
        "If left out, PENSTOCK_URL says.",
        rich_help_panel=COMMON,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", metavar="", help="Print JSON, one document a line.", rich_help_panel=COMMON)
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
            try:
                with settings.given(url, as_json):
                    return function(**arguments)
            except Terminated:
                raise typer.Exit(TERMINATED) from None
            except BrokenPipeError:
                raise typer.Exit(PIPE_CLOSED) from None

        parameters = list[inspect.Parameter]()
        for parameter in own.values():
            group = groups.get(parameter.name)
            parameters += [parameter.replace(kind=KEYWORD)] if group is None else _options(group)
        for parameter in parameters:
            _name_value(parameter.annotation)
        called.__signature__ = inspect.Signature([*parameters, *_SHARED])  # type: ignore[attr-defined]
        help = paragraphs(inspect.getdoc(function) or "") + (TIMES if _has_times(parameters) else "")
        app.command(name, help=help, epilog=epilog(examples), rich_help_panel=panel, **options)(called)
        return function

    return register


def _options(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(field.name, KEYWORD, default=field.default, annotation=hints[field.name])
        for field in fields(group)
    ]


def _name_value(annotation: Any) -> None:
    """What the help calls the value of an option; a flag has none."""
    kind, *infos = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    kinds = get_args(kind) or (kind,)
    for info in infos:
        if isinstance(info, OptionInfo) and info.metavar is None:
            info.metavar = next((name for known, name in VALUES.items() if known in kinds), None)


def _has_times(parameters: list[inspect.Parameter]) -> bool:
    infos = [info for parameter in parameters for info in get_args(parameter.annotation)[1:]]
    return any("TIME" in (info.metavar or "") for info in infos if isinstance(info, OptionInfo))


def paragraphs(text: str) -> str:
    """A docstring without the line breaks inside of its paragraphs."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def epilog(examples: list[str]) -> str:
    """The end of a help: examples, a line each."""
    heading = "Example" if len(examples) == 1 else "Examples"
    return "\n".join([f"[bold]{heading}[/bold]", *(_escaped(line) for line in examples)])


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
