"""What servers on one store do not tell each other, as docs/tarantool.md says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server.clients import Client
from tests.support.postgres import until
from tests.support.servers import Running

import penstock


@pytest.fixture
def servers(store: str) -> Iterator[tuple[Running, Running]]:
    with penstock.connect(store) as q:
        q.create_tube("jobs", "fifo").put_many([1, 2, 3])
    with Running(store) as one, Running(store) as other:
        yield one, other


def test_cfg_is_of_the_server_that_was_asked(servers: tuple[Running, Running]) -> None:
    one, other = (Client(server.server.port()) for server in servers)
    one.call("queue.cfg", {"ttr": 60})
    kept = one.call("queue.tube.jobs:take", 0)[0][0]
    lost = other.call("queue.tube.jobs:take", 0)[0][0]
    one.close()
    other.close()
    with penstock.connect(servers[0].url) as q:
        jobs = q.tube("jobs")
        until(lambda: jobs.peek(lost).state == "ready", "it should come back")
        assert jobs.peek(kept).state == "taken"


def test_a_session_of_several_servers_ends_when_the_last_lets_go(servers: tuple[Running, Running]) -> None:
    one, other = (Client(server.server.port(), encoding=None) for server in servers)
    one.call("queue.cfg", {"ttr": 60})
    uuid = one.call("queue.identify")[0]
    task = one.call("queue.tube.jobs:take", 0)[0][0]
    one.close()
    assert other.call("queue.identify", uuid)[0] == uuid
    other.close()
    until(lambda: not len(servers[1].server.sessions), "it should have let go")
    with penstock.connect(servers[1].url) as q:
        jobs = q.tube("jobs")
        assert jobs.peek(task).state == "taken"
        servers[0].server.sessions.linger = 0
        again = Client(servers[0].server.port(), encoding=None)
        again.call("queue.identify", uuid)
        again.close()
        until(lambda: jobs.peek(task).state == "ready", "it should come back")
