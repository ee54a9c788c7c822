from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.remote.line import Line
from tests.support import remotes

import penstock
from penstock.engines.remote import channel

LONG = 600
"""Seconds that sessions live, and calls wait for a server: nothing ends because the machine is slow."""


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has lost its server looks for it all the time."""
    monkeypatch.setattr(channel, "LONGEST_PAUSE", channel.FIRST_PAUSE)


@pytest.fixture
def url() -> Iterator[str]:
    """A server in this process, with the real clock."""
    url = remotes.served()
    yield url
    remotes.stop(url)


@pytest.fixture
def line(url: str) -> Iterator[Line]:
    """A line to it."""
    with Line(int(url.rpartition(":")[2])) as line:
        yield line


@pytest.fixture
def q(line: Line) -> Iterator[Any]:
    """A queue at the other end of the line."""
    with penstock.connect(line.address, session_ttl=LONG) as queue:
        yield queue


@pytest.fixture
def near(url: str) -> Iterator[Any]:
    """A queue that has the server to itself."""
    with penstock.connect(url, session_ttl=LONG) as queue:
        yield queue
