"""`penstock top`: tubes, lanes and workers, as they are now and again and again."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from penstock.cli import completion, output
from penstock.cli.command import command
from penstock.cli.frame import Frame, Sampler, watching
from penstock.cli.place import opened
from penstock.cli.screen import WIDE, render
from penstock.cli.signals import in_order
from penstock.cli.status import Terminated
from penstock.model.errors import EngineUnavailable, PenstockError, UsageError

SHORTEST = 0.1
UP, DOWN = (b"\x1b[A", b"\x1bOA", b"k"), (b"\x1b[B", b"\x1bOB", b"j")


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "top", panel="Look", examples=["penstock top --once", "penstock top --once --json"])(top)


def top(
    interval: Annotated[float, typer.Option("--interval", "-n", help="Seconds from one look to the next.")] = 1.0,
    tube: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.tubes,
            help="Show the lanes of this tube; the busiest that has lanes if left out.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Look twice, an interval apart, print what was seen, and end.")
    ] = False,
) -> int:
    """Watch tubes, rates, lanes and workers. q or Ctrl-C ends it; the arrows choose the tube whose lanes are shown.

    Looking costs the same whatever the backlog: ready tasks of a lane are counted up to 1000.
    Workers are the processes that hold tasks.
    """
    if not interval >= SHORTEST:
        raise UsageError(f"--interval must be {SHORTEST} seconds or more, got {interval:g}")
    with opened() as queue, watching(queue) as lookout:
        if tube is not None and not queue.tube(tube)._config.features.lanes:
            raise UsageError(f"tube {tube!r} has no lanes: tubes of the kinds utube, utubettl and standard do")
        sampler = Sampler(queue, lookout, tube)
        console = _console()
        try:
            if output.as_json():
                _stream(sampler, interval, once)
            elif once or not console.is_terminal or console.is_dumb_terminal:
                console.print(render(_second(sampler, interval), console.width))
            else:
                _watch(sampler, interval, console)
        except Terminated:
            raise
        except KeyboardInterrupt:
            pass  # this is how one leaves
    return 0


def _console() -> Console:
    """A file has room for wide lines."""
    console = Console(highlight=False)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=WIDE)


def _second(sampler: Sampler, interval: float) -> Frame:
    """A frame that knows rates."""
    sampler.look()
    threading.Event().wait(interval)
    return sampler.look()


def _stream(sampler: Sampler, interval: float, once: bool) -> None:
    output.json_line(_second(sampler, interval).to_data())
    while not once:
        threading.Event().wait(interval)
        output.json_line(sampler.look().to_data())


def _watch(sampler: Sampler, interval: float, console: Console) -> None:
    frame, trouble = sampler.look(), ""
    with in_order(), Live(console=console, screen=True, auto_refresh=False) as live, keyboard() as keys:
        while True:
            shown = render(frame, console.width, console.height, trouble, keys.heard)
            live.update(shown, refresh=True)
            key = keys.wait(interval)
            if key in (b"q", b"Q", b"\x03", b"\x04"):
                return
            try:
                if key:
                    sampler.wanted = _next_tube(frame, key)
                    frame = sampler.chosen(frame)
                else:
                    frame, trouble = sampler.look(), ""
            except EngineUnavailable as error:
                trouble = str(error)
            except PenstockError as error:  # a tube was dropped between two looks
                trouble, sampler.wanted = str(error), None


def _next_tube(frame: Frame, key: bytes) -> str | None:
    """The tube above or below the one whose lanes are shown."""
    names = [tube.name for tube in frame.tubes if tube.config.features.lanes]
    step = -1 if key in UP else 1 if key in DOWN else 0
    if not names or frame.chosen not in names:
        return None
    return names[(names.index(frame.chosen) + step) % len(names)]


# -- the terminal ------------------------------------------------------------------------------------


class Keyboard:
    """Waits, for a key if there is a terminal to hear one from."""

    def __init__(self, file: int | None) -> None:
        self._file = file

    @property
    def heard(self) -> bool:
        return self._file is not None

    def wait(self, seconds: float) -> bytes:
        """The key that was hit within the time; nothing if none was."""
        if self._file is None:
            threading.Event().wait(seconds)
            return b""
        ready, _, _ = select.select([self._file], [], [], seconds)
        return os.read(self._file, 16) if ready else b""


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Keys one by one instead of lines, until the end."""
    if not sys.stdin.isatty():
        yield Keyboard(None)
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    tty.setcbreak(file)
    try:
        yield Keyboard(file)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
