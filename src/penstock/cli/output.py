"""What commands print: data on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock.cli.settings import settings


def as_json() -> bool:
    """Whether --json was given."""
    return settings().json


def json_line(document: Any) -> None:
    """Print one JSON document on a line of its own; dates are ISO 8601 text."""
    print(msgspec.json.encode(document).decode(), flush=True)


def line(text: str = "") -> None:
    """Print a line of data."""
    print(text)


def message(text: str) -> None:
    """Tell the person something; no data."""
    print(text, file=sys.stderr)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Iterable[str] = ()) -> None:
    """Print rows: a table on a terminal, else aligned text in full. `right` names the columns of numbers."""
    raise NotImplementedError


def fields(pairs: Mapping[str, Any]) -> None:
    """Print names and values, one a line."""
    raise NotImplementedError


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while something long goes on, on a terminal only; the function gets the number done so far."""
    yield lambda done: None
