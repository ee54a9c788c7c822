"""Tests of the PostgreSQL engine alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support import postgres
from tests.support.engines import ENGINES, Bench
from tests.support.store_shop import StoreShop

from penstock.testing import ManualClock


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    """Ends the servers that a test has for itself: `servers.enter_context(Server.start())`."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def place() -> Iterator[str]:
    """The URL of a new and empty place on the shared server."""
    url = postgres.place()
    yield url
    postgres.drop_place(url)


@pytest.fixture
def lent() -> Iterator[str]:
    """The URL of a place that others have had: for files that do not look at a schema or its database as a whole."""
    url = postgres.lent_place()
    yield url
    postgres.give_back(url)


@pytest.fixture
def warm() -> Iterator[str]:
    """The URL of a lent place that keeps the parts of tubes and the connections of earlier tests.

    It spares a test most of its time. For tests whose place no other process opens, and which leave functions,
    settings and backends of the store as they are.
    """
    with postgres.warmth():
        url = postgres.lent_place(warm=True)
    yield url
    postgres.give_back(url)


@pytest.fixture
def shop(tmp_path: Path, clock: ManualClock) -> Iterator[StoreShop]:
    """A queue on a server where the user has a schema of his own."""
    engine = next(engine for engine in ENGINES if engine.name == "postgres")
    bench = Bench(engine, "blocking", tmp_path, clock)
    shop = StoreShop(bench)
    yield shop
    shop.close()
    bench.close()
