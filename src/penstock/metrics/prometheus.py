"""Metrics for Prometheus: the counters of a queue's store, and what a worker of this process does.

Lanes are never labels: there may be millions of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from types import TracebackType
from typing import Any

from penstock.metrics.missing import missing
from penstock.metrics.reading import Reader
from penstock.model.errors import UsageError
from penstock.model.stats import Statistics
from penstock.worker import Worker
from penstock.worker.tally import BUCKETS, TubeTally

try:
    import prometheus_client
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector as Collecting
except ImportError as error:
    raise missing("metrics for Prometheus need prometheus-client", error) from None

PATIENCE = 5.0
"""Seconds that a scrape waits for the store; Prometheus itself gives up after ten."""
STATES = ("ready", "taken", "delayed", "buried", "kept")
BOUNDS = [*map(str, BUCKETS), "+Inf"]


class Collector(Collecting):
    """What a queue, and a worker if it is given, tell at every scrape; for a registry of your own.

    >>> import penstock, prometheus_client
    >>> registry = prometheus_client.CollectorRegistry()
    >>> registry.register(Collector(penstock.connect("memory:")))
    >>> registry.get_sample_value("penstock_up")
    1
    """

    def __init__(self, queue: Any, worker: Worker | None = None, patience: float = PATIENCE) -> None:
        self._reader = Reader(queue)
        self._worker = worker
        self._patience = patience

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would ask the store to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        if self._worker is not None:
            yield from _of_worker(self._worker)
        seen = self._reader.read(self._patience)
        up = int(seen.statistics is not None)
        yield GaugeMetricFamily("penstock_up", "1 if the store has answered this scrape, else 0.", up)
        if seen.statistics is not None:
            yield from _of_store(seen.statistics, seen.oldest)


def _of_store(statistics: Mapping[str, Statistics], oldest: Mapping[str, float]) -> Iterator[Metric]:
    tasks = GaugeMetricFamily("penstock_tasks", "Tasks that are stored now, by state.", labels=("tube", "state"))
    done = CounterMetricFamily("penstock_done", "Tasks that became done in this run of the store.", labels=("tube",))
    events = CounterMetricFamily(
        "penstock_events", "What happened to tasks in this run of the store, by anybody.", labels=("tube", "event")
    )
    for tube, counters in statistics.items():
        for state in STATES:
            tasks.add_metric((tube, state), counters.tasks[state])
        done.add_metric((tube,), counters.tasks["done"])
        for event, number in counters.calls.items():
            events.add_metric((tube, event), number)
    ages = GaugeMetricFamily(
        "penstock_oldest_ready_seconds",
        "Seconds since the task that was put first, of those that are ready, became ready; 0 if none is. With "
        "priorities or lanes it need not be the next one.",
        labels=("tube",),
    )
    for tube, seconds in oldest.items():
        ages.add_metric((tube,), seconds)
    yield from (tasks, done, events, ages)


def _of_worker(worker: Worker) -> Iterator[Metric]:
    tally = worker.tally
    yield GaugeMetricFamily("penstock_slots", "Handlers that this process runs at once at most.", worker.concurrency)
    yield CounterMetricFamily(
        "penstock_lost", "Runs that were told that their task is no longer theirs: lost, or over the limit.", tally.lost
    )
    yield CounterMetricFamily(
        "penstock_given_back", "Tasks that were given back because the worker stopped.", tally.given_back
    )
    yield from _of_runs(dict(tally.tubes))


def _of_runs(tubes: Mapping[str, TubeTally]) -> Iterator[Metric]:
    busy = GaugeMetricFamily("penstock_busy_slots", "Handlers that run now in this process.", labels=("tube",))
    runs = CounterMetricFamily(
        "penstock_handler_runs", "Runs of handlers that have ended in this process.", labels=("tube", "outcome")
    )
    seconds = HistogramMetricFamily("penstock_handler_seconds", "How long handlers ran.", labels=("tube",))
    for tube, tally in tubes.items():
        busy.add_metric((tube,), tally.busy)
        for outcome, number in dict(tally.outcomes).items():
            runs.add_metric((tube, outcome), number)
        below = accumulate(tuple(tally.buckets))
        seconds.add_metric((tube,), list(zip(BOUNDS, below, strict=True)), tally.seconds)
    yield from (busy, runs, seconds)


class Endpoint:
    """Where Prometheus finds the metrics, until it is closed."""

    def __init__(self, server: Any, thread: Any, host: str) -> None:
        self._server = server
        self._thread = thread
        self.port: int = server.server_port
        """The one asked for, or the free one that was found for 0."""
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}/metrics"

    def __repr__(self) -> str:
        return f"<Endpoint {self.url}>"

    def close(self) -> None:
        """Answer no more. Closing twice does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(queue: Any, worker: Worker | None = None, port: int = 9464, host: str = "127.0.0.1") -> Endpoint:
    """Answer Prometheus on a port of this process; 0 is a free one, host "0.0.0.0" is for other machines.

    >>> import penstock, urllib.request
    >>> q = penstock.connect("memory:")
    >>> with serve(q, port=0) as endpoint:
    ...     "penstock_up 1.0" in urllib.request.urlopen(endpoint.url).read().decode()
    True
    """
    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector(queue, worker))
    try:
        server, thread = prometheus_client.start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise UsageError(f"no metrics can be served on {host}:{port} ({error}); port 0 finds a free one") from None
    return Endpoint(server, thread, host)
