"""Tests of the PostgreSQL engine alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support import postgres


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    """Ends the servers that a test has for itself: `servers.enter_context(Server.start())`."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def place() -> Iterator[str]:
    """The URL of an empty place on the shared server."""
    url = postgres.place()
    yield url
    postgres.drop_place(url)
