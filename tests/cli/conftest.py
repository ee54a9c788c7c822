from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shell import Ran, Shell, end_started
from tests.support import postgres
from tests.support.forks import Fork, ForkedShell


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_started()


class QuickShell(ForkedShell):
    """Forks runs that tell Python nothing. A test of how the program itself starts or ends has a `real_shell`."""

    def run(self, *words: str, input: str | bytes = "", **environment: Any) -> Ran:
        if any(name.startswith("PYTHON") for name in environment):
            return Shell.run(self, *words, input=input, **environment)
        return super().run(*words, input=input, **environment)

    def start(self, *words: str, **options: Any) -> Any:
        files = {"stdin": subprocess.PIPE, "text": False, **options}
        return Fork(list(words), self.folder, self.environment(), **files)

    def start_on(self, terminal: int, *words: str, **environment: str) -> Any:
        return Fork(list(words), self.folder, self.environment(**environment), terminal, terminal, terminal)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs of the program on a SQLite file."""
    return QuickShell("tasks.db", tmp_path)


@pytest.fixture
def real_shell(shell: Shell) -> Shell:
    """The same store and folder; the program starts as a person starts it, which takes long."""
    return Shell(shell.url, shell.folder)


@pytest.fixture(params=["sqlite", "postgres"])
def any_shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """Runs of the program on a SQLite file, and on PostgreSQL."""
    if request.param == "sqlite":
        yield QuickShell("tasks.db", tmp_path)
        return
    url = postgres.lent_place()
    yield QuickShell(url, tmp_path)
    postgres.give_back(url)
