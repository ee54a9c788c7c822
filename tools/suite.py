"""Run the suite: `python tools/suite.py default | exhaustive | quick [pytest options]`.

default     the checks of `make check` and every test that is not marked `exhaustive`: `make test`
exhaustive  the tests that are: what `make test-all` adds
quick       the tests that need no Spark, no PostgreSQL and no process of their own: `make quick`

The folders are divided into groups of about the same length, and each group is one process of pytest. Two cores are
busy with four groups, because many tests wait for servers and processes. Handing out single tests to processes, as
pytest-xdist does, costs more time for so many short tests than it saves.
"""

from __future__ import annotations

import json
import re
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
# Tests on an engine have its name in theirs, and those of the async facade have "async".
QUICK_OPTIONS = ["--no-processes", "-k", "not postgres and not remote and not async"]
REFRESH = 1.0
"""Seconds between two updates of the progress line."""


class Group:
    """One process of pytest, whose output is kept in a file of build/."""

    def __init__(self, run: str, name: str, options: list[str]) -> None:
        self.name = name
        self.percent = 0
        self.durations = BUILD / f"{run}-{name}.json"
        self.durations.unlink(missing_ok=True)
        self._log = BUILD / f"{run}-{name}.log"
        command = [sys.executable, "-m", "pytest", f"--durations-json={self.durations}", *options]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        with self._log.open("w") as log:
            for line in output:
                log.write(line)
                log.flush()
                if found := re.search(r"\[ *(\d+)%\]$", line):
                    self.percent = int(found[1])

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process if it still runs, as Ctrl-C does."""
        if self.is_running:
            self._process.terminate()
        self._process.wait()

    def report(self) -> int:
        """Print how it ended, and all its output if it failed; returns the exit code of pytest."""
        code = self._process.wait()
        self._reader.join()
        lines = self._log.read_text().splitlines()
        shown = lines if code else lines[-1:]
        print(*(f"{self.name}: {line}" if line is lines[-1] else line for line in shown), sep="\n", flush=True)
        return code


def main(run: str, options: list[str]) -> int:
    began = time.monotonic()
    BUILD.mkdir(exist_ok=True)
    groups = start(run, options)
    try:
        codes = [subprocess.call(["make", "--no-print-directory", "check"], cwd=ROOT)] if run == "default" else []
        if not any(codes):
            wait(groups, began)
            codes += [group.report() for group in groups]
            print_durations(groups)
    finally:
        for group in groups:
            group.stop()
    print(f"{'failed' if any(codes) else 'passed'} after {time.monotonic() - began:.0f} s")
    return int(any(codes))


def start(run: str, options: list[str]) -> list[Group]:
    if run == "quick":
        marks = ["-m", "not exhaustive and not processes"]
        return [Group(run, name, [*folders, *marks, *QUICK_OPTIONS, *options]) for name, folders in QUICK.items()]
    marks = ["-m", "exhaustive"] if run == "exhaustive" else []
    groups = {**GROUPS, "rest": REST}
    return [Group(run, name, [*folders, *marks, *options]) for name, folders in groups.items()]


def wait(groups: list[Group], began: float) -> None:
    """Wait for all groups; on a terminal, a line shows how far each one is."""
    on_terminal = sys.stdout.isatty()
    while any(group.is_running for group in groups):
        if on_terminal:
            progress = ", ".join(f"{group.name} {group.percent} %" for group in groups)
            print(f"\r{progress}, {time.monotonic() - began:.0f} s", end=" ", flush=True)
        time.sleep(REFRESH)
    if on_terminal:
        print("\r\033[K", end="")


def print_durations(groups: list[Group]) -> None:
    """Print the seconds of each folder."""
    from tests.support.durations import by_folder

    seconds: dict[str, float] = {}
    for group in groups:
        if group.durations.exists():
            seconds |= json.loads(group.durations.read_text())
    print("seconds by folder, all processes added:", *by_folder(seconds), sep="\n")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("default", "exhaustive", "quick"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
