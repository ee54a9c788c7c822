"""Runs of the program: as a process of its own, on a terminal, or, for finer cases, inside of this one."""

from __future__ import annotations

import errno
import fcntl
import functools
import io
import json
import os
import pty
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import typer.main

from penstock.cli import app
from penstock.cli.app import program, status_of

PROGRAM = [sys.executable, "-m", "penstock"]
PATIENCE = 200.0
"""Seconds after which a run is taken for stuck."""
_started: list[Any] = []


def started(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """A process that does not outlive its test."""
    process = subprocess.Popen(command, **options)
    end_later(process)
    return process


def end_later(process: Any) -> None:
    """The process, a Popen or like one, is to be ended with its test."""
    _started.append(process)


def end_started() -> None:
    """End what a test that failed has left running, or the warning of that fails another test."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.kill()
            process.wait(PATIENCE)


class Starter:
    """Starts the program for scripts in little time, with what it needs imported already."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "starter")
        self._words = [sys.executable, "-s", str(Path(__file__).with_name("starter.py")), self.path]
        self._process = subprocess.Popen(
            self._words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None and self._process.stdout.readline() == b"ready\n"

    @property
    def function(self) -> str:
        """The program, as a function of a shell."""
        words = [sys.executable, "-I", "-S", *self._words[2:]]
        return f'penstock() {{ {shlex.join(words)} "$@"; }}'

    def close(self) -> None:
        """End it, and runs that go on."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=PATIENCE)


class Ran(NamedTuple):
    """What a run answered."""

    status: int
    out: str
    err: str

    @property
    def documents(self) -> list[Any]:
        """The JSON documents on stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def document(self) -> Any:
        (found,) = self.documents
        return found


class Shell:
    """A place with a queue, and a folder, for runs of the program."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def environment(self, **more: str) -> dict[str, str]:
        """Nothing of the tests' own settings, and the queue's URL."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK", "COLUMNS"))}
        return {**kept, "PENSTOCK_URL": self.url, "TERM": "xterm", **more}

    def run(self, *words: str, input: str | bytes = "", **environment: str) -> Ran:
        """Run the program to its end, in a process of its own."""
        data = input.encode() if isinstance(input, str) else input
        done = subprocess.run(
            [*PROGRAM, *words],
            input=data,
            capture_output=True,
            cwd=self.folder,
            env=self.environment(**environment),
            timeout=PATIENCE,
        )
        return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start the program and come back at once."""
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return started([*PROGRAM, *words], cwd=self.folder, env=self.environment(), **{**pipes, **options})

    def inside(self, *words: str, input: bytes = b"", **environment: str) -> Ran:
        """Run the program in this process, which is faster; its commands are made once for all runs."""
        out, err = Output(), Output()
        stdin = io.TextIOWrapper(io.BytesIO(input))
        with (
            mock.patch.dict(os.environ, self.environment(**environment), clear=True),
            mock.patch.object(sys, "stdin", stdin),
            mock.patch.object(app, "program", _made),
            redirect_stdout(out),
            redirect_stderr(err),
            _inside_of(self.folder),
        ):
            try:
                status = status_of(list(words))
            except SystemExit as end:  # of a shell that completes
                status = int(end.code or 0)
        return Ran(status, out.text, err.text)

    def start_on(self, terminal: int, *words: str, **environment: str) -> Any:
        """Start the program on a terminal and come back at once."""
        files = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
        return started(
            [*PROGRAM, *words],
            **files,
            cwd=self.folder,
            env=self.environment(**environment),
            start_new_session=True,
        )

    def terminal(self, *words: str, typed: str = "", columns: int = 100) -> Ran:
        """Run the program on a terminal: what it shows is in `out`, escape sequences and all."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        process = self.start_on(theirs, *words)
        os.close(theirs)
        if typed:
            os.write(ours, typed.encode())
        shown = bytearray()
        reader = threading.Thread(target=_read_all, args=(ours, shown), daemon=True)
        reader.start()
        status = process.wait(PATIENCE)
        reader.join(PATIENCE)
        os.close(ours)
        return Ran(status, shown.decode(errors="replace"), "")


@functools.cache
def _made(only: str | None = None) -> Any:
    """What `program` makes, ready to be called: to make it takes longer than most commands."""
    return typer.main.get_command(program(only))


class Output(io.TextIOWrapper):
    """Catches what is printed, with the bytes that were written past the text."""

    def __init__(self) -> None:
        self.caught = io.BytesIO()
        super().__init__(self.caught, encoding="utf-8", errors="backslashreplace", write_through=True)

    @property
    def text(self) -> str:
        self.flush()
        return self.caught.getvalue().decode(errors="replace")


@contextmanager
def _inside_of(folder: Path) -> Any:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _read_all(terminal: int, shown: bytearray) -> None:
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError as error:
            if error.errno == errno.EIO:  # the other end is closed
                return
            raise
        if not part:
            return
        shown += part
