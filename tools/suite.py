"""Run the suite: `python tools/suite.py default | exhaustive | quick [pytest options]`.

default     the checks of `make check` and every test that is not marked `exhaustive`: `make test`
exhaustive  the tests that are: what `make test-all` adds
quick       the tests that need no Spark, no PostgreSQL and no process of their own: `make quick`

The folders are divided into groups of about the same length, and each group is one process of pytest. Four groups keep
two cores busy, because many tests wait for servers and processes. pytest-xdist distributes single tests, and its
overhead for each of them is as long as many of these tests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
sys.path.insert(0, str(ROOT))

ENGINES = ("postgres", "sqlite", "remote", "adopt", "crash", "histories", "plans", "testing")
GROUPS = {
    "contract": ["tests/contract"],
    "engines": [f"tests/{name}" for name in ENGINES],
    "spark": ["tests/spark"],
}
REST = ["src", "tests", *(f"--ignore={folder}" for group in GROUPS.values() for folder in group)]
"""The fourth group has all other folders, so that a new one is never left out."""
QUICK = {
    "contract": ["tests/contract"],
    "rest": ["src", "tests/model", "tests/wire", "tests/layout", "tests/pipeline"],
}
REFRESH = 1.0
"""Seconds between two updates of the progress line on a terminal."""
REFRESH_LOG = 60.0
"""The same where the output is not a terminal."""
PATIENCE = 60.0
"""Seconds that pytest may take to end its servers and processes when it is interrupted."""
NO_TESTS = 5
"""The exit code of pytest when the options select none of its tests."""


class Group:
    """One process of pytest, whose output is kept in a file of build/."""

    def __init__(self, run: str, name: str, options: list[str]) -> None:
        self.name = name
        self.percent = 0
        self.durations = BUILD / f"{run}-{name}.json"
        self.durations.unlink(missing_ok=True)
        self._log = BUILD / f"{run}-{name}.log"
        # A process group of its own: Ctrl-C interrupts this program, which then interrupts each pytest once.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", f"--durations-json={self.durations}", *options],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            process_group=0,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        with self._log.open("w", encoding="utf-8") as log:
            for line in output:
                log.write(line)
                log.flush()
                if found := re.search(r"\[ *(\d+)%\]$", line):
                    self.percent = int(found[1])

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def interrupt(self) -> None:
        """Let pytest end what its tests have started, as it does after Ctrl-C."""
        if self.is_running:
            self._process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """Wait for the end of an interrupted process; kill it if that takes too long."""
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def report(self) -> int:
        """Print how it ended, and all its output if it failed; returns the exit code of pytest."""
        code = self._process.wait()
        self._reader.join(PATIENCE)  # a process that a test has left behind may keep the pipe open
        *lines, last = self._log.read_text(encoding="utf-8").splitlines() or [""]
        print(*(lines if code not in (0, NO_TESTS) else []), f"{self.name}: {last}", sep="\n", flush=True)
        return code

    def failures(self) -> list[str]:
        """The lines that name the tests that failed."""
        lines = self._log.read_text(encoding="utf-8").splitlines()
        return [line for line in lines if re.match(r"(FAILED|ERROR) \w+/", line)]


def main(run: str, options: list[str]) -> int:
    began = time.monotonic()
    BUILD.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    groups = start(run, options)
    try:
        passed = (run != "default" or check()) and wait(groups, began, may_be_empty=bool(options))
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130
    finally:
        for group in groups:
            group.interrupt()
        for group in groups:
            group.end()
    print(f"{'passed' if passed else 'failed'} after {time.monotonic() - began:.0f} s")
    return int(not passed)


def start(run: str, options: list[str]) -> list[Group]:
    if run == "quick":
        marks = ["--no-processes", "-m", "not exhaustive and not processes and not servers"]
        return [Group(run, name, [*folders, *marks, *options]) for name, folders in QUICK.items()]
    marks = ["-m", "exhaustive"] if run == "exhaustive" else []
    groups = {**GROUPS, "rest": REST}
    return [Group(run, name, [*folders, *marks, *options]) for name, folders in groups.items()]


def check() -> bool:
    """Run `make check`; the flags of the make that started this program are not for that one.

    The tests keep the cores busy, and mypy fails if a worker of its own does not start within 3 seconds.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "--no-print-directory", "check", "MYPY=--num-workers=0"]
    return subprocess.call(command, cwd=ROOT, env=environment) == 0


def wait(groups: list[Group], began: float, may_be_empty: bool) -> bool:
    """Report each group when it ends, then the seconds of each folder and what failed; returns whether all passed.

    may_be_empty: pytest options were given, and may select no test of a group
    """
    on_terminal = sys.stdout.isatty()
    codes: dict[str, int] = {}
    shown = began
    while running := [group for group in groups if group.name not in codes]:
        for group in running:
            if not group.is_running:
                print("\r\033[K" if on_terminal else "", end="")
                codes[group.name] = group.report()
        now = time.monotonic()
        if now - shown >= (REFRESH if on_terminal else REFRESH_LOG):
            shown = now
            progress = ", ".join(f"{group.name} {group.percent} %" for group in running)
            line = f"after {now - began:.0f} s: {progress}"
            print(f"\r\033[K{line}" if on_terminal else line, end="" if on_terminal else "\n", flush=True)
        time.sleep(0.1)
    print_durations(groups)
    for line in [line for group in groups for line in group.failures()]:
        print(line)
    found = set(codes.values())
    return found <= ({0, NO_TESTS} if may_be_empty else {0}) and 0 in found


def print_durations(groups: list[Group]) -> None:
    """Print the seconds of each folder."""
    from tests.support.durations import by_folder

    seconds: dict[str, float] = {}
    for group in groups:
        if group.durations.exists():
            seconds |= json.loads(group.durations.read_text())
        else:
            print(f"{group.name}: no durations, pytest did not end as it should")
    print("seconds by folder, all processes added:", *by_folder(seconds), sep="\n")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("default", "exhaustive", "quick"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
