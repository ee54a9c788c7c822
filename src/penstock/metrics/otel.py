"""Spans for OpenTelemetry: one around each put, one around each run of a handler, with a link from the run to the put.

A put span's context travels in the put_id of its tasks. See docs/adr/0015-traces-travel-in-put-ids.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from penstock.blocking import Task
from penstock.engines import Engine
from penstock.engines.bridge import AsyncEngine, AsyncTransactor
from penstock.engines.line import Answer, Producer, Waiter
from penstock.engines.transactor import Transactor
from penstock.metrics.missing import missing
from penstock.model import ops
from penstock.model.errors import PenstockError
from penstock.model.task import Placed
from penstock.outcomes import Bury, Release, abort_in
from penstock.worker import Run

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise missing("spans need opentelemetry-api", error) from None

R = TypeVar("R")
MARK = "trace:"
LENGTH = len("00-") + 32 + len("-") + 16 + len("-01")
"""Of a traceparent, as W3C writes the context of a span."""
_propagator = TraceContextTextMapPropagator()


def instrument(queue: Any, tracer_provider: trace.TracerProvider | None = None) -> None:
    """Make spans for the puts of a queue, and for the runs of its handlers in workers of this process.

    tracer_provider: the global one if left out

    >>> import penstock
    >>> q = penstock.connect("memory:")
    >>> instrument(q)
    """
    uninstrument(queue)
    tracing = Tracing(trace.get_tracer("penstock", tracer_provider=tracer_provider))
    engine = queue._engine
    # Tubes hold the engine too, so it is this very object that changes.
    engine.__class__ = TracedAsyncEngine if isinstance(engine, AsyncEngine) else TracedEngine
    engine.tracing = tracing
    queue.handlers.middleware.insert(0, tracing.around)


def uninstrument(queue: Any) -> None:
    """Make no more spans for a queue.

    >>> import penstock
    >>> uninstrument(penstock.connect("memory:"))
    """
    engine = queue._engine
    plain = {TracedEngine: Engine, TracedAsyncEngine: AsyncEngine}.get(type(engine))
    if plain is not None:
        queue.handlers.middleware.remove(engine.tracing.around)
        engine.__class__ = plain


def links(task: Any) -> list[trace.Link]:
    """The link from a task to the span of its put, for a span of your own around a task taken by hand.

    >>> import penstock
    >>> jobs = penstock.connect("memory:").create_tube("jobs")
    >>> links(jobs.put(1))
    []
    """
    put_id = task._record.put_id
    if put_id is None or not put_id.startswith(MARK):
        return []
    carrier = {"traceparent": put_id[len(MARK) :][:LENGTH]}
    span = trace.get_current_span(_propagator.extract(carrier, Context()))
    return [trace.Link(span.get_span_context())] if span.get_span_context().is_valid else []


class Tracing:
    """Makes the spans of one queue."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    @contextlib.contextmanager
    def putting(self, op: Any) -> Iterator[Putting]:
        """The span of a put. Whatever is raised is recorded."""
        number = len(op.drafts) if isinstance(op, ops.Put) else len(op.data)
        attributes = _attributes("put", "send", op.tube)
        if number != 1:
            attributes["messaging.batch.message_count"] = number
        with self._span("put", op.tube, trace.SpanKind.PRODUCER, attributes) as span:
            try:
                yield Putting(op, span)
            except Exception as error:
                _failed(span, error)
                raise

    async def around(self, run: Run, go_on: Callable[[], Awaitable[Any]]) -> Any:
        """Middleware: the span of a run."""
        task = run.task
        attributes = _attributes("run", "process", task.tube) | _told(task)
        # It is not part of whatever has started the worker, so it has no parent.
        more: dict[str, Any] = {"context": Context(), "links": links(task)}
        with self._span("run", task.tube, trace.SpanKind.CONSUMER, attributes, **more) as span:
            try:
                return await go_on()
            except asyncio.CancelledError:
                _stopped(span, run)
                raise
            except Release:
                span.set_attribute("penstock.ending", "release")
                raise
            except (Exception, SystemExit) as error:
                ending = "bury" if isinstance(error, Bury) else "abort" if abort_in(error) else "fail"
                span.set_attribute("penstock.ending", ending)
                _failed(span, error)
                raise

    def _span(
        self, what: str, tube: str, kind: trace.SpanKind, attributes: dict[str, Any], **more: Any
    ) -> contextlib.AbstractContextManager[trace.Span]:
        return self._tracer.start_as_current_span(
            f"{what} {tube}",
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
            **more,
        )


