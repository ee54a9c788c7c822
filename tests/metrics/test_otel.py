"""Spans from put to run."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from tests.support.blocking import unwrap
from tests.support.engines import ENGINES, Bench
from tests.support.shop import shop_on
from tests.worker.bench import PATIENCE, Later, Working, until, work
from tests.worker.conftest import on_both

import penstock
from penstock.metrics import otel
from penstock.testing import ManualClock


class Spans:
    """A provider of tracers, and what it was given."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans = Spans()
    yield spans
    spans.provider.shutdown()


@pytest.fixture
def traced(q: Any, spans: Spans) -> Any:
    """A queue whose puts and runs have spans."""
    otel.instrument(unwrap(q), spans.provider)
    return q


def linked(run: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in run.links]


def place(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    return context.trace_id, context.span_id


# -- puts and runs -------------------------------------------------------------------------------------


@on_both
def test_a_run_is_linked_to_its_put_and_is_no_part_of_it(traced: Any, spans: Spans) -> None:
    @traced.handler("mails")
    def send(address: str) -> None: ...

    task = send.put("ada@example.org", lane="example.org", key="welcome")
    work(traced)
    put, run = spans.one("put mails"), spans.one("run mails")
    assert (put.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert linked(run) == [place(put)] and run.parent is None
    assert run.get_span_context().trace_id != put.get_span_context().trace_id
    shared = {"messaging.system": "penstock", "messaging.destination.name": "mails"}
    assert dict(put.attributes) == {
        **shared,
        "messaging.operation.name": "put",
        "messaging.operation.type": "send",
        "messaging.message.id": str(task.id),
        "penstock.outcome": "new",
    }
    assert dict(run.attributes) == {
        **shared,
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.message.id": str(task.id),
        "penstock.attempt": 1,
        "penstock.lane": "example.org",
        "penstock.key": "welcome",
    }
    assert put.status.status_code is run.status.status_code is StatusCode.UNSET


@on_both
def test_a_batch_is_one_span_that_all_its_runs_are_linked_to(traced: Any, spans: Spans) -> None:
    @traced.handler("jobs")
    async def job(n: int) -> None: ...

    job.put_many([1, 2, 3])
    work(traced)
    put = spans.one("put jobs")
    assert put.attributes["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in put.attributes
    assert [linked(run) for run in spans.named("run jobs")] == [[place(put)]] * 3


def test_a_put_inside_a_span_of_the_programs_is_part_of_it(spans: Spans) -> None:
    with penstock.connect("memory:") as q:
        otel.instrument(q, spans.provider)
        with spans.tracer.start_as_current_span("request"):
            q.create_tube("jobs").put(1)
    assert spans.one("put jobs").parent.span_id == spans.one("request").get_span_context().span_id


@pytest.mark.parametrize("colour", ["thread", "loop"])
def test_what_a_handler_does_is_part_of_its_run(traced: Any, spans: Spans, colour: str) -> None:
    next_tube = traced.create_tube("next")
    if colour == "thread":

        @traced.handler("first")
        def first(n: int) -> None:
            with spans.tracer.start_as_current_span("inside"):
                next_tube.put(n)
    else:

        @traced.handler("first")
        async def first(n: int) -> None:
            with spans.tracer.start_as_current_span("inside"):
                await asyncio.sleep(0)

    first.put(1)
    work(traced)
    run, inside = spans.one("run first"), spans.one("inside")
    assert inside.parent.span_id == run.get_span_context().span_id
    if colour == "thread" and isinstance(unwrap(traced), penstock.Queue):
        assert spans.one("put next").parent.span_id == inside.get_span_context().span_id


def test_every_attempt_is_a_run_that_is_linked_to_the_put(traced: Any, spans: Spans) -> None:
    @traced.handler("jobs", max_attempts=3, retry=0)
    def job(n: int, run: penstock.Run) -> None:
        if run.attempt < 3:
            raise OSError("down")

    job.put(1)
    work(traced)
    put, runs = spans.one("put jobs"), spans.named("run jobs")
    assert [run.attributes["penstock.attempt"] for run in runs] == [1, 2, 3]
    assert [run.status.status_code for run in runs] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert all(linked(run) == [place(put)] for run in runs)


def test_a_run_does_not_become_part_of_what_started_the_worker(spans: Spans) -> None:
    with penstock.connect("memory:") as q:
        otel.instrument(q, spans.provider)

        @q.handler("jobs")
        async def job(n: int) -> None: ...

        job.put_many([1, 2])
        with spans.tracer.start_as_current_span("program"):
            work(q)
    assert [run.parent for run in spans.named("run jobs")] == [None, None]


# -- how runs end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "ending"),
    [(ValueError("no luck"), "fail"), (penstock.Abort("never"), "abort"), (penstock.Bury("look"), "bury")],
)
def test_an_error_is_recorded(error: Exception, ending: str, spans: Spans) -> None:
    with penstock.connect("memory:") as q:
        otel.instrument(q, spans.provider)

        @q.handler("jobs", max_attempts=1)
        def job(n: int) -> None:
            raise error

        task = job.put(1)
        work(q)
        assert (q.tube("jobs").peek(task.id).error or "").count("metrics/otel.py") == 0
    run = spans.one("run jobs")
    name = type(error).__name__
    assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, f"{name}: {error}")
    assert (run.attributes["penstock.ending"], run.attributes["error.type"]) == (ending, name)
    (event,) = run.events
    assert event.name == "exception" and event.attributes["exception.message"] == str(error)


def test_a_release_is_no_error(spans: Spans) -> None:
    with penstock.connect("memory:") as q:
        otel.instrument(q, spans.provider)

        @q.handler("jobs")
        def job(n: int, run: penstock.Run) -> None:
            if run.attempt == 1:
                raise penstock.Release

        job.put(1)
        work(q)
    first, second = spans.named("run jobs")
    assert first.attributes["penstock.ending"] == "release"
    assert first.status.status_code is second.status.status_code is StatusCode.UNSET
    assert first.events == second.events == ()


def test_a_run_whose_task_is_taken_away_is_an_error(spans: Spans, later: Later) -> None:
    with penstock.connect("memory:") as q:
        otel.instrument(q, spans.provider)
        begun = threading.Event()

        @q.handler("jobs", attempt_limit=600, max_attempts=1)
        async def job(n: int) -> None:
            begun.set()
            await asyncio.Event().wait()

        job.put(1)
        with Working(q):
            assert begun.wait(PATIENCE)
            later(600)
            until(lambda: spans.named("run jobs"))
    run = spans.one("run jobs")
    assert (run.attributes["penstock.stopped"], run.status.status_code) == ("late", StatusCode.ERROR)


# -- puts ----------------------------------------------------------------------------------------------


def test_a_refused_put_is_an_error(traced: Any, spans: Spans) -> None:
    jobs = traced.create_tube("jobs", capacity=2)
    jobs.put(1, key="mine")
    with pytest.raises(penstock.DuplicateKey):
        jobs.put(2, key="mine")
    results = jobs.put_many([3, 4], errors="return")
    assert isinstance(results[1], penstock.TubeFull)
    first, second, batch = spans.named("put jobs")
    assert first.status.status_code is StatusCode.UNSET
    assert (second.status.status_code, second.attributes["error.type"]) == (StatusCode.ERROR, "DuplicateKey")
    assert (batch.attributes["penstock.refused"], batch.attributes["error.type"]) == (1, "TubeFull")


def test_a_put_that_waits_for_room_is_one_span(traced: Any, spans: Spans) -> None:
    jobs = traced.create_tube("jobs", capacity=1)
    jobs.put(1)
    with pytest.raises(penstock.TubeFull):
        jobs.put(2, timeout=0.01)
    jobs.take().ack()
    assert jobs.put(3, timeout=PATIENCE).outcome == "new"
    assert [span.status.status_code for span in spans.named("put jobs")] == [
        *(StatusCode.UNSET, StatusCode.ERROR, StatusCode.UNSET)
    ]
    assert otel.links(jobs.take())[0].context.span_id == place(spans.named("put jobs")[2])[1]


@on_both
def test_puts_in_a_transaction_have_spans(traced: Any, spans: Spans) -> None:
    jobs = traced.create_tube("jobs")
    with traced.transaction() as tx:
        jobs.put(1, transaction=tx)
        jobs.put_many([2, 3], transaction=tx)
    assert len(spans.named("put jobs")) == 2
    taken = jobs.take_many(3)
    assert [len(otel.links(task)) for task in taken] == [1, 1, 1]
    with traced.transaction() as tx:
        taken[0].ack(transaction=tx)
    assert jobs.ack_many(taken)[0].state == "done"


@on_both
def test_a_put_that_finds_a_task_leaves_its_link_alone(traced: Any, spans: Spans) -> None:
    jobs = traced.create_tube("jobs")
    jobs.put(1, key="k")
    assert jobs.put(2, key="k", on_conflict="ignore").outcome == "existing"
    first, second = spans.named("put jobs")
    assert second.attributes["penstock.outcome"] == "existing"
    assert otel.links(jobs.peek(1))[0].context.span_id == place(first)[1]
    jobs.put(3, key="k", on_conflict="replace")
    assert otel.links(jobs.peek(1))[0].context.span_id == place(spans.named("put jobs")[2])[1]


def test_a_put_id_of_the_callers_stays_and_makes_no_link(traced: Any, spans: Spans) -> None:
    @traced.handler("jobs")
    def job(n: int) -> None: ...

    assert job.put(1, put_id="order 7").outcome == "new"
    assert job.put(1, put_id="order 7").outcome == "existing"
    job.put(2, put_id="trace:nonsense")
    work(traced)
    assert [run.links for run in spans.named("run jobs")] == [(), ()]


def test_a_load_is_a_span_and_makes_no_links(traced: Any, spans: Spans) -> None:
    @traced.handler("jobs")
    async def job(n: int) -> None: ...

    traced.create_tube("jobs").load(range(5), chunk=3)
    work(traced)
    assert [span.attributes["messaging.batch.message_count"] for span in spans.named("put jobs")] == [3, 2]
    assert [run.links for run in spans.named("run jobs")] == [()] * 5


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine.durable], ids=lambda engine: engine.name)
def test_tables_of_the_users_have_links_too(engine: Any, tmp_path: Path, spans: Spans) -> None:
    bench = Bench(engine, "blocking", tmp_path, ManualClock())
    shop = shop_on(bench)
    otel.instrument(shop.q, spans.provider)
    orders = shop.orders()
    orders.put({"item": "tea"})
    assert otel.links(orders.take())[0].context.span_id == place(spans.one("put orders"))[1]
    shop.close()
    bench.close()


