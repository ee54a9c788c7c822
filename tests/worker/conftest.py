from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import postgres
from tests.support.engines import COLOURS, ENGINES, Pair, parameters
from tests.worker.bench import Bench, Later, Still, be_patient, look_often, put_forward

import penstock
from penstock.testing import ManualClock

EVERY: list[Pair] = [(engine, colour) for engine in ENGINES for colour in COLOURS]
# Workers are the same for blocking and async programs: most tests need every engine, and each colour somewhere.
ONE_EACH: list[Pair] = [(engine, COLOURS[n % 2]) for n, engine in enumerate(ENGINES)]
# A worker calls every engine in one way, so what it does by itself is tested on SQLite in every run. Tests in which the
# store has a part, in lines of waiters, sessions, transactions or odd texts, have PostgreSQL too. A server has the
# engine that it serves, and the contract tests cover the way to it: a few tests show that workers go it too.
ON_SQLITE = parameters(ONE_EACH, in_every_run=("sqlite-async",))
on_both = pytest.mark.parametrize("pair", parameters(ONE_EACH, in_every_run=("sqlite-async", "postgres-blocking")))
on_each = pytest.mark.parametrize(
    "pair", parameters(ONE_EACH, in_every_run=("sqlite-async", "postgres-blocking", "remote-async"))
)
DURABLE = [engine for engine in ENGINES if engine.durable]
FILES = [
    pytest.param(engine, id=engine.name, marks=() if engine.name == "sqlite" else pytest.mark.exhaustive)
    for engine in DURABLE
]
"""The engines that other processes can open, SQLite in every run."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)
    look_often(monkeypatch)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    return put_forward(monkeypatch)


def _opened(pair: Pair, path: Path, kind: type[Bench] = Bench) -> Iterator[Any]:
    engine, colour = pair
    with postgres.warmth():
        bench = kind(engine, colour, path, ManualClock())
    yield bench
    bench.close()


@pytest.fixture(params=ON_SQLITE)
def pair(request: pytest.FixtureRequest) -> Pair:
    """The engine under test, and the colour of the program."""
    found: Pair = request.param
    return found


@pytest.fixture
def bench(pair: Pair, tmp_path: Path) -> Iterator[Bench]:
    """A store under test with the real clock, over every engine."""
    yield from _opened(pair, tmp_path)


@pytest.fixture
def q(bench: Bench) -> Any:
    """A queue on the store under test: handlers are defined on it, and workers are given it."""
    return bench.connect()


@pytest.fixture(params=parameters(EVERY, in_every_run=("sqlite-async",)))
def every_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """The same, over every engine with both a blocking and an async program: for what handlers do themselves."""
    yield from _opened(request.param, tmp_path)


@pytest.fixture
def every_q(every_bench: Bench) -> Any:
    return every_bench.connect()


@pytest.fixture
def still(pair: Pair, tmp_path: Path) -> Iterator[Still]:
    """A store under test with a clock that stands still, over every engine."""
    yield from _opened(pair, tmp_path, Still)


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
