"""Tests of tables of the user's that are tubes, over the engines that have tables, blocking and async."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engines import COLOURS, ENGINES, Bench
from tests.support.shop import Shop, shop_on

from penstock.testing import ManualClock

WITH_TABLES = [engine for engine in ENGINES if engine.durable]


@pytest.fixture(params=[(e, c) for e in WITH_TABLES for c in COLOURS], ids=lambda p: f"{p[0].name}-{p[1]}")
def bench(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Bench]:
    """A store in which the user may have tables too."""
    engine, colour = request.param
    bench = Bench(engine, colour, tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture
def shop(bench: Bench) -> Iterator[Shop]:
    """A queue, and the user."""
    shop = shop_on(bench)
    yield shop
    shop.close()
