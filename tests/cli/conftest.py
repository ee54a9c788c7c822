from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.shell import Shell, end_started
from tests.support import postgres


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_started()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs of the program on a SQLite file."""
    return Shell("tasks.db", tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def any_shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """Runs of the program on a SQLite file, and on PostgreSQL."""
    if request.param == "sqlite":
        yield Shell("tasks.db", tmp_path)
        return
    url = postgres.lent_place()
    yield Shell(url, tmp_path)
    postgres.give_back(url)
