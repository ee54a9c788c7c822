"""What a migration has done."""

from __future__ import annotations

from typing import NamedTuple


class Migrated(NamedTuple):
    """A store that was made or brought up to date.

    >>> str(Migrated("tasks.db", 2, 0))
    'tasks.db has version 2; it is new'
    """

    place: str
    version: int
    before: int
    """The version it had; 0 if it was not there."""

    def __str__(self) -> str:
        return f"{self.place} has version {self.version}; {f'it had {self.before}' if self.before else 'it is new'}"
