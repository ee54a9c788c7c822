"""How long a session may be asked to outlive its client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.server.clients import Client
from tests.support import grpcs
from tests.support.servers import Running

import penstock
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.errors import UsageError
from penstock.model.session import Session
from penstock.model.task import Draft
from penstock.server.settings import Limits
from penstock.wire import status

DAY = 24 * 3600
TOO_LONG = "session_ttl is 61 s, and this server allows 60 s at most"


@pytest.fixture
def server() -> Iterator[Running]:
    with Running("memory:", grpc_port=0, limits=Limits(session_seconds=60)) as running:
        yield running


@pytest.fixture(params=["penstock", "grpc"])
def url(server: Running, request: Any) -> str:
    return server.url if request.param == "penstock" else server.grpc_url


def test_a_queue_that_asks_for_more_is_told_the_rule(url: str) -> None:
    with pytest.raises(UsageError, match=TOO_LONG):
        penstock.connect(url, session_ttl=61)
    with penstock.connect(url, session_ttl=60) as q:
        with pytest.raises(UsageError, match=TOO_LONG):
            q.configure(session_ttl=61)
        q.configure(session_ttl=59)


def test_no_other_call_lets_a_session_live_longer(url: str) -> None:
    with penstock.connect(url, session_ttl=60) as q:
        q.create_tube("jobs").put(1)
        session = q._session
        longer = Session(session.uuid, session.name, 61 * SECOND, direct=False)
        engine = q._engine
        now = engine.execute(ops.GetMoment())
        late = ops.KeepAlive(session, until=now + 100 * SECOND)
        requests = [ops.Take("jobs", 1, longer), late, ops.GetMoment(), ops.Put("jobs", (Draft("2"),))]
        take, kept, moment, put = engine.execute_many(requests)
        assert isinstance(take, UsageError) and "61 s" in str(take)
        assert isinstance(kept, UsageError)
        assert isinstance(moment, int) and len(put) == 1
        assert q.tube("jobs").statistics().tasks["taken"] == 0


def test_the_limit_is_a_day_unless_the_server_is_told_otherwise() -> None:
    with Running("memory:") as running:
        with pytest.raises(UsageError, match=r"session_ttl is for ever, and this server allows 86400 s"):
            penstock.connect(running.url, session_ttl=float("inf"))
        penstock.connect(running.url, session_ttl=DAY).close()


def test_a_stream_of_grpc_has_the_same_limit(server: Running) -> None:
    with grpcs.Client(server.grpc_url) as client:
        with pytest.raises(grpc.RpcError) as refused:
            client.open(session_ttl_us=61 * SECOND)
        error = status.error_of(refused.value)
        assert isinstance(error, UsageError) and TOO_LONG in str(error)
        client.open(session_ttl_us=60 * SECOND).close()


def test_so_have_sessions_of_tarantool_queue(server: Running) -> None:
    client = Client(server.server.port())
    assert TOO_LONG in client.refused("queue.cfg", {"ttr": 61})[1]
    client.call("queue.cfg", {"ttr": 60})
    client.close()
