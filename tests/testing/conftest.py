from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import postgres
from tests.support.engines import COLOURS, ENGINES
from tests.testing.bench import Bench

from penstock.testing import ManualClock

EVERY = [(engine, colour) for engine in ENGINES for colour in COLOURS]
ONE_EACH = [(engine, COLOURS[n % 2]) for n, engine in enumerate(ENGINES)]


def _name(param: Any) -> str:
    return f"{param[0].name}-{param[1]}"


@pytest.fixture(params=ONE_EACH, ids=_name)
def bench(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Bench]:
    """A store under test, over every engine, with a blocking or an async program."""
    with postgres.warmth():
        bench = Bench(*request.param, tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture(params=EVERY, ids=_name)
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
