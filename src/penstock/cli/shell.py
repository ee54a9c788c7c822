"""A shell command that is run for each task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, Any

from penstock.blocking import Task
from penstock.cli import documents, output
from penstock.cli.interruption import Signals
from penstock.cli.values import shown_id

ERROR_LENGTH = 4000
"""Bytes of what the command said last that are stored with a task that failed."""

PATIENCE = 2.0
"""Seconds that a command has to end when it is told to, and its words to arrive when it has ended."""


class Shell:
    """Runs the command; Ctrl-C and SIGTERM end it and give the task back."""

    def __init__(self, command: str, signals: Signals) -> None:
        self._command = command
        self._signals = signals

    def run(self, task: Task) -> str | None:
        """Run it with the task's data; None if it went well, else what it said last."""
        try:
            return self._run(task)
        except KeyboardInterrupt:
            task.release(refund=True)
            raise

    def _run(self, task: Task) -> str | None:
        data = task.data if isinstance(task.data, bytes) else _text(task.data).encode()
        process: subprocess.Popen[bytes] | None = None
        try:
            # Between its start and the next line nobody could end it.
            with self._signals.held():
                process = self._started(task)
            assert process.stdin is not None and process.stderr is not None
            said = Tail(process.stderr)
            with suppress(BrokenPipeError), process.stdin as stdin:  # it need not read the data
                stdin.write(data)
            status = process.wait()
        except BaseException:
            if process is not None:
                _end(process)
            raise
        said.join()
        if status == 0:
            return None
        how = f"exit status {status}" if status > 0 else f"ended by signal {-status}"
        return f"{how}: {said.text}" if said.text else how

    def _started(self, task: Task) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            shell=True,
            stdin=subprocess.PIPE,
            # With --json our stdout has documents alone.
            stdout=sys.stderr if output.as_json() else None,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **environment(task)},
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and what it has started: first asked, then made to."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
            return


def _text(data: Any) -> str:
    """Text as it is, everything else as JSON."""
    return data if isinstance(data, str) else documents.data_text(data)


def environment(task: Task) -> dict[str, str]:
    """What a command learns of its task."""
    found: dict[str, Any] = {
        "TASK_ID": shown_id(task.id),
        "TUBE": task.tube,
        "ATTEMPT": task.attempt,
        "LAST_ATTEMPT": "1" if task.last_attempt else "",
        "LANE": task.lane or "",
        "KEY": task.key or "",
    }
    return {f"PENSTOCK_{name}": str(value) for name, value in found.items()}


class Tail:
    """Passes on what a command says on stderr, and remembers the end of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._end = b""
        self._thread = threading.Thread(target=self._run, name="penstock stderr", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._stream as stream:
            while part := os.read(stream.fileno(), 65536):
                self._end = (self._end + part)[-ERROR_LENGTH:]
                sys.stderr.buffer.write(part)
                sys.stderr.buffer.flush()

    def join(self) -> None:
        """What was said before the command ended is here soon; a child that it left may keep the pipe open."""
        self._thread.join(PATIENCE)

    @property
    def text(self) -> str:
        return self._end.decode(errors="replace").strip()
