"""Options of the format, read and checked. Spark hands them over as texts with names in small letters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from penstock.engines import engine_name
from penstock.model import duration
from penstock.model.errors import UsageError
from penstock.model.tube import check_text

FEEDS = ("tasks", "events", "results")


class Options:
    """What `.option(name, value)` said.

    >>> Options({"url": "tasks.db", "tube": "jobs", "numpartitions": "4"}).number("numPartitions", 1)
    4
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in dict(given).items()}
        self.feed = self.choice("feed", FEEDS, "tasks")

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._given.get(name.lower(), default)

    def name(self, name: str) -> str | None:
        """A name that somebody gives, which becomes part of one in the store."""
        return check_text(self.text(name), f"option {name}")

    def needed(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise UsageError(f'format("penstock") needs .option("{name}", ..)')
        return value

    def choice(self, name: str, known: tuple[str, ...], default: str) -> str:
        value = self.text(name) or default
        if value not in known:
            raise UsageError(f"option {name} must be one of {', '.join(known)}, got {value!r}")
        return value

    def number(self, name: str, default: int, least: int = 1) -> int:
        value = self.text(name)
        if value is None:
            return default
        if not value.strip().isdecimal() or int(value) < least:
            raise UsageError(f"option {name} must be a whole number of at least {least}, got {value!r}")
        return int(value)

    def seconds(self, name: str, default: float) -> float:
        value = self.text(name)
        try:
            found = default if value is None else float(value)
        except ValueError:
            found = -1.0
        if not 0 <= found < float("inf"):
            raise UsageError(f"option {name} must be a number of seconds, got {value!r}")
        return found

    def listed(self, name: str) -> tuple[str, ...] | None:
        """Names parted by commas."""
        value = self.text(name)
        return None if value is None else tuple(part.strip() for part in value.split(",") if part.strip())

    def moment(self, name: str) -> int | None:
        """A date, in UTC unless it says otherwise, as microseconds since 1970."""
        value = self.text(name)
        if value is None:
            return None
        try:
            date = datetime.fromisoformat(value.strip())
        except ValueError:
            raise UsageError(
                f"option {name} must be a date such as 2026-01-31 or 2026-01-31T12:00:00+01:00, got {value!r}"
            ) from None
        return duration.moment(date if date.tzinfo else date.replace(tzinfo=UTC), name)

    def check_known(self, *names: str) -> None:
        """Refuse options that would have no effect."""
        known = {name.lower() for name in names}
        for name in self._given:
            if name not in known:
                raise UsageError(f"there is no option {name!r} here; there are {', '.join(names)}")

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.listed("columns")

    @property
    def tube(self) -> str:
        return self.needed("tube")

    @property
    def url(self) -> str:
        """Where the queue is. Spark shows options in plans and logs, so a password may not be among them.

        `env:NAME` is read from the environment and `file:PATH` from a file, where the work is done.
        """
        return resolved(self.needed("url"))


def resolved(url: str) -> str:
    """The URL that an option stands for."""
    kind, _, rest = url.partition(":")
    if kind == "env":
        if not os.environ.get(rest):
            raise UsageError(f"option url is {url!r}, but {rest} is not set here; executors need it as well")
        return os.environ[rest]
    if kind == "file" and not rest.startswith("//"):
        try:
            return Path(rest).read_text().strip()
        except OSError as error:
            raise UsageError(f"option url is {url!r}, which cannot be read here: {error.strerror}") from None
    if _has_password(url):
        raise UsageError(
            "option url holds a password, and Spark shows options in plans and logs; "
            "give env:NAME, file:PATH, a service name (?service=) or a password file instead, "
            "and to a server penstock://LOGIN:env:NAME@host"
        )
    return url


def _has_password(url: str) -> bool:
    engine = engine_name(url)
    if engine == "remote":
        from penstock.engines.remote.place import Place

        secret = Place.parse(url).secret
        return secret is not None and not secret.startswith(("env:", "file:"))
    if engine != "postgresql":
        return False
    parts = urlsplit(url)
    return parts.password is not None or "password" in parse_qs(parts.query)
