from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shell import Ran, Shell, end_started
from tests.support import postgres
from tests.support.forks import ForkedShell


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_started()


class QuickShell(ForkedShell):
    """Forks runs that read nothing and tell Python nothing; the others start as a person starts them."""

    def run(self, *words: str, input: str | bytes = "", **environment: Any) -> Ran:
        if input or any(name.startswith("PYTHON") for name in environment):
            return Shell.run(self, *words, input=input, **environment)
        return super().run(*words, **environment)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs of the program on a SQLite file."""
    return QuickShell("tasks.db", tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def any_shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """Runs of the program on a SQLite file, and on PostgreSQL."""
    if request.param == "sqlite":
        yield QuickShell("tasks.db", tmp_path)
        return
    url = postgres.lent_place()
    yield QuickShell(url, tmp_path)
    postgres.give_back(url)
