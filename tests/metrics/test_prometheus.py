"""What Prometheus is told."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from socketserver import BaseServer
from typing import Any

import pytest
from tests.metrics.scrape import Served, scrape
from tests.support.blocking import unwrap
from tests.support.postgres import Server, free_port
from tests.worker.bench import PATIENCE, Working, until, work
from tests.worker.conftest import on_both

import penstock
from penstock.metrics.prometheus import Collector, serve
from penstock.worker.tally import BUCKETS


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Endpoints and servers that the end of a test closes."""
    with ExitStack() as stack:
        yield stack


def served(q: Any, worker: Any = None, **options: Any) -> Served:
    return Served(Collector(unwrap(q), worker, **options))


@on_both
def test_tasks_and_events_of_every_tube_are_told(q: Any) -> None:
    jobs, empty = q.create_tube("jobs"), q.create_tube("empty.one")
    jobs.put_many([1, 2, 3, 4, 5])
    jobs.put(6, delay=1000)
    jobs.take().ack(keep=True)
    jobs.take().bury()
    jobs.take()
    told = served(q).scrape()
    assert told["penstock_up",] == 1
    states = {"ready": 2, "taken": 1, "delayed": 1, "buried": 1, "kept": 1}
    assert told.of("penstock_tasks") == {
        **{("jobs", state): number for state, number in states.items()},
        **{("empty.one", state): 0 for state in states},
    }
    events = {event: number for (tube, event), number in told.of("penstock_events_total").items() if tube == "jobs"}
    assert events == jobs.statistics().calls
    assert (events["put"], events["take"], events["ack"], events["bury"]) == (6, 3, 1, 1)
    assert told.of("penstock_done_total") == {("jobs",): 1, ("empty.one",): 0}
    assert empty.statistics().tasks["total"] == 0


