"""Another driver of Spark: a process of its own that does what tests say, and that they may interrupt and kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.spark.conftest import environment
from tests.worker.bench import until

PATIENCE = 600.0
HERE = "local[2]"
"""Two workers run at once, however many cores the machine has."""
PROGRAM = Path(__file__).parent / "drivers" / "program.py"


class Driver:
    """tests/spark/drivers/program.py, started when it is first needed and again after it was killed."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        self._home = home
        self._process: subprocess.Popen[str] | None = None
        self._master = ""

    def on(self, master: str, **settings: str) -> Driver:
        """The driver on a master; what it did on another one has ended then."""
        if master != self._master:
            self.ask("on", master, str(self._folder), settings)
            self._master = master
        return self

    def tell(self, name: str, *words: Any) -> None:
        """Say what to do, and come back at once."""
        print(json.dumps([name, *words]), file=self._input(), flush=True)

    def answer(self) -> Any:
        """What came of it."""
        assert self._process is not None and self._process.stdout is not None
        try:
            line = self._process.stdout.readline()
        except BaseException:  # nobody waits any longer: what it says then is not for the next test
            self.kill()
            raise
        said = json.loads(line) if line else {"error": "the driver is gone"}
        assert "answer" in said, f"{said['error']}\n{self._said()}"
        return said["answer"]

    def ask(self, name: str, *words: Any) -> Any:
        """Have something done."""
        self.tell(name, *words)
        return self.answer()

    def until(self, true: Callable[[], Any]) -> None:
        """Wait for something that the driver does."""
        try:
            until(lambda: true() or not self._lives(), PATIENCE)
        except BaseException:  # it is still busy with the test that failed, so the next test starts another
            self.kill()
            raise
        assert self._lives(), self._said()

    def interrupt(self) -> None:
        """Ctrl-C, as a terminal sends it."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGINT)

    def kill(self) -> None:
        """The end of the driver and of its machine, as kill -9 has it."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=PATIENCE)
        self._process, self._master = None, ""

    def _lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _said(self) -> str:
        return (self._folder / "said").read_text()[-4000:]

    def _input(self) -> IO[str]:
        if self._process is None:
            with (self._folder / "said").open("w") as said:
                self._process = subprocess.Popen(
                    [sys.executable, str(PROGRAM)],
                    env={**environment(self._home), "SPARK_LOCAL_IP": "127.0.0.1"},
                    cwd=self._folder,
                    start_new_session=True,  # as a shell starts it
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                )
        assert self._process.stdin is not None
        return self._process.stdin
