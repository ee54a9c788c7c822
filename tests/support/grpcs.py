"""Clients of gRPC in tests: the generated stubs, as other languages use them."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from tests.support.servers import Running

from penstock.server import grpc_door
from penstock.server.settings import Limits
from penstock.wire._generated import penstock_pb2 as pb
from penstock.wire._generated import penstock_pb2_grpc

PATIENCE = 90
"""Seconds after which a call that should have been answered fails its test."""
grpc_door.CLOSING_SECONDS = float(PATIENCE)
FOR_EVER = 101 * 365 * 24 * 3600 * 1_000_000
"""Microseconds: more than a century."""


class Brief(float):
    """Seconds in which clients go over to another process: a long time, but they are sent there in a moment."""

    def __truediv__(self, other: object) -> float:
        return 0.05


GOING = Brief(PATIENCE)


class Feed:
    """The client's side of a stream: what is given to it is sent, until it is ended."""

    def __init__(self, *first: Any) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for item in first:
            self.send(item)

    def send(self, item: Any) -> None:
        self._items.put(item)

    def end(self) -> None:
        self._items.put(None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items.get, None)


class Stream:
    """A Session stream that was opened."""

    def __init__(self, stub: Any, metadata: Any = (), **options: Any) -> None:
        self.feed = Feed(pb.SessionRequest(open=pb.SessionRequest.Open(**options)))
        self.replies = stub.Session(iter(self.feed), metadata=metadata)
        self.opened = next(self.replies).opened

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("penstock-session", self.opened.uuid),)

    def keep_alive(self) -> list[int]:
        self.feed.send(pb.SessionRequest(keep_alive=pb.SessionRequest.KeepAlive()))
        return list(next(self.replies).kept.cancelled)

    def close(self) -> None:
        """End it well, and wait until the server has ended it too."""
        self.feed.end()
        assert list(self.replies) == []

    def cut(self) -> None:
        self.feed.end()
        self.replies.cancel()


class Client:
    """A channel with stubs; every verb is a method that takes the fields of its request."""

    def __init__(self, url: str, credentials: Any = None) -> None:
        address = url.removeprefix("grpc://")
        # Channels of one process would share a connection otherwise.
        options = [("grpc.use_local_subchannel_pool", 1)]
        if credentials is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, credentials, options)
        self.stub = penstock_pb2_grpc.QueueStub(self.channel)
        self.session: Stream | None = None

    def open(self, **options: Any) -> Stream:
        self.session = Stream(self.stub, **options)
        return self.session

    def call(self, verb: str, request: Any, timeout: float = PATIENCE, metadata: Any = None) -> Any:
        return getattr(self.stub, verb)(request, timeout=timeout, metadata=self._metadata(metadata))

    def waiting(self, tube: str, metadata: Any = None) -> Any:
        """A take that waits for ever, as a future."""
        request = pb.TakeRequest(tube=tube, timeout_us=FOR_EVER)
        return self.stub.Take.future(request, metadata=self._metadata(metadata), timeout=PATIENCE)

    def _metadata(self, given: Any) -> Any:
        if given is not None:
            return given
        return self.session.metadata if self.session else ()

    # -- short forms -------------------------------------------------------------------------------

    def create(self, name: str, kind: str = "standard", **options: Any) -> Any:
        request = pb.CreateTubeRequest(name=name, kind=kind, options=pb.TubeOptions(**options))
        return self.call("CreateTube", request)

    def put(self, tube: str, *texts: str, **options: Any) -> list[Any]:
        drafts = [pb.Draft(json=text, **options) for text in texts]
        return list(self.call("Put", pb.PutRequest(tube=tube, drafts=drafts)).results)

    def take(self, tube: str, n: int = 1, **options: Any) -> list[Any]:
        return list(self.call("Take", pb.TakeRequest(tube=tube, n=n, **options)).tasks)

    def ack(self, tube: str, *tasks: Any) -> Any:
        items = [pb.AckRequest.Finish(id=task.id, token=task.token) for task in tasks]
        return self.call("Ack", pb.AckRequest(tube=tube, items=items))

    def close(self) -> None:
        if self.session is not None:
            self.session.feed.end()
        self.channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def limited(**limits: Any) -> Iterator[tuple[Running, Client]]:
    """A server with limits, and a client that has made a tube, `jobs`."""
    with (
        Running("memory:", port=None, grpc_port=0, limits=Limits(**limits)) as server,
        Client(server.grpc_url) as client,
    ):
        client.create("jobs")
        yield server, client


def number(value: int) -> Any:
    return pb.Id(number=value)


def lease(task: Any) -> Any:
    return pb.Lease(id=task.id, token=task.token)
