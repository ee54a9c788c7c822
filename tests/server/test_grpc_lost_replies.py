"""Replies of Take that do not arrive: what is known of that is used, and their tasks come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.support.grpcs import Client
from tests.support.postgres import until
from tests.support.proxy import LIMIT
from tests.support.relay import Relay
from tests.support.servers import Running

from penstock.wire._generated import penstock_pb2 as pb
from penstock.wire._generated import penstock_pb2_grpc

BIG = f'"{"x" * 500_000}"'
WINDOW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536), ("grpc.use_local_subchannel_pool", 1)]
"""Clients that let as much be on its way as HTTP/2 says, as those in Go do."""


@pytest.fixture
def near(server: Running) -> Iterator[Client]:
    """A client with a session, whose stream has a connection of its own."""
    with Client(server.grpc_url) as client:
        client.create("jobs")
        client.open()
        client.put("jobs", BIG, BIG)
        yield client


@pytest.fixture
def wire(server: Running) -> Iterator[Relay]:
    with Relay(server.server.port("grpc_port")) as wire:
        yield wire


@pytest.fixture
def far(wire: Relay) -> Iterator[Any]:
    """A stub at the other end of the wire."""
    with grpc.insecure_channel(f"127.0.0.1:{wire.port}", WINDOW) as channel:
        yield penstock_pb2_grpc.QueueStub(channel)


def counts(client: Client) -> Any:
    return client.call("Statistics", pb.StatisticsRequest(tube="jobs")).tubes["jobs"].tasks


def taking(near: Client, far: Any, wire: Relay) -> Any:
    """A take in the session of the first, over the wire, whose reply does not come through."""
    far.Statistics(pb.StatisticsRequest(tube="jobs"), timeout=LIMIT)
    wire.flowing.clear()
    asked = far.Take.future(pb.TakeRequest(tube="jobs", n=2), metadata=near.session.metadata, timeout=LIMIT)
    until(lambda: counts(near)["taken"] == 2, "they should be taken")
    return asked


@pytest.mark.parametrize("how", ["cancelled", "broken"])
def test_a_take_that_ends_before_its_reply_has_gone_out(near: Client, far: Any, wire: Relay, how: str) -> None:
    asked = taking(near, far, wire)
    if how == "cancelled":
        asked.cancel()
    else:
        wire.close()
    until(lambda: counts(near)["ready"] == 2, "they should come back")
    wire.flowing.set()
    with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)):
        asked.result()
    assert [task.attempt for task in near.take("jobs", 2)] == [1, 1]


def test_a_take_whose_reply_comes_late_keeps_its_tasks(near: Client, far: Any, wire: Relay) -> None:
    asked = taking(near, far, wire)
    wire.flowing.set()
    tasks = asked.result().tasks
    assert [task.attempt for task in tasks] == [1, 1]
    assert near.ack("jobs", *tasks).done == 2


def test_clients_see_one_reply_as_before(near: Client) -> None:
    assert len(near.take("jobs", 5)) == 2
    assert near.take("jobs") == []
    with pytest.raises(grpc.RpcError) as refused:
        near.take("absent")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
