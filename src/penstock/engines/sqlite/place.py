"""Where a SQLite store is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

from penstock.model.errors import UsageError


class Place(NamedTuple):
    """A file, and whether it is only to be read."""

    path: Path
    read_only: bool = False

    @classmethod
    def parse(cls, url: str) -> Place:
        """A file name, sqlite:///relative/path or sqlite:////absolute/path, with ?mode=ro to only read.

        >>> Place.parse("sqlite:///tasks.db?mode=ro").read_only
        True
        """
        read_only = False
        text = url
        if url.startswith("sqlite:"):
            if not url.startswith("sqlite:///") or len(url) == len("sqlite:///"):
                raise UsageError(f"a SQLite URL is sqlite:///path (four slashes for an absolute path), got {url!r}")
            text, _, query = url.removeprefix("sqlite:///").partition("?")
            options = parse_qs(query)
            mode = options.pop("mode", ["rw"])[-1]
            if mode not in ("ro", "rw") or options:
                raise UsageError(f"a SQLite URL knows mode=ro and mode=rw after the question mark, got {query!r}")
            text, read_only = unquote(text), mode == "ro"
        elif url.startswith((":", "file:")) or "?" in url:
            raise UsageError(f"a queue is a file name, sqlite:///path?mode=ro, postgresql://.. or memory:, not {url!r}")
        if "\0" in text:
            raise UsageError("a file name has no NUL characters")
        return cls(Path(os.path.realpath(text)), read_only)

    @property
    def name(self) -> str:
        """What tells stores apart."""
        return f"sqlite:///{self.path}" + ("?mode=ro" if self.read_only else "")

    def beside(self, suffix: str) -> Path:
        """A file that belongs to the store."""
        return self.path.with_name(self.path.name + suffix)
