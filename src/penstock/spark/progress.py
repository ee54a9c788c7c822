"""What a person sees while a fleet works."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.fleets import Counts


class Follower(contextlib.AbstractContextManager["Follower"]):
    """Is told the counts now and then, and does nothing with them."""

    def look(self, counts: Counts) -> None:
        """How far it is."""

    def __exit__(self, *raised: object) -> None:
        """It is over."""


class _Teller(Follower):
    def __init__(self, tell: Callable[[Counts], None]) -> None:
        self._tell = tell

    def look(self, counts: Counts) -> None:
        """Tell the caller."""
        self._tell(counts)


class _Bar(Follower):
    """Tasks that ended, of those that are known by now."""

    def __init__(self, tube: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._progress = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))
        self._task = self._progress.add_task(tube, total=None, note="")

    def __enter__(self) -> Follower:
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()

    def look(self, counts: Counts) -> None:
        """Move the bar."""
        ended = counts.done + max(0, counts.buried)
        told: dict[str, Any] = {"failed": counts.failed, "buried": counts.buried, "late": counts.late}
        note = ", ".join(f"{number} {word}" for word, number in told.items() if number > 0)
        self._progress.update(self._task, completed=ended, total=ended + counts.left, note=note)


def follower(progress: bool | Callable[[Counts], None] | None, tube: str) -> Follower:
    """Whoever follows: a function of the caller's, a bar, or nobody."""
    if callable(progress):
        return _Teller(progress)
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return Follower()
    try:
        return _Bar(tube)
    except ImportError:  # rich is part of the extra cli
        if progress:
            raise
        return Follower()
