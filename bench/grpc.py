"""Batches over gRPC: a server in a process of its own, and clients that use the generated stubs."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter, process_time
from typing import Any

from bench import ours, phases
from bench.cell import Bound, Cell, Figures, Subject
from bench.phases import payload
from bench.scale import Scale
from bench.served import cpu_us, served

SECTION = "over the network: gRPC, batches of 100, relaxed"
FIGURES = ("server us", "client us", *phases.FIGURES)
SIZE = 100

CLIENTS = 4
"""Channels, each with a thread of this process: while one reads, others wait for the server."""


class Client:
    """A channel and its session."""

    def __init__(self, address: str) -> None:
        import grpc

        from penstock.wire._generated import penstock_pb2 as pb
        from penstock.wire._generated import penstock_pb2_grpc

        self.pb = pb
        self.channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self.stub = penstock_pb2_grpc.QueueStub(self.channel)  # type: ignore[no-untyped-call]
        self.demands: SimpleQueue[Any] = SimpleQueue()
        self.demands.put(pb.SessionRequest(open=pb.SessionRequest.Open()))
        self.replies = self.stub.Session(iter(self.demands.get, None))
        self.metadata = (("penstock-session", next(self.replies).opened.uuid),)

    def create(self) -> None:
        """The tube that is measured."""
        self.stub.CreateTube(self.pb.CreateTubeRequest(name="bench", kind="fifo"))

    def put(self, first: int, size: int) -> None:
        """A batch of tasks."""
        pb = self.pb
        request = pb.PutRequest(tube="bench")
        add = request.drafts.add
        for n in range(first, first + size):
            add(json=json.dumps(payload(n)))
        if len(self.stub.Put(request).results) != size:
            raise AssertionError("not every task was put")

    def finish(self, size: int) -> int:
        """Take a batch, look at its data, and ack it."""
        pb = self.pb
        tasks = self.stub.Take(pb.TakeRequest(tube="bench", n=size), metadata=self.metadata).tasks
        request = pb.AckRequest(tube="bench")
        add = request.items.add
        for task in tasks:
            json.loads(task.json)
            add(id=task.id, token=task.token)
        done: int = self.stub.Ack(request, metadata=self.metadata).done
        return done

    def close(self) -> None:
        """End the session and the channel."""
        self.demands.put(None)
        for _ in self.replies:
            pass
        self.channel.close()


def batches(folder: Path, size: int, count: int, limit: float) -> Figures:
    """Put, take and ack in batches of `size`, by several clients at once."""
    with served(folder, "grpc") as server, ExitStack() as stack:
        clients = [Client(server.address) for _ in range(CLIENTS)]
        for client in clients:
            stack.callback(client.close)
        clients[0].create()
        for client in clients:
            client.put(0, size)
            client.finish(size)
        each = count // size // CLIENTS

        def putting(client: Client) -> None:
            for number in range(each):
                client.put(number * size, size)

        def finishing(client: Client) -> None:
            left = each * size
            while left > 0:
                left -= client.finish(min(size, left))

        before = cpu_us(server.pid), process_time()
        rates = [_together(work, clients, each * size, limit) for work in (putting, finishing)]
        tasks = each * size * CLIENTS
        return {
            "server us": (cpu_us(server.pid) - before[0]) / tasks,
            "client us": (process_time() - before[1]) * 1e6 / tasks,
            **phases.figures(*rates),
        }


def _together(work: Any, clients: list[Client], each: int, limit: float) -> float:
    gate = threading.Barrier(len(clients) + 1)

    def share(client: Client) -> None:
        gate.wait(limit)
        work(client)

    with ThreadPoolExecutor(len(clients)) as pool:
        futures = [pool.submit(share, client) for client in clients]
        gate.wait(limit)
        start = perf_counter()
        for future in futures:
            future.result(limit)
        return each * len(clients) / (perf_counter() - start)


def subjects(stack: ExitStack, folder: Path, scale: Scale) -> list[Subject]:
    """Penstock alone: nobody else has these verbs."""

    def measure() -> Figures:
        return batches(folder, SIZE, scale.batched, scale.limit)

    return [Subject(ours.NAME, measure)]


CELLS = (Cell("grpc-batch", SECTION, subjects, FIGURES, (Bound("cycle/s", 40_000),), "alone"),)
NOTES = {
    "gRPC": "server us, client us: CPU time of the process for a cycle, all threads together; "
    f"{CLIENTS} clients are threads of one Python process with the generated stubs, and decode the data",
}
