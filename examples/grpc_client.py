"""A worker without the library: gRPC, the file penstock.proto, and nothing else of Penstock.

Other languages make stubs of the same file and do the same. Needs grpcio and grpcio-tools.

    penstock serve tasks.db --grpc-port 3302
    python examples/grpc_client.py 127.0.0.1:3302 src/penstock/wire
"""

from __future__ import annotations

import json
import queue
import sys
from collections.abc import Iterator
from typing import Any

import grpc

FINISH = 10
"""Tasks that this worker holds at once, at most."""


class Sending:
    """What a client sends on a stream, until it says that this is all."""

    def __init__(self, first: Any) -> None:
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.send(first)

    def send(self, message: Any) -> None:
        self._messages.put(message)

    def end(self) -> None:
        self._messages.put(None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._messages.get, None)


class Session:
    """Open as long as the worker lives. If the stream breaks, open another with the uuid: the tasks are still yours."""

    def __init__(self, stub: Any, pb: Any) -> None:
        self._sending = Sending(pb.SessionRequest(open=pb.SessionRequest.Open(session_ttl_us=30_000_000)))
        self._replies = stub.Session(iter(self._sending))
        self.metadata = (("penstock-session", next(self._replies).opened.uuid),)

    def close(self) -> None:
        self._sending.end()
        for _ in self._replies:
            pass


def work(stub: Any, pb: Any, tube: str) -> None:
    """Take tasks as they come, do them, and ack them in batches, until none is left."""
    session = Session(stub, pb)
    demands = Sending(pb.TakeDemand(tube=tube, credit=FINISH, drain=True))
    for reply in stub.TakeStream(iter(demands), metadata=session.metadata):
        demands.send(pb.TakeDemand(read=reply.number))  # arrived: if the stream breaks now, these tasks are still ours
        done = pb.AckRequest(tube=tube)
        for task in reply.tasks:
            print("did", json.loads(task.json))
            done.items.add(id=task.id, token=task.token)
        if done.items:
            stub.Ack(done, metadata=session.metadata)
            demands.send(pb.TakeDemand(credit=len(done.items)))
    demands.end()
    session.close()


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    address, folder = sys.argv[1:]
    sys.path.insert(0, folder)
    pb, services = grpc.protos_and_services("penstock.proto")
    with grpc.insecure_channel(address) as channel:
        stub = services.QueueStub(channel)
        stub.CreateTube(pb.CreateTubeRequest(name="mail", if_not_exists=True))
        drafts = [pb.Draft(json=json.dumps({"to": f"{name}@example.org"})) for name in ("ann", "bob", "cat")]
        for result in stub.Put(pb.PutRequest(tube="mail", drafts=drafts)).results:
            print("put", result.id.number)
        try:
            stub.Peek(pb.TaskName(tube="mail", id=pb.Id(number=1000)))
        except grpc.RpcError as error:
            print(error.code().name, dict(error.trailing_metadata())["penstock-code"])
        work(stub, pb, "mail")


if __name__ == "__main__":
    main()
