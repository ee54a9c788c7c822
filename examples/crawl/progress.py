"""What the program prints while it works: a bar per phase on a terminal, else a line per phase."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn


class Screen:
    """The phases of a program on a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def print(self, text: str = "") -> None:
        """Print a line of plain text, however long it is."""
        print(text, file=self.console.file, flush=True)

    def phase(self, text: str, total: int | None = None) -> AbstractContextManager[Callable[[int], None]]:
        """Show a phase for as long as the block lasts. The block calls the function with how much is done.

        total: how much there is to do; without one the bar pulses
        """
        return Bar(self, text, total) if self.console.is_interactive else Line(self, text, total)


class Bar:
    """A bar that stays on the screen when its phase is over."""

    def __init__(self, screen: Screen, text: str, total: int | None) -> None:
        columns = ("{task.description:<18}", BarColumn(36), "{task.fields[count]:>9}", TimeElapsedColumn())
        self._progress = Progress(*columns, console=screen.console)
        self._total = total
        self._task = self._progress.add_task(text, total=total, count="")

    def __enter__(self) -> Callable[[int], None]:
        self._progress.start()
        return self.advance

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None and self._total is None:
            self._progress.update(self._task, total=1, completed=1)
        self._progress.stop()

    def advance(self, done: int) -> None:
        """Show how much is done."""
        self._progress.update(self._task, completed=done, count=f"{done}/{self._total}")


class Line:
    """A line that is printed when its phase is over."""

    def __init__(self, screen: Screen, text: str, total: int | None) -> None:
        self._screen = screen
        self._text = text
        self._total = total
        self._done = 0
        self._began = time.monotonic()

    def __enter__(self) -> Callable[[int], None]:
        return self.advance

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            count = "" if self._total is None else f"{self._done} of {self._total}, "
            self._screen.print(f"{self._text}: {count}{time.monotonic() - self._began:.1f} s")

    def advance(self, done: int) -> None:
        """Remember how much is done."""
        self._done = done
