"""Runs of the program that begin with its modules loaded: processes of their own that cost less to start.

What a run needs from its environment before its modules are loaded, as PYTHONPATH, it does not get: such a test starts
the program itself.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, TextIO

from tests.cli import starter
from tests.cli.shell import PATIENCE, Ran, Shell, Starter, end_later


@functools.cache
def shared_starter() -> Starter:
    """The one that all runs of this process are forks of."""
    folder = tempfile.mkdtemp(prefix="penstock")
    made = Starter(Path(folder))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(made.close)
    return made


class Fork:
    """A run, with what tests use of a Popen. It does not outlive its test."""

    def __init__(self, words: list[str], folder: Path, environment: dict[str, str]) -> None:
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(shared_starter().path)
        starter.send(self._line, words, environment, os.fspath(folder), [nothing, its_out, its_err])
        for file in (nothing, its_out, its_err):
            os.close(file)
        self.stdout: TextIO = os.fdopen(out, encoding="utf-8")
        self.stderr: TextIO = os.fdopen(err, encoding="utf-8")
        self.pid = int.from_bytes(self._line.recv(starter.SIZE, socket.MSG_WAITALL), "big")
        self.returncode: int | None = None
        self._reading = threading.Lock()
        end_later(self)

    def wait(self, timeout: float) -> int:
        """Its exit status, when it has ended."""
        with self._reading:
            if self.returncode is None:
                self._line.settimeout(timeout)
                try:
                    self.returncode = int(self._line.recv(starter.SIZE))
                except (TimeoutError, BlockingIOError):
                    raise subprocess.TimeoutExpired("penstock", timeout) from None
                self._line.close()
            return self.returncode

    def poll(self) -> int | None:
        """The same, or None if it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedShell(Shell):
    """A shell whose runs are forks."""

    def run(self, *words: str, **environment: Any) -> Ran:
        """Run the program to its end, with nothing on its stdin."""
        process = Fork(list(words), self.folder, self.environment(**environment))
        read = list[str]()
        with process.stdout, process.stderr:
            reader = threading.Thread(target=lambda: read.append(process.stderr.read()), daemon=True)
            reader.start()
            out = process.stdout.read()
            reader.join(PATIENCE)
        return Ran(process.wait(PATIENCE), out, read[0])
