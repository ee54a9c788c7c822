"""The process that takes over on SIGHUP: the same command, of the code as it is now."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.server.takeover import ASKING, STARTING, VARIABLE

log = logging.getLogger("penstock.server")
TAKEOVER = "--takeover"


class Successor:
    """A process that was started and has not taken over yet.

    It outlives this one, so nothing here ends it, but if it neither takes over nor ends it is killed.
    """

    def __init__(self, process: subprocess.Popen[bytes], on_failed: Callable[[], object]) -> None:
        self._process = process
        self._on_failed = on_failed
        self.going_on = True
        self.has_taken = False
        threading.Thread(target=self._watch, name="penstock successor", daemon=True).start()

    @classmethod
    def started(cls, control: Path, on_failed: Callable[[], object]) -> Successor | None:
        """Start the command line of this process again."""
        if os.getpid() == 1:
            log.error("SIGHUP: this is the first process of a container, which would end with it; start another one")
            return None
        arguments = [argument for argument in sys.argv[1:] if argument != TAKEOVER]
        command = [sys.executable, "-m", "penstock", *arguments, TAKEOVER]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, env={**os.environ, VARIABLE: os.fspath(control)}
            )
        except OSError as error:
            log.error("SIGHUP: no new process could be started, this one goes on: %s", error)
            return None
        log.info("SIGHUP: process %d is to take over", process.pid)
        return cls(process, on_failed)

    def _watch(self) -> None:
        """Tell when it came to nothing."""
        try:
            self._process.wait(ASKING + STARTING)
        except subprocess.TimeoutExpired:
            if not self.has_taken:
                self._process.kill()
        self.going_on = False
        if self.has_taken:
            return
        status = self._process.wait()
        log.error("process %d ended with status %d, this one goes on", self._process.pid, status)
        with contextlib.suppress(RuntimeError):  # the loop is closed: this process ends
            self._on_failed()
