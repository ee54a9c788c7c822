"""The text of what a handler raised, without how we came to call it."""

from __future__ import annotations

from types import TracebackType

from penstock import payload

CALLERS = {
    *("penstock.worker.slots", "penstock.worker.runners", "penstock.worker.threads", "penstock.worker.child"),
    *("penstock.testing.draining", "penstock.testing.taking", "penstock.metrics.otel", "concurrent.futures.thread"),
}


def text_of(error: BaseException) -> str:
    """Type, message and a trace that begins where the handler does."""
    text = payload.error_text(error.with_traceback(_handlers_part(error.__traceback__)))
    assert text is not None
    return text


def _handlers_part(trace: TracebackType | None) -> TracebackType | None:
    """A trace without our frames; they are also between a handler and the middleware around it."""
    levels = list[TracebackType]()
    while trace is not None:
        levels.append(trace)
        trace = trace.tb_next
    theirs = [level for level in levels if level.tb_frame.f_globals.get("__name__") not in CALLERS] or levels[-1:]
    whole: TracebackType | None = None
    for level in reversed(theirs):
        whole = TracebackType(whole, level.tb_frame, level.tb_lasti, level.tb_lineno)
    return whole
