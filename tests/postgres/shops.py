"""Fixtures for tables of the user's: the names that the tests of adoption on SQLite know too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engines import COLOURS, ENGINES, Bench
from tests.support.store_shop import StoreShop

from penstock.testing import ManualClock

POSTGRES = next(engine for engine in ENGINES if engine.name == "postgres")


@pytest.fixture(params=COLOURS)
def bench(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Bench]:
    """A store on PostgreSQL, blocking and async."""
    bench = Bench(POSTGRES, request.param, tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture
def shop(bench: Bench) -> Iterator[StoreShop]:
    """A queue on a server where the user has tables too."""
    shop = StoreShop(bench)
    yield shop
    shop.close()
