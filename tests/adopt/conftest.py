"""Tests of tables of the user's that are tubes, over the engines that have tables, blocking and async."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.adopt.pairs import PAIRS
from tests.support.engines import Bench, parameters
from tests.support.shop import Shop, shop_on

from penstock.testing import ManualClock


@pytest.fixture(params=parameters(PAIRS))
def bench(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Bench]:
    """A store in which the user may have tables too."""
    engine, colour = request.param
    # Not a warm place: an adoption makes so much that connections which have planned before only plan it all again.
    bench = Bench(engine, colour, tmp_path, clock)
    yield bench
    bench.close()


@pytest.fixture
def shop(bench: Bench) -> Iterator[Shop]:
    """A queue, and the user."""
    shop = shop_on(bench)
    yield shop
    shop.close()
