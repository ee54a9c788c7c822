from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.shell import end_started


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_started()
