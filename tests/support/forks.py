"""Runs of the program that begin with its modules loaded: processes of their own that cost less to start.

What a run needs from its environment before its modules are loaded, as PYTHONPATH, it does not get: such a test starts
the program itself.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

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
    """A run, with what tests use of a Popen. It does not outlive its test.

    Its files are as those of a Popen: PIPE, DEVNULL or the number of a file that is open.
    """

    def __init__(
        self,
        words: list[str],
        folder: Path,
        environment: dict[str, str],
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        text: bool = True,
    ) -> None:
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(shared_starter().path)
        with contextlib.ExitStack() as theirs:
            read, our_in = _ends(stdin, True, theirs)
            (out, our_out), (err, our_err) = _ends(stdout, False, theirs), _ends(stderr, False, theirs)
            starter.send(self._line, words, environment, os.fspath(folder), [read, out, err])
        self.stdin: Any = _opened(our_in, "w", text)
        self.stdout: Any = _opened(our_out, "r", text)
        self.stderr: Any = _opened(our_err, "r", text)
        self.pid = int.from_bytes(self._line.recv(starter.SIZE, socket.MSG_WAITALL), "big")
        self.returncode: int | None = None
        self._reading = threading.Lock()
        end_later(self)

    def communicate(self, input: Any = None, timeout: float = PATIENCE) -> tuple[Any, Any]:
        """Write the input, read all that it says, and wait for its end."""
        said = dict.fromkeys(("stdout", "stderr"))

        def read(name: str) -> None:
            with getattr(self, name) as file:
                said[name] = file.read()

        readers = [threading.Thread(target=read, args=(name,), daemon=True) for name in said if getattr(self, name)]
        for reader in readers:
            reader.start()
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self.stdin:
                if input:
                    self.stdin.write(input)
        for reader in readers:
            reader.join(timeout)
        self.wait(timeout)
        return said["stdout"], said["stderr"]

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


def _ends(file: int, reads: bool, theirs: contextlib.ExitStack) -> tuple[int, int | None]:
    """The end of a file that is the run's, and ours if there is one."""
    if file == subprocess.PIPE:
        read, write = os.pipe()
        its, ours = (read, write) if reads else (write, read)
        theirs.callback(os.close, its)
        return its, ours
    if file == subprocess.DEVNULL:
        file = os.open(os.devnull, os.O_RDWR)
        theirs.callback(os.close, file)
    return file, None


def _opened(file: int | None, mode: str, text: bool) -> Any:
    if file is None:
        return None
    return os.fdopen(file, mode, encoding="utf-8") if text else os.fdopen(file, f"{mode}b")


class ForkedShell(Shell):
    """A shell whose runs are forks."""

    def run(self, *words: str, input: str | bytes = "", **environment: Any) -> Ran:
        """Run the program to its end."""
        data = input.encode() if isinstance(input, str) else input
        stdin = subprocess.PIPE if data else subprocess.DEVNULL
        process = Fork(list(words), self.folder, self.environment(**environment), stdin, text=False)
        out, err = process.communicate(data)
        return Ran(process.wait(PATIENCE), out.decode(errors="replace"), err.decode(errors="replace"))
