from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.engines import COLOURS, ENGINES
from tests.worker.bench import Bench, Later, be_patient, put_forward

from penstock.testing import ManualClock

# Metrics are the same for blocking and async programs: every engine, and each colour somewhere.
ONE_EACH = [(engine, COLOURS[n % 2]) for n, engine in enumerate(ENGINES)]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    return put_forward(monkeypatch)


@pytest.fixture(params=ONE_EACH, ids=lambda param: f"{param[0].name}-{param[1]}")
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A store under test with the real clock, over every engine."""
    engine, colour = request.param
    bench = Bench(engine, colour, tmp_path, ManualClock())
    yield bench
    bench.close()


@pytest.fixture
def q(bench: Bench) -> Any:
    """A queue on the store under test."""
    return bench.connect()
