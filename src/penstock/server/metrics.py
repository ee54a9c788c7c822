"""What a server tells Prometheus: the counters of its store, and its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from penstock.metrics import prometheus  # raises UsageError if the package is missing
from penstock.server.server import DOORS, Server

# isort: split
import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Metrics:
    """All metrics of a server, as text."""

    KIND = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, server: Server) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        self._registry.register(prometheus.Collector(SimpleNamespace(_engine=server.core.engine)))
        self._registry.register(_Own(server))

    def text(self) -> str:
        """As they are now. The store may take its time, so this is for a thread."""
        return prometheus_client.generate_latest(self._registry).decode()


class _Own(Collector):
    def __init__(self, server: Server) -> None:
        self._server = server

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        core = self._server.core
        tally = core.tally
        connections = GaugeMetricFamily("penstock_server_connections", "Clients connected now.", labels=("door",))
        for name, door in self._server.doors.items():
            connections.add_metric((DOORS[name].label,), len(getattr(door, "connections", ())))
        yield connections
        waiting: Any = core.engine.store.waiters
        yield GaugeMetricFamily(
            "penstock_server_waiting", "Calls that wait for a task, for room or for an end.", waiting
        )
        yield CounterMetricFamily("penstock_server_accepted", "Connections that were accepted.", tally.accepted)
        yield CounterMetricFamily(
            "penstock_server_received_bytes", "Bytes that clients have sent, but for gRPC's.", tally.received
        )
        yield CounterMetricFamily(
            "penstock_server_sent_bytes", "Bytes that were sent to clients, but for gRPC's.", tally.sent
        )
        yield CounterMetricFamily("penstock_server_groups", "Transactions that ops have shared.", tally.groups)
        yield CounterMetricFamily("penstock_server_grouped_ops", "Ops in them.", tally.grouped)
        requests = CounterMetricFamily("penstock_server_ops", "Ops that were performed, by verb.", labels=("verb",))
        for op, number in (tally.performed + tally.waits).items():
            requests.add_metric((re.sub(r"(?<=.)([A-Z])", r"_\1", op.__name__).lower(),), number)
        yield requests