@on_both
def test_tasks_taken_by_hand_know_their_link(traced: Any, spans: Spans) -> None:
    jobs = traced.create_tube("jobs")
    jobs.put(1)
    (link,) = otel.links(jobs.take())
    assert (link.context.trace_id, link.context.span_id) == place(spans.one("put jobs"))
    assert link.context.is_remote


# -- nothing is lost -----------------------------------------------------------------------------------


def test_span_ids_that_come_again_swallow_no_put(traced: Any) -> None:
    jobs = traced.create_tube("jobs")
    for _ in range(3):
        random.seed(42)  # as programs do that want the same numbers at every start
        assert jobs.put(1).outcome == "new"
    assert jobs.statistics().tasks["ready"] == 3


@pytest.mark.parametrize("provider", ["none", "off"])
def test_without_spans_that_are_recorded_puts_are_as_always(provider: str) -> None:
    providers = {"none": trace.NoOpTracerProvider(), "off": TracerProvider(sampler=ALWAYS_OFF)}
    parent = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))
    with penstock.connect("memory:") as q, trace.use_span(parent):
        otel.instrument(q, providers[provider])
        jobs = q.create_tube("jobs")
        assert [jobs.put(n).outcome for n in range(3)] == ["new"] * 3
        assert [record.put_id for record in (task._record for task in jobs.tasks())] == [None] * 3
        q.handler("jobs")(lambda n: None)
        assert work(q).ok == 3


