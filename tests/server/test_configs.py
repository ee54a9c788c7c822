"""What one door does to tubes the others know at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.server.raw import Raw, call
from tests.support.grpcs import Client
from tests.support.servers import Running, run

import penstock
from penstock.model.tube import KINDS, new_tube
from penstock.server.configs import Configs
from penstock.wire._generated import penstock_pb2 as pb


@pytest.fixture
def server() -> Iterator[Running]:
    with Running("memory:", grpc_port=0) as running:
        yield running


def by_calls(server: Running) -> None:
    with penstock.connect(server.url) as q:
        q.tube("mail").drop(force=True)
        q.create_tube("mail", payload="bytes")


def by_grpc(server: Running) -> None:
    client = Client(server.grpc_url)
    client.call("DropTube", pb.DropTubeRequest(tube="mail", force=True))
    client.create("mail", payload="bytes")
    client.close()


@pytest.mark.parametrize("change", [by_calls, by_grpc])
def test_a_tube_made_anew_is_another_one_at_once(server: Running, change: Callable[[Running], None]) -> None:
    with Raw(server.server.port()) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        raw.call("queue.tube.mail:put", {"a": 1})
        change(server)
        [[_, state, data]] = raw.call("queue.tube.mail:put", b"\xff")
    assert (state, data) == ("r", b"\xff")


def test_calls_behind_one_that_asks_for_a_tube_share_a_transaction(server: Running) -> None:
    with Raw(server.server.port()) as raw:
        raw.call("queue.create_tube", "mail", "fifo")
        run(_forget(server))
        before = server.server.core.tally.groups
        raw.send(b"".join(call(number, "queue.tube.mail:put", number) for number in range(200)))
        assert [raw.answer().data[0][0] for _ in range(200)] == list(range(1, 201))
        assert server.server.core.tally.groups - before < 20


async def _forget(server: Running) -> None:
    server.server.core.configs.forget()


def test_what_was_asked_for_before_a_change_is_not_believed_after_it() -> None:
    configs = Configs()
    asked = configs.changes
    configs.forget()
    configs.add(new_tube("mail", KINDS["fifo"], False, {}), asked)
    assert configs.known == {}
    configs.add(new_tube("mail", KINDS["fifo"], False, {}), configs.changes)
    assert list(configs.known) == ["mail"]
