"""A command that goes on until it is told to stop: what it says as it says it, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import threading
from typing import Any, TextIO

from tests.cli.shell import Shell

PATIENCE = 90.0


class Stream:
    """Lines of a process, read as they come."""

    def __init__(self, file: TextIO) -> None:
        self.lines: list[str] = []
        self._file = file
        self._more = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._file:
            for line in self._file:
                with self._more:
                    self.lines.append(line.rstrip("\n"))
                    self._more.notify_all()
        with self._more:
            self._over = True
            self._more.notify_all()

    def said(self, text: str, after: int = 0) -> str:
        """Wait for a line with the text; `after` so many lines."""

        def found() -> str | None:
            return next((line for line in self.lines[after:] if text in line), None)

        with self._more:
            self._more.wait_for(lambda: found() or self._over, PATIENCE)
            line = found()
            assert line is not None, f"{text!r} was not said: {self.lines}"
            return line

    def end(self) -> None:
        """Wait until there will be no more."""
        self._thread.join(PATIENCE)


class Running:
    """`with Running(shell, "worker", ..) as process:`; leaving ends it."""

    def __init__(self, shell: Shell, *words: str) -> None:
        self.process: subprocess.Popen[Any] = shell.start(*words, stdin=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None and self.process.stderr is not None
        self.out, self.err = Stream(self.process.stdout), Stream(self.process.stderr)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Its exit status."""
        status = self.process.wait(PATIENCE)
        self.err.end()
        self.out.end()
        return status

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
