"""A client that asks for much at once, and reads nothing of it, makes the server hold little of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.server.raw import Raw, call
from tests.support import grpcs
from tests.support.postgres import until
from tests.support.servers import Running, run

import penstock
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.session import new_session
from penstock.model.task import Draft
from penstock.model.tube import KINDS, new_tube
from penstock.server.settings import Limits
from penstock.wire import codec, talk
from penstock.wire._generated import penstock_pb2 as pb

TASKS = 600
SIZE = 50_000
LIMITS = Limits(unsent=4 << 20)
ON_THE_WAY = 8 << 20
"""Bytes that sockets and gRPC's windows may hold."""


def at(in_every_run: str) -> Any:
    """Performed in the loop, or beside it: one way for each protocol, both in `make test-all`."""
    ways = [
        pytest.param(way, marks=() if way == in_every_run else pytest.mark.exhaustive) for way in ("relaxed", "strict")
    ]
    return pytest.mark.parametrize("server", ways, indirect=True)


@pytest.fixture
def server(request: Any) -> Iterator[Running]:
    """Has tasks of much more than a client may leave unread."""
    with Running("memory:", grpc_port=0, durability=request.param, limits=LIMITS) as running:
        core = running.server.core
        run(core.execute(ops.CreateTube(new_tube("mail", KINDS["fifo"], False, {}))))
        run(core.execute(ops.Put("mail", (Draft(f'"{"x" * SIZE}"'),) * TASKS)))
        yield running


def settled(q: Any) -> int:
    """How many are taken once the server does no more."""
    seen: list[int] = [-1]

    def look() -> bool:
        seen.append(q.tube("mail").statistics().tasks["taken"])
        return seen[-1] > 0 and len(seen) > 20 and len(set(seen[-20:])) == 1

    until(look, "it still takes")
    return seen[-1]


def check(server: Running, answers: Iterator[Any]) -> None:
    most = LIMITS.unsent + LIMITS.pipeline * SIZE + ON_THE_WAY
    with penstock.connect(server.url) as q:
        assert settled(q) * SIZE < most < TASKS * SIZE
        assert sum(1 for _ in answers) == TASKS
        assert q.tube("mail").statistics().tasks["taken"] == TASKS


@at("strict")
def test_takes_of_tarantool_queue(server: Running) -> None:
    with Raw(server.server.port()) as raw:
        raw.send(b"".join(call(number, "queue.tube.mail:take", 0) for number in range(TASKS)))
        check(server, (raw.answer() for _ in range(TASKS)))


def takes() -> list[bytes]:
    session = new_session(3600 * SECOND)  # nobody keeps it alive
    return [codec.encode_ops([ops.Take("mail", 1, session)]) for _ in range(TASKS)]


HELLO = codec.pack(talk.Hello(codec.VERSION, "greedy", None))


@at("relaxed")
def test_takes_of_the_library(server: Running) -> None:
    with Raw(server.server.port()) as raw:
        raw.ask(call(1, "penstock.hello", -1, 0, HELLO))
        raw.send(b"".join(call(number, "penstock.do", number, 0, op) for number, op in enumerate(takes(), 2)))
        check(server, (raw.answer() for _ in range(TASKS)))


@at("relaxed")
def test_takes_of_the_library_over_grpc(server: Running) -> None:
    with grpcs.Client(server.grpc_url) as client:
        feed = grpcs.Feed(pb.Frame(number=-1, kind="hello", payload=HELLO))
        for number, op in enumerate(takes(), 1):
            feed.send(pb.Frame(number=number, kind="do", payload=op))
        frames = client.stub.Engine(iter(feed))
        next(frames)
        check(server, (next(frames) for _ in range(TASKS)))
        feed.end()
