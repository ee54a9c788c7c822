from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.shell import end_started
from tests.support import postgres


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_started()


@pytest.fixture
def database() -> Iterator[str]:
    url = postgres.lent_place()
    yield url
    postgres.give_back(url)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What outlives a server."""
    found: str = request.getfixturevalue("database") if request.param == "postgres" else str(tmp_path / "tasks.db")
    return found