# -- on and off ----------------------------------------------------------------------------------------


def test_tubes_that_were_made_before_have_spans_too(q: Any, spans: Spans) -> None:
    jobs = q.create_tube("jobs")
    otel.instrument(unwrap(q), spans.provider)
    jobs.put(1)
    assert spans.one("put jobs")


def test_instrumenting_twice_makes_one_span_and_the_last_provider_counts(q: Any, spans: Spans) -> None:
    first = Spans()
    otel.instrument(unwrap(q), first.provider)
    otel.instrument(unwrap(q), spans.provider)

    @q.handler("jobs")
    def job(n: int) -> None: ...

    job.put(1)
    work(q)
    assert first.all == ()
    assert sorted(span.name for span in spans.all) == ["put jobs", "run jobs"]


def test_without_instruments_everything_is_as_before(q: Any, spans: Spans) -> None:
    otel.instrument(unwrap(q), spans.provider)
    otel.uninstrument(unwrap(q))
    otel.uninstrument(unwrap(q))

    @q.handler("jobs")
    def job(n: int) -> None: ...

    job.put(1)
    assert work(q).ok == 1
    assert spans.all == () and unwrap(q).handlers.middleware == []


def test_middleware_of_the_programs_runs_inside_the_span(traced: Any, spans: Spans) -> None:
    seen: list[int] = []

    @unwrap(traced).middleware
    async def look(run: Any, go_on: Any) -> Any:
        seen.append(trace.get_current_span().get_span_context().span_id)
        return await go_on()

    @traced.handler("jobs")
    def job(n: int) -> None: ...

    job.put(1)
    work(traced)
    assert seen == [place(spans.one("run jobs"))[1]]


def test_a_queue_that_is_dropped_is_not_held(spans: Spans) -> None:
    q = penstock.connect("memory:")
    otel.instrument(q, spans.provider)
    q.create_tube("jobs").put(1)
    dropped = weakref.ref(q._engine)
    del q

    def is_gone() -> bool:
        """The thread that keeps its store may be in the middle of something."""
        gc.collect()
        return dropped() is None

    until(is_gone)