class Putting:
    """One put while it goes on."""

    def __init__(self, op: Any, span: trace.Span) -> None:
        self._span = span
        self.op = _marked(op, span) if isinstance(op, ops.Put) and span.is_recording() else op

    def answered(self, answer: R) -> R:
        """Note what has become of it."""
        if self._span.is_recording() and isinstance(answer, list):
            refused = [one for one in answer if isinstance(one, PenstockError)]
            if len(answer) == 1 and isinstance(answer[0], Placed):
                record = answer[0].record
                self._span.set_attribute("messaging.message.id", str(record.id))
                self._span.set_attribute("penstock.outcome", answer[0].outcome)
            if refused:
                self._span.set_attribute("penstock.refused", len(refused))
                _failed(self._span, refused[0])
        return answer


def _marked(op: ops.Put, span: trace.Span) -> ops.Put:
    """The same put with the span's context in the put_id of all tasks that have none."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, trace.set_span_in_context(span, Context()))
    # Random numbers of our own: a program that seeds `random` gets the same span ids again at its next start, and a
    # put whose put_id is known stores nothing.
    stem = f"{MARK}{carrier['traceparent']}-{secrets.token_hex(8)}"
    drafts = (
        draft if draft.put_id is not None else draft._replace(put_id=f"{stem}-{number}")
        for number, draft in enumerate(op.drafts)
    )
    return ops.Put(op.tube, tuple(drafts))


def _attributes(name: str, kind: str, tube: str) -> dict[str, Any]:
    return {
        "messaging.system": "penstock",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": tube,
    }


def _told(task: Task) -> dict[str, Any]:
    told = {"penstock.attempt": task.attempt, "penstock.lane": task.lane, "penstock.key": task.key}
    found = {name: value for name, value in told.items() if value is not None}
    return {"messaging.message.id": str(task.id), **found}


def _failed(span: trace.Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))


def _stopped(span: trace.Span, run: Run) -> None:
    why = run.why or "cancelled"
    span.set_attribute("penstock.stopped", why)
    if why in ("lost", "late"):
        span.set_attribute("error.type", why)
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"the task was taken away: {why}"))


PUTS = (ops.Put, ops.Load)


class TracedEngine(Engine):
    """What the engine of a queue becomes when its puts have spans."""

    tracing: Tracing

    def execute(self, op: ops.Op[R]) -> R:
        if not isinstance(op, PUTS):
            return super().execute(op)
        with self.tracing.putting(op) as putting:
            return putting.answered(super().execute(putting.op))  # type: ignore[no-any-return]

    def wait(self, waiter: Waiter, seconds: float | None) -> Answer:
        if not isinstance(waiter, Producer):
            return super().wait(waiter, seconds)
        with self.tracing.putting(waiter.op) as putting:
            return putting.answered(super().wait(Producer(putting.op, waiter.deadline), seconds))

    def join(self, transaction: object) -> Transactor:
        return TracedTransactor(super().join(transaction), self.tracing)


class TracedTransactor(Transactor):
    """A transaction of the caller's, as seen by one call."""

    def __init__(self, transactor: Transactor, tracing: Tracing) -> None:
        self._transactor = transactor
        self._tracing = tracing
        self.store = transactor.store
        self.connection = transactor.connection

    @property
    def begun(self) -> bool:
        return self._transactor.begun

    def execute(self, op: ops.Op[R]) -> R:
        if not isinstance(op, PUTS):
            return self._transactor.execute(op)
        with self._tracing.putting(op) as putting:
            return putting.answered(self._transactor.execute(putting.op))  # type: ignore[no-any-return]


class TracedAsyncEngine(AsyncEngine):
    """The same for queues that are awaited."""

    tracing: Tracing

    async def execute(self, op: ops.Op[R]) -> R:
        if not isinstance(op, PUTS):
            return await super().execute(op)
        with self.tracing.putting(op) as putting:
            return putting.answered(await super().execute(putting.op))  # type: ignore[no-any-return]

    async def wait(self, waiter: Waiter, seconds: float | None) -> Answer:
        if not isinstance(waiter, Producer):
            return await super().wait(waiter, seconds)
        with self.tracing.putting(waiter.op) as putting:
            return putting.answered(await super().wait(Producer(putting.op, waiter.deadline), seconds))

    def join(self, transaction: object) -> AsyncTransactor:
        return TracedAsyncTransactor(super().join(transaction), self.tracing)


class TracedAsyncTransactor(AsyncTransactor):
    """A transaction of the caller's, as seen by one awaited call."""

    def __init__(self, transactor: AsyncTransactor, tracing: Tracing) -> None:
        super().__init__(transactor._transactor, transactor._thread)
        self._tracing = tracing

    async def execute(self, op: ops.Op[R]) -> R:
        if not isinstance(op, PUTS):
            return await super().execute(op)
        with self._tracing.putting(op) as putting:
            return putting.answered(await super().execute(putting.op))  # type: ignore[no-any-return]
