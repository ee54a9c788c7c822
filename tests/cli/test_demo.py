"""The demo on a machine without Java: what `make demo` runs then. With Spark it is in tests/spark/test_demo.py."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.cli.shell import PATIENCE, started

import penstock

ROOT = Path(__file__).parents[2]
NO_SPARK = "import sys\nsys.modules.update(dict.fromkeys(('pyspark', 'pyarrow', 'pandas')))\n"
"""A sitecustomize.py with which every Python process of the demo fails to import Spark."""


class Machine:
    """A machine without Spark: PATH is a folder with the commands it is given."""

    def __init__(self, folder: Path) -> None:
        self.demo = folder / "demo"
        self.bin = folder / "bin"
        self.bin.mkdir()
        self._site = folder / "site"
        self._site.mkdir()
        (self._site / "sitecustomize.py").write_text(NO_SPARK)

    def add_command(self, name: str, script: str = "") -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def start(self, *options: str) -> subprocess.Popen[str]:
        paths = (self._site, ROOT / "examples", ROOT / "src")
        hidden = ("JAVA_HOME", "COLUMNS", "PENSTOCK_URL")
        return started(
            [sys.executable, "-m", "crawl", "--folder", str(self.demo), "--sites", "3", "--pages", "16", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={
                **{name: value for name, value in os.environ.items() if name not in hidden},
                "PATH": str(self.bin),
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "FORCE_COLOR": "1",
            },
        )

    def run(self, *options: str) -> tuple[int, str, str]:
        """Run the demo to its end, and return its exit status, stdout and stderr."""
        process = self.start("--fast", *options)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_demo_without_java_runs_local_workers(machine: Machine):
    machine.add_command("dnf")
    machine.add_command("sudo")
    status, out, err = machine.run()
    assert (status, err) == (0, ""), out + err
    lines = out.splitlines()
    assert lines[0].startswith("2 local workers fetch 54 pages of 3 sites")
    assert [line for line in lines if re.match(r"Fetch the pages: 54 of 54, \d+\.\d s$", line)]
    assert re.search(r"^all 3 sites +51 +6 +3 +yes ", out, re.MULTILINE)
    assert "All limits were held, and no pages were fetched twice." in lines
    (hint,) = [line for line in lines if line.startswith("No Spark and no report: ")]
    assert "and no java command is in PATH. To get both: " in hint
    assert hint.endswith("dnf install java-21-openjdk-headless, then make demo")
    assert len(lines) <= 22 and max(map(len, lines[: lines.index(hint)])) <= 80
    assert all(line.isprintable() for line in lines), "control characters in a file"


@pytest.mark.exhaustive
def test_demo_without_java_keeps_every_page_in_the_queue(machine: Machine):
    """What the demo proposes to try next is there."""
    _, out, _ = machine.run("--no-spark")
    assert "--no-spark was given. To get both: make demo" in out
    with penstock.connect(machine.demo / "crawl.db") as q:
        tasks = q.tube("pages").statistics().tasks
        assert (tasks["kept"], tasks["buried"], tasks["total"]) == (51, 3, 3)
        assert q.tube("pages").tasks("done", limit=1)[0].result["links"] == 4
    assert not (machine.demo / "report.html").exists()


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the demo, in this process."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    from crawl import __main__

    return __main__


def test_demo_explains_why_spark_is_not_used(demo, machine: Machine, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(machine.bin))
    machine.add_command("java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    text = demo.explain_missing(no_spark=False)
    assert f"Spark needs Java 17 or later, and {machine.bin / 'java'} is Java 11. To get both: download" in text
    machine.add_command("java", "echo 'openjdk version \"21.0.1\" 2023-10-17' >&2")
    assert demo.explain_missing(no_spark=False) is None
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert demo.explain_missing(no_spark=False).endswith("pyspark is not installed. To get both: make demo")


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)], ids=["ctrl-c", "kill"]
)
def test_demo_that_is_interrupted_ends_with_one_line(machine: Machine, number: signal.Signals):
    """What a fleet does then is in tests/spark/test_drivers.py."""
    process = machine.start("--pages", "400")
    assert process.stdout is not None
    assert any("Put the site maps" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "")
    assert out.startswith("Interrupted: ") and out.count("\n") == 1
    with penstock.connect(machine.demo / "crawl.db") as q:
        tasks = q.tube("pages").statistics().tasks
        assert tasks["taken"] == 0 and tasks["ready"] > 0


def test_demo_shows_a_bar_per_phase_on_a_terminal(demo):
    from crawl.progress import Screen

    file = io.StringIO()
    screen = Screen(Console(file=file, force_terminal=True, width=80, color_system=None))
    with screen.phase("Start"):
        pass
    with screen.phase("Fetch", 540) as advance:
        advance(7)
        advance(540)
    text = re.sub(r"\x1b\[\??[0-9;]*[A-Za-z]", "", file.getvalue()).replace("\r", "\n")
    assert max(map(len, text.split("\n"))) <= 80
    assert re.search(r"^Start +━{36} +\d:\d\d:\d\d", text, re.MULTILINE)
    assert re.search(r"^Fetch +━{36} +540/540 \d:\d\d:\d\d", text, re.MULTILINE)


def test_demo_refuses_to_empty_a_folder_with_other_files(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    words = [sys.executable, "-m", "crawl", "--folder", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"examples{os.pathsep}src"}
    ran = subprocess.run(words, capture_output=True, text=True, timeout=200, cwd=ROOT, env=environment)
    assert ran.returncode == 2 and f"--folder {tmp_path} would be emptied" in ran.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_demo_table_shows_broken_limits_first(demo):
    from crawl.summary import Site, make_table

    sites = [Site(f"{number}.example", 2.0, fetched=2, requests=[0.0, 0.5]) for number in range(9)]
    sites[7].requests, sites[4].retried, sites[2].limit = [0.0, 0.1], 3, 5.0
    console = Console(file=io.StringIO(), width=80)
    console.print(make_table(sites))
    rows = console.file.getvalue().splitlines()
    assert [row.split()[0][0] for row in rows[1:7]] == ["7", "2", "4", "0", "1", "3"]
    assert "NO" in rows[1] and rows[2].split()[4:7] == ["5", "2.0", "yes"]
    assert rows[7].split() == ["all", "9", "sites", "18", "3", "0", "NO"]
