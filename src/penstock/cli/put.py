"""`penstock put`: one task from the command line, or very many from a file."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from penstock.blocking import Tube
from penstock.cli import documents, output, values
from penstock.cli.bulk import Bulk
from penstock.cli.command import command
from penstock.cli.options import PutOptions, TubeName
from penstock.cli.place import opened
from penstock.model.errors import UsageError


def register(app: typer.Typer) -> None:
    command(
        app,
        panel="Tasks",
        examples=[
            'penstock put mail \'{"to": "ann@example.org"}\' --delay 10m',
            "penstock put mail 'plain words' --text --pri -5",
            "penstock put crawl --file urls.csv --lane-field site --key-field url",
        ],
    )(put)


def put(
    tube: TubeName,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="JSON; - reads it from stdin.")] = None,
    *,
    text: Annotated[bool, typer.Option("--text", help="DATA is text as it is, no JSON.")] = False,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="Put each record of this file as a task; - is stdin.")
    ] = None,
    options: PutOptions,
    timeout: Annotated[
        Any, typer.Option(parser=values.seconds, metavar="TIME", help="How long to wait for room in a full tube.")
    ] = "0",
    bulk: Bulk,
) -> None:
    """Store a task, or each record of a file as one.

    Prints the id, or how many are stored. A file is read as it goes, and stored in parts. A record that is refused
    is named with its line and does not hold up the others; the exit status is then 83.
    """
    if (data is None) == (file is None):
        raise UsageError("put what? Pass DATA (JSON, or text with --text), or --file with one record a line")
    with opened() as queue:
        if file is not None:
            bulk.put(queue.tube(tube), file, options.given(), timeout)
        else:
            assert data is not None
            _put(queue.tube(tube), data, text, options.given(), timeout)


def _put(tube: Tube, data: str, text: bool, options: dict[str, Any], timeout: float) -> None:
    task = tube.put(read(tube, data, text), timeout=timeout, **options)
    if output.as_json():
        output.json_line(documents.task(task, outcome=task.outcome))
        return
    output.line(values.shown_id(task.id))
    if task.outcome != "new":
        output.message(f"a live task of tube {tube.name!r} has this key: it is {task.outcome}")


def read(tube: Tube, data: str, text: bool) -> Any:
    """What DATA means for this tube."""
    as_bytes = tube.options["payload"] == "bytes"
    raw = sys.stdin.buffer.read() if data == "-" else data.encode(errors="surrogateescape")
    if as_bytes:
        return raw
    try:
        words = raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the data is no UTF-8: {error}; a tube with payload bytes takes any bytes") from None
    return words if text else values.data(words)
