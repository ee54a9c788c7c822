"""The program `penstock` as a process: what it says as it says it, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

import pytest

from penstock.cli.app import status_of

PATIENCE = 30.0
PENSTOCK = [sys.executable, "-c", "import sys; sys.argv[0] = 'penstock'; from penstock.cli import main; main()"]


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

    def all(self) -> list[str]:
        """Every line, once there will be no more."""
        self._thread.join(PATIENCE)
        return self.lines


class Running:
    """A command that goes on until it is told to stop: `with Running(folder, "worker", ..) as process:`."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*PENSTOCK, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=settings(environment),
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.out, self.err = Stream(self.process.stdout), Stream(self.process.stderr)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Its exit status."""
        status = self.process.wait(PATIENCE)
        self.err.all()
        self.out.all()
        return status

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()


def ran(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    return subprocess.run(
        [*PENSTOCK, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=settings(environment),
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )


def refused(
    folder: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """The exit status of a command that is refused, and the line it says; in this process, which is quicker."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    status = status_of(list(arguments))
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("penstock: ") and len(told.err.splitlines()) == 1
    return status, told.err


def documents(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """What a command printed with --json."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def settings(environment: dict[str, str]) -> dict[str, str]:
    """What a command finds around it: nothing of the person's who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "FORCE_COLOR"))}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "100", **environment}
