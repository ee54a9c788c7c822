"""Pages of the docs as programs: what their blocks say is done, in order, in a folder of their own.

    ```python          is run, one namespace a page; under a first line `# name.py` it is written to that file instead
    ```bash            is run by bash, as a reader would type it
    ```text            after one of those in bash is exactly what it prints

A block in bash that ends with a worker that runs until it is told to stop gets the reader's Ctrl-C once it has printed
what the page shows, and that is where its output ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support import postgres

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
FILE = re.compile(r"# (\w+\.py)\n")
EXPORT = re.compile(r"^export (\w+)=(.*)$", re.M)
BEGUN = re.compile(r"\d+ slots? for ")
"""In the line with which a worker says that it has begun."""
PATIENCE = 200.0
"""Seconds after which a block is taken for stuck."""


class Block(NamedTuple):
    """A piece of a page."""

    language: str
    text: str
    line: int
    """How many lines of the page are before it."""

    @property
    def file(self) -> str | None:
        """The file that it is, if it is one."""
        named = FILE.match(self.text) if self.language == "python" else None
        return named and named[1]

    @property
    def runs_on(self) -> bool:
        """Whether it ends with a worker that does not end by itself."""
        last = self.text.strip().splitlines()[-1]
        return last.startswith("penstock worker") and "--until-empty" not in last


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(match[1], match[2], text.count("\n", 0, match.start(2))) for match in BLOCK.finditer(text)]


def runs(page: Path) -> bool:
    """Whether there is anything to run on a page."""
    return any(block.language in ("python", "bash") for block in blocks(page))


def needs_spark(page: Path) -> bool:
    """Whether it starts a session of Spark; such pages run where one is started already, in tests/spark."""
    return any("import SparkSession" in block.text for block in blocks(page) if block.language == "python")


@contextmanager
def shop(page: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For pages that use it a database of that name, where the driver looks when a URL names no server."""
    if not any(":///shop" in block.text for block in blocks(page) if block.language in ("python", "bash")):
        yield
        return
    server = postgres.shared_server()
    server.create_database("shop")
    for name, value in {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres"}.items():
        monkeypatch.setenv(name, value)
    try:
        yield
    finally:
        server.drop_database("shop")


def run(page: Path) -> None:
    """Do what a page says, in the current folder."""
    names: dict[str, Any] = {"__name__": "snippet"}
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONUNBUFFERED": "1",
    }
    try:
        for block, shown in _with_output(blocks(page)):
            if block.file:
                Path(block.file).write_text(block.text)
            elif block.language == "python":
                # Moved down to its line, so that a traceback names it.
                exec(compile("\n" * block.line + block.text, str(page), "exec", dont_inherit=True), names)
            elif block.language == "bash":
                printed = type_in(block, shown, environment)
                assert shown is None or printed == shown, f"{page.name}:{block.line} printed {printed!r}"
                environment.update(EXPORT.findall(block.text))
    finally:
        for value in list(names.values()):
            if type(value).__name__ == "Queue":
                value.close()


def _with_output(found: list[Block]) -> Iterator[tuple[Block, str | None]]:
    """Blocks, each with what the page says it prints."""
    for block, after in zip(found, [*found[1:], None], strict=True):
        yield block, after.text if after is not None and after.language == "text" else None


def type_in(block: Block, shown: str | None, environment: dict[str, str]) -> str:
    """Let bash do a block; what it prints."""
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", block.text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    printed, said = "", ""
    try:
        if block.runs_on:
            while shown is not None and len(printed) < len(shown) and (line := process.stdout.readline()):
                printed += line
            while not BEGUN.search(said) and (line := process.stderr.readline()):
                said += line
            os.killpg(process.pid, signal.SIGINT)
        rest, more = process.communicate(timeout=PATIENCE)
    finally:
        # What a block has left behind it would hold its port.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, f"{block.text}{printed}{rest}{said}{more}"
    return printed if block.runs_on else printed + rest
