from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import postgres
from tests.support.engines import COLOURS, ENGINES, Pair, parameters
from tests.testing.bench import Bench
from tests.worker.bench import look_often

from penstock.testing import ManualClock

EVERY: list[Pair] = [(engine, colour) for engine in ENGINES for colour in COLOURS]
ONE_EACH: list[Pair] = [(engine, COLOURS[n % 2]) for n, engine in enumerate(ENGINES)]
# The kit calls what programs call. Most use it on memory; the others are here for what their stores do between calls.
IN_EVERY_RUN = ("memory-blocking", "memory-async", "sqlite-async")


@pytest.fixture(autouse=True)
def _looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch)


@pytest.fixture(params=parameters(ONE_EACH, IN_EVERY_RUN))
def bench(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Bench]:
    """A store under test, over every engine, with a blocking or an async program."""
    with postgres.warmth():
        bench = Bench(*request.param, tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture(params=parameters(EVERY, IN_EVERY_RUN))
def every_bench(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Bench]:
    """The same, over every engine with both."""
    with postgres.warmth():
        bench = Bench(*request.param, tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture
def q(bench: Bench) -> Any:
    return bench.connect()


@pytest.fixture
def every_q(every_bench: Bench) -> Any:
    return every_bench.connect()
