"""What both ways to crawl are given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """One crawl: where its files are, and how many workers it has."""

    folder: Path
    proxy: str
    """The URL of the server that plays all sites."""
    pages: int
    """How many pages there are to find."""
    workers: int
    slots: int

    @property
    def url(self) -> str:
        """The queue."""
        return str(self.folder / "crawl.db")

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make a worker send all its requests to the server."""
        return {"http_proxy": self.proxy, "no_proxy": ""}
