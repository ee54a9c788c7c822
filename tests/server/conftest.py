from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.shell import end_started
from tests.server.clients import Client
from tests.support import grpcs, postgres
from tests.support.servers import Running


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    end_started()


@pytest.fixture
def database() -> Iterator[str]:
    url = postgres.lent_place()
    yield url
    postgres.give_back(url)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What outlives a server."""
    found: str = request.getfixturevalue("database") if request.param == "postgres" else str(tmp_path / "tasks.db")
    return found


@pytest.fixture
def server() -> Iterator[Running]:
    """A store in memory, where a file has no other."""
    with Running("memory:", grpc_port=0) as running:
        yield running


@pytest.fixture(scope="module")
def one_server() -> Iterator[Running]:
    """The same for all tests of a file."""
    with Running("memory:", grpc_port=0) as running:
        yield running


@pytest.fixture
def connect(server: Running) -> Iterator[Any]:
    """Makes clients of tarantool/queue, of the test's server if no other is named, and closes them at its end."""
    made: list[Client] = []

    def connect(to: Running = server, **options: Any) -> Client:
        made.append(Client(to.server.port(), **options))
        return made[-1]

    yield connect
    for client in made:
        client.close()


@pytest.fixture
def grpc_client(server: Running) -> Iterator[grpcs.Client]:
    """One without a session, of the test's server."""
    with grpcs.Client(server.grpc_url) as made:
        yield made
