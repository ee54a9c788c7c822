from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import postgres
from tests.support.engines import COLOURS, ENGINES
from tests.worker.bench import Bench, Later, Still, be_patient, put_forward

import penstock
from penstock.testing import ManualClock

EVERY = [(engine, colour) for engine in ENGINES for colour in COLOURS]
# Workers are the same for blocking and async programs: most tests need every engine, and each colour somewhere.
ONE_EACH = [(engine, COLOURS[n % 2]) for n, engine in enumerate(ENGINES)]


def _name(param: Any) -> str:
    return f"{param[0].name}-{param[1]}"


def _opened(request: pytest.FixtureRequest, path: Path, kind: type[Bench] = Bench) -> Iterator[Any]:
    engine, colour = request.param
    with postgres.warmth():
        bench = kind(engine, colour, path, ManualClock())
    yield bench
    bench.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    return put_forward(monkeypatch)


@pytest.fixture(params=ONE_EACH, ids=_name)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A store under test with the real clock, over every engine."""
    yield from _opened(request, tmp_path)


@pytest.fixture
def q(bench: Bench) -> Any:
    """A queue on the store under test: handlers are defined on it, and workers are given it."""
    return bench.connect()


@pytest.fixture(params=EVERY, ids=_name)
def every_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """The same, over every engine with both a blocking and an async program: for what handlers do themselves."""
    yield from _opened(request, tmp_path)


@pytest.fixture
def every_q(every_bench: Bench) -> Any:
    return every_bench.connect()


@pytest.fixture(params=ONE_EACH, ids=_name)
def still(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Still]:
    """A store under test with a clock that stands still, over every engine."""
    yield from _opened(request, tmp_path, Still)


@pytest.fixture
def memory() -> Iterator[Any]:
    """A queue in memory, for what no engine has a part in."""
    with penstock.connect("memory:") as queue:
        yield queue


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def still_memory(clock: ManualClock) -> Iterator[Any]:
    """The same with a clock that stands still."""
    with penstock.connect("memory:", clock=clock) as queue:
        yield queue
