"""Who holds tasks, and how full lanes are: what a person watches.

Looking costs what is taken and how many lanes are asked for; it does not grow with what waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.errors import UsageError
from penstock.model.lane import LaneInfo

if TYPE_CHECKING:
    from penstock.engines.store import Store

COUNTED = 1000
"""Ready tasks of a lane are counted up to this many."""


class Holding(NamedTuple):
    """Tasks of one tube and lane that one session holds."""

    tube: str
    lane: str | None
    worker: str
    """The session's public name: host and process."""
    taken: int
    age: float
    """Seconds since the first of them was taken."""


class Lookout(ABC):
    """Looks at a store that is open, without changing it."""

    @abstractmethod
    def sessions(self) -> int:
        """How many sessions there are, holders or not."""

    @abstractmethod
    def holdings(self) -> list[Holding]:
        """Everything that is taken, by whom."""

    @abstractmethod
    def lanes(self, tube: str, first: Sequence[str], limit: int) -> list[LaneInfo]:
        """Lanes of a tube: those named, then others by name. `ready` is COUNTED where it is that or more."""

    def close(self) -> None:
        """Let go of what was opened to look."""


def lookout_of(store: Store) -> Lookout:
    """What looks at a store; a part of its engine, loaded when it is needed."""
    if not store.holdings:
        raise UsageError(f"{store.name} cannot be watched from here")
    lookout: Lookout = import_module(store.holdings).lookout(store)
    return lookout
