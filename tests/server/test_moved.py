"""An engine that connects anew before the end of its old connection was noticed."""

from __future__ import annotations

import gc
import uuid
import weakref

import grpc
import pytest
from tests.server import raw
from tests.support.grpcs import PATIENCE, Client, Feed
from tests.support.servers import Running
from tests.worker.bench import until

from penstock.model import ops
from penstock.model.session import Session
from penstock.wire import codec, talk
from penstock.wire._generated import penstock_pb2 as pb

HELLO = codec.pack(talk.Hello(codec.VERSION, "far", None))
WAIT = talk.encode_wait(ops.Take("jobs", 1, Session(str(uuid.uuid4()), "far", 30_000_000, direct=False)), None, [])


def test_the_old_connection_ends_and_does_not_keep_the_server() -> None:
    with Running("memory:") as server, raw.Raw(server.server.port()) as old, raw.Raw(server.server.port()) as new:
        old.call("queue.create_tube", "jobs", "fifo")
        old.call("penstock.hello", -1, 0, HELLO)
        old.send(raw.call(2, "penstock.wait", 1, 0, WAIT))
        new.call("penstock.hello", -1, 0, HELLO)
        assert old.is_closed()
        server.stop()
        assert new.is_closed()


def test_an_old_stream_is_told_why_it_ends() -> None:
    with Running("memory:", port=None, grpc_port=0) as server:
        client = Client(server.grpc_url)
        first, second = (Feed(pb.Frame(number=-1, kind="hello", payload=HELLO)) for _ in range(2))
        old = client.stub.Engine(iter(first), timeout=PATIENCE)
        assert not next(old).failed
        new = client.stub.Engine(iter(second), timeout=PATIENCE)
        assert not next(new).failed
        with pytest.raises(grpc.RpcError, match="connected anew") as ended:
            next(old)
        assert ended.value.code() is grpc.StatusCode.ABORTED
        client.close()


def test_nothing_of_a_server_is_left_when_it_has_ended() -> None:
    with Running("memory:") as server:
        core = weakref.ref(server.server.core)
        with raw.Raw(server.server.port()) as client:
            client.call("penstock.hello", -1, 0, HELLO)
    del server

    def gone() -> bool:
        gc.collect()
        return core() is None

    until(gone)  # the loop's thread may be in the middle of its last steps
