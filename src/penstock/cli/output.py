"""What commands print: data on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec

from penstock.cli.advice import advised
from penstock.cli.settings import settings
from penstock.model.errors import PenstockError

NOTHING = "-"
"""What stands where there is no value, so that columns can be counted."""
LEAST = 12
"""How narrow a column that may be shortened can become."""
STYLES = {"ready": "green", "taken": "cyan", "delayed": "yellow", "buried": "red", "done": "dim"}


def as_json() -> bool:
    """Whether --json was given."""
    return settings().json


def json_line(document: Any, flush: bool = True) -> None:
    """Print one JSON document on a line of its own; dates are ISO 8601 text, bytes base64."""
    print(msgspec.json.encode(document).decode(), flush=flush)


def line(text: str = "") -> None:
    """Print a line of data."""
    print(text, flush=True)


def number(name: str, count: int, **more: Any) -> None:
    """Print how many: the number alone, or a JSON document that has it under its name, with what else there is."""
    if as_json():
        json_line({name: count, **more})
    else:
        line(str(count))


def message(text: str) -> None:
    """Tell the person something that is no data."""
    print(text, file=sys.stderr, flush=True)


def tasks(number: int) -> str:
    """How many tasks, in words.

    >>> tasks(1), tasks(25_000)
    ('1 task', '25,000 tasks')
    """
    return "1 task" if number == 1 else f"{number:,} tasks"


def complain(error: PenstockError, text: str | None = None, **more: Any) -> None:
    """Say what went wrong, in one line; with --json it is a document, with what more is known."""
    told = " ".join((advised(error) if text is None else text).split())
    if as_json():
        document = {"error": error.code, "message": told, "exit": error.exit_status(), **more}
        message(msgspec.json.encode(document).decode())
    else:
        message(f"penstock: {told}")


def shown(value: Any) -> str:
    """A value as a cell of a table has it: one line, nothing in it that moves a cursor.

    >>> shown({"n": 1}), shown(None), shown(1.0)
    ('{"n":1}', '-', '1')
    """
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    right: Iterable[str] = (),
    cut: Iterable[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print rows: a table on a terminal, else aligned text in full.

    right: the columns of numbers
    cut: columns that a terminal may shorten to fit
    spare: columns that a terminal may leave out, the first one first, if that is not enough
    """
    cells = [[shown(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        Plain(columns, right).print(cells)
        return
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    kept = _that_fit(columns, cells, set(cut), spare, console.width)
    names = [columns[index] for index in kept]
    parts = [[row[index] for index in kept] for row in cells]
    if _width(names, parts, set(cut)) > console.width:
        # Lines that the terminal breaks are better than ids that are cut.
        Plain(names, right).print(parts)
    else:
        console.print(_rich_table(names, parts, set(right), set(cut)))


def _that_fit(
    columns: Sequence[str], rows: list[list[str]], cut: set[str], spare: Sequence[str], width: int
) -> list[int]:
    kept = list(range(len(columns)))
    for name in spare:
        if _width([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], cut) <= width:
            break
        kept = [index for index in kept if columns[index] != name]
    return kept


def _width(columns: Sequence[str], rows: list[list[str]], cut: set[str]) -> int:
    """How wide a table is at least."""
    from rich.cells import cell_len

    widths = [
        LEAST if name in cut else max(cell_len(text) for text in (name, *(row[index] for row in rows)))
        for index, name in enumerate(columns)
    ]
    return sum(widths) + len("   ") * (len(widths) - 1)


class Plain:
    """Rows as aligned text, a page at a time; nothing is cut. Columns grow when a later page needs it."""

    def __init__(self, columns: Sequence[str], right: Iterable[str] = ()) -> None:
        self._head: list[str] | None = [name.upper() for name in columns]
        self._right = {index for index, name in enumerate(columns) if name in set(right)}
        self._widths = [len(name) for name in columns]

    def print(self, rows: Sequence[Sequence[str]]) -> None:
        from rich.cells import cell_len

        for row in rows:
            self._widths = [max(width, cell_len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        for row in [self._head, *rows] if self._head else rows:
            padded = []
            for index, (cell, width) in enumerate(zip(row, self._widths, strict=True)):
                gap = " " * (width - cell_len(cell))
                padded.append(gap + cell if index in self._right else cell + gap)
            print("  ".join(padded).rstrip())
        self._head = None
        sys.stdout.flush()


def _rich_table(columns: Sequence[str], rows: list[list[str]], right: set[str], cut: set[str]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=bool(cut & set(columns)), show_edge=False)
    for name in columns:
        made.add_column(
            Text(name),
            justify="right" if name in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if name in cut else None,
            min_width=LEAST if name in cut else None,
        )
    for row in rows:
        made.add_row(*(Text(cell, style=STYLES.get(cell, "dim" if cell == NOTHING else "")) for cell in row))
    return made


def fields(pairs: Mapping[str, Any]) -> None:
    """Print names and values, one a line, in full."""
    width = max(map(len, pairs), default=0)
    if not sys.stdout.isatty():
        for name, value in pairs.items():
            print(f"{name.ljust(width)}  {shown(value)}")
        sys.stdout.flush()
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for name, value in pairs.items():
        text = shown(value)
        console.print(Text.assemble((f"{name.ljust(width)}  ", "bold"), (text, STYLES.get(text, ""))))


@contextmanager
def progress(what: str, total: int | None = None, unit: str = "") -> Iterator[Callable[[int], None]]:
    """A bar on stderr while something long goes on, on a terminal only; the function gets the number done so far.

    Without a total it turns. `unit` "bytes" shows sizes.
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich import progress as bars
    from rich.console import Console

    count = bars.DownloadColumn() if unit == "bytes" else bars.MofNCompleteColumn()
    columns = [bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.BarColumn(), count]
    with bars.Progress(*columns, bars.TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
