"""Run the suite: `python tools/suite.py default | exhaustive | quick [pytest options]`.

default     the checks of `make check` and every test that is not marked `exhaustive`: `make test`
exhaustive  the tests that are: what `make test-all` adds
quick       the tests that need no Spark, no PostgreSQL and no process of their own: `make quick`

Spark often waits for processes of its own, so its tests run in one process beside the others, and the checks run
meanwhile. The output of the Spark tests is printed when both have ended, followed by the seconds of each folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
sys.path.insert(0, str(ROOT))

FOLDERS = ["src", "tests/contract", "tests/model", "tests/wire", "tests/layout", "tests/pipeline"]
# Tests on an engine have its name in theirs, and those of the async facade have "async".
QUICK = [*FOLDERS, "-m", "not exhaustive and not processes", "-k", "not postgres and not remote and not async"]


def main(what: str, options: list[str]) -> int:
    began = time.monotonic()
    BUILD.mkdir(exist_ok=True)
    if what == "quick":
        codes = [pytest("quick", *workers(), "--no-processes", *QUICK, *options)]
    else:
        marks = ["-m", "exhaustive"] if what == "exhaustive" else []
        codes = run_all(what, [*marks, *options])
    print_durations(what)
    print(f"{'failed' if any(codes) else 'passed'} after {time.monotonic() - began:.0f} s")
    return int(any(codes))


def run_all(what: str, options: list[str]) -> list[int]:
    """Run the Spark tests beside the checks and the other tests; returns the exit codes."""
    log = BUILD / f"{what}-spark.log"
    with log.open("wb") as output:
        spark = subprocess.Popen(command(f"{what}-spark", "tests/spark", *options), stdout=output, stderr=output)
    try:
        codes = [subprocess.call(["make", "--no-print-directory", "check"], cwd=ROOT)] if what == "default" else []
        if not any(codes):
            codes.append(pytest(what, *workers(), "--dist=worksteal", "--ignore=tests/spark", *options))
            codes.append(spark.wait())
            print("tests of Spark:", log.read_text(), sep="\n", flush=True)
    finally:
        if spark.poll() is None:
            spark.terminate()
            spark.wait()
    return codes


def workers() -> list[str]:
    """How many processes run the tests: two at least, since tests wait for processes and servers."""
    return ["-n", str(max(2, min(4, os.cpu_count() or 2)))]


def command(name: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "pytest", f"--durations-json={BUILD / name}.json", *words]


def pytest(name: str, *words: str) -> int:
    return subprocess.call(command(name, *words), cwd=ROOT)


def print_durations(what: str) -> None:
    """Print the seconds of each folder."""
    from tests.support.durations import by_folder

    seconds: dict[str, float] = {}
    for name in (what, f"{what}-spark"):
        file = BUILD / f"{name}.json"
        if file.exists():
            seconds |= json.loads(file.read_text())
    print("seconds by folder, all processes added:", *by_folder(seconds), sep="\n")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("default", "exhaustive", "quick"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