def test_a_worker_is_told_with_its_runs(q: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @q.handler("jobs", max_attempts=1)
    def job(n: int) -> None:
        if n < 0:
            raise ValueError(n)

    @q.handler("slow")
    def slow(n: int) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    with Working(q, concurrency=7) as working:
        source = served(q, working.worker)
        job.put_many([1, 2, -3])
        slow.put(1)
        assert begun.wait(PATIENCE)
        until(lambda: sum(working.tally.of("jobs").buckets) == 3 and not working.tally.of("jobs").busy)
        told = source.scrape()
        assert told["penstock_slots",] == 7
        assert told.of("penstock_busy_slots") == {("jobs",): 0, ("slow",): 1}
        assert told.of("penstock_handler_runs_total") == {("jobs", "ack"): 2, ("jobs", "fail"): 1}
        assert told["penstock_handler_seconds_count", "jobs"] == 3
        assert told["penstock_handler_seconds_sum", "jobs"] > 0
        buckets = told.of("penstock_handler_seconds_bucket")
        mine = [buckets["jobs", bound] for bound in [*map(str, BUCKETS), "+Inf"]]
        assert mine == sorted(mine) and mine[-1] == 3
        assert told["penstock_lost_total",] == told["penstock_given_back_total",] == 0
        go_on.set()


def test_lanes_and_keys_are_never_labels(q: Any) -> None:
    @q.handler("jobs")
    def job(n: int) -> None: ...

    job.put(1, lane="a.example", key="mine")
    job.put(2, lane="b.example")
    worker = penstock.Worker(unwrap(q))
    worker.run(until_empty=True, signals=False)
    job.put(3, lane="c.example")
    told = served(q, worker).scrape()
    assert told.labels == {"tube", "state", "event", "outcome", "le"}
    assert "example" not in told.text and "mine" not in told.text


def test_names_follow_the_conventions(q: Any) -> None:
    @q.handler("jobs")
    def job(n: int) -> None: ...

    job.put(1)
    worker = penstock.Worker(unwrap(q))
    worker.run(until_empty=True, signals=False)
    told = served(q, worker).scrape()
    for family in told.families:
        assert re.fullmatch(r"penstock(_[a-z]+)+", family.name)
        assert family.documentation.endswith(".")
        total = all(sample.name.endswith("_total") for sample in family.samples)
        assert total == (family.type == "counter"), family.name
    assert {family.type for family in told.families} == {"counter", "gauge", "histogram"}


@on_both
def test_counters_begin_again_with_a_run(bench: Any) -> None:
    q = bench.connect()
    q.create_tube("jobs").put(1)
    assert served(q).scrape()["penstock_events_total", "jobs", "put"] == 1
    told = served(bench.new_run()).scrape()
    assert told["penstock_events_total", "jobs", "put"] == 0


def test_a_registry_asks_the_store_at_a_scrape_only() -> None:
    with penstock.connect("memory:") as q:
        source = served(q)
        q.create_tube("jobs").put(1)
        assert source.scrape()["penstock_tasks", "jobs", "ready"] == 1


# -- stores that do not answer -------------------------------------------------------------------------


def test_a_queue_that_is_closed_is_told_as_down_and_its_worker_still(q: Any) -> None:
    @q.handler("jobs")
    def job(n: int) -> None: ...

    job.put(1)
    worker = penstock.Worker(unwrap(q))
    worker.run(until_empty=True, signals=False)
    source = served(q, worker)
    q.close()
    told = source.scrape()
    assert told["penstock_up",] == 0
    assert told["penstock_handler_runs_total", "jobs", "ack"] == 1
    assert told.of("penstock_tasks") == {}


def test_a_store_that_hangs_is_told_as_down_and_then_as_up(caplog: pytest.LogCaptureFixture) -> None:
    with penstock.connect("memory:") as q:
        q.create_tube("jobs")
        source = served(q, patience=0.05)
        with q.transaction():  # nobody else can do anything until it ends
            assert source.scrape()["penstock_up",] == 0
            assert source.scrape()["penstock_up",] == 0
        until(lambda: source.scrape()["penstock_up",] == 1)
    said = [record.getMessage() for record in caplog.records if record.name == "penstock.metrics"]
    assert len([text for text in said if "cannot be read: no answer within 0.05 s" in text]) == 1


def test_a_server_that_is_down_does_not_break_a_scrape(opened: ExitStack) -> None:
    server = opened.enter_context(Server.start())
    q = opened.enter_context(penstock.connect(server.url(patience="30")))

    @q.handler("jobs")
    def job(n: int) -> None: ...

    job.put(1)
    worker = penstock.Worker(q)
    worker.run(until_empty=True, signals=False)
    source = served(q, worker)
    assert source.scrape()["penstock_up",] == 1
    # From now on nobody waits for the server; in the URL that would end calls on a slow machine too.
    connections: Any = q._engine.store._connections  # type: ignore[attr-defined]
    connections._place = connections._place._replace(patience=0.05)
    server.stop("immediate")
    told = source.scrape()
    assert told["penstock_up",] == 0
    assert told["penstock_handler_runs_total", "jobs", "ack"] == 1
    server.start_again()
    until(lambda: source.scrape()["penstock_up",] == 1)


# -- the endpoint --------------------------------------------------------------------------------------


@pytest.fixture
def closing_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoints look often whether they shall close."""
    monkeypatch.setattr(BaseServer.serve_forever, "__defaults__", (0.01,))


@pytest.mark.usefixtures("closing_soon")
def test_an_endpoint_can_be_closed_and_opened_again_on_its_port() -> None:
    with penstock.connect("memory:") as q:
        # One that the system gives to nobody who asks for any: it stays free while the endpoint is closed.
        port = free_port()
        endpoint = serve(q, port=port)
        assert endpoint.url == f"http://127.0.0.1:{port}/metrics"
        scrape(endpoint)
        endpoint.close()
        endpoint.close()
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
        with serve(q, port=port) as again:
            assert scrape(again)["penstock_up",] == 1


@pytest.mark.usefixtures("closing_soon")
def test_a_port_that_is_in_use_is_refused_with_the_next_step() -> None:
    with penstock.connect("memory:") as q, serve(q, port=0) as endpoint:
        told = rf"no metrics can be served on 127\.0\.0\.1:{endpoint.port} \(.*\); port 0 finds a free one"
        with pytest.raises(penstock.UsageError, match=told):
            serve(q, port=endpoint.port)
        with pytest.raises(penstock.UsageError, match="port 0 finds a free one"):
            serve(q, port=70_000)


@pytest.mark.usefixtures("closing_soon")
def test_scrapes_beside_each_other_are_all_answered() -> None:
    with penstock.connect("memory:") as q, serve(q, port=0) as endpoint:
        q.create_tube("jobs").put(1)
        told: list[float] = []
        threads = [
            threading.Thread(target=lambda: told.append(scrape(endpoint)["penstock_tasks", "jobs", "ready"]))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert told == [1] * 8


@on_both
def test_a_worker_that_is_measured_while_it_works_loses_nothing(q: Any) -> None:
    @q.handler("jobs")
    async def job(n: int) -> None: ...

    job.put_many(range(500))
    worker = penstock.Worker(unwrap(q))
    source = served(q, worker)
    running = threading.Thread(target=lambda: worker.run(until_empty=True, signals=False))
    running.start()
    seen = [0.0]
    while running.is_alive():
        seen.append(source.scrape().get(("penstock_handler_seconds_count", "jobs"), 0))
    running.join()
    assert seen == sorted(seen)
    assert source.scrape()["penstock_handler_runs_total", "jobs", "ack"] == 500
    assert work(q).ok == 0
