"""Tests of the SQLite engine alone: the same bench, over both colours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engines import COLOURS, ENGINES, Bench
from tests.support.shop import FileShop

from penstock.testing import ManualClock

SQLITE = next(engine for engine in ENGINES if engine.name == "sqlite")


@pytest.fixture(
    params=[pytest.param(colour, marks=() if colour == "blocking" else pytest.mark.exhaustive) for colour in COLOURS]
)
def bench(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Bench]:
    """A SQLite store under test, blocking and async."""
    bench = Bench(SQLITE, request.param, tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture
def shop(bench: Bench) -> Iterator[FileShop]:
    """A queue on a file in which the user has tables too."""
    shop = FileShop(bench)
    yield shop
    shop.close()
