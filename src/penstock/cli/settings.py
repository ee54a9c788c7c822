"""What holds for one run of the program: the options that every command has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from penstock.model.errors import UsageError


@dataclass(frozen=True)
class Settings:
    """`url`: where the tubes are; `json`: print JSON, one document a line."""

    url: str | None = None
    json: bool = False


_current: ContextVar[Settings] = ContextVar("settings", default=Settings())  # noqa: B039


def settings() -> Settings:
    """Those of this run."""
    return _current.get()


def begin(url: str | None, as_json: bool) -> None:
    """What was given before the command; nothing of an earlier run is left."""
    _current.set(Settings(url, as_json))


@contextmanager
def given(url: str | None, as_json: bool) -> Iterator[None]:
    """What was given after the command comes before what was given before it."""
    before = settings()
    token = _current.set(replace(before, url=url or before.url, json=as_json or before.json))
    try:
        yield
    finally:
        _current.reset(token)


def url() -> str:
    """Where the tubes are."""
    found = settings().url or os.environ.get("PENSTOCK_URL")
    if not found:
        raise UsageError(
            "which queue? Pass --url tasks.db (a file name, postgresql://user@host/database or penstock://host:3301), "
            "or set PENSTOCK_URL"
        )
    return found
