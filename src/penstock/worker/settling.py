"""From what a handler did to the op that ends its task."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock import calls, payload
from penstock.blocking import Task
from penstock.model import duration, ops
from penstock.model.errors import PenstockError, UsageError
from penstock.model.state import Reason
from penstock.outcomes import Bury, Release, abort_in
from penstock.shape import BadPayload
from penstock.worker.processes import HandlerError


class Ending(NamedTuple):
    """How a task is to end: the verb, and what goes with it."""

    verb: str
    """ack, fail, abort, bury, release, refund, unknown_handler; or nothing: the handler, or time, has ended it."""
    value: Any = None
    """The result, error text, reason or delay."""

    @property
    def ok(self) -> bool:
        return self.verb in ("ack", "release", "refund", "nothing")


CALLERS = ("penstock.worker.slots", "penstock.worker.runners", "penstock.testing.draining", "concurrent.futures.thread")
ACK = Ending("ack")
REFUND = Ending("refund")
NOTHING = Ending("nothing")


def returned(task: Task, value: Any, stored: bool) -> Ending:
    """A handler has returned."""
    if task._ended is not None:
        return NOTHING
    if not stored or value is None:
        return ACK
    try:
        payload.encode_result(value)
    except UsageError as error:
        return Ending("abort", f"the work was done, but its result cannot be stored: {error}")
    return Ending("ack", value)


def raised(task: Task, error: BaseException) -> Ending:
    """A handler has raised."""
    if task._ended is not None:
        return NOTHING
    if isinstance(error, Release):
        try:
            duration.delay(error.delay)
        except UsageError as wrong:
            return Ending("fail", payload.error_text(wrong))
        return Ending("release", error.delay)
    if isinstance(error, Bury):
        return Ending("bury", error.reason)
    if isinstance(error, BadPayload):
        return Ending("abort", str(error))
    elsewhere = next((one for one in (error, error.__cause__) if isinstance(one, HandlerError)), None)
    text = payload.error_text(_from_handler(error)) if elsewhere is None else elsewhere.text
    return Ending("abort" if abort_in(error) else "fail", text)


def _from_handler(error: BaseException) -> BaseException:
    """An error whose trace begins where the handler does: how we came to call it helps nobody."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_globals.get("__name__") in CALLERS:
        trace = trace.tb_next
    return error.with_traceback(trace)


def op(task: Task, ending: Ending) -> ops.Op[Any]:
    """The op that ends a task."""
    lease, session, tube = task._lease(), task._tube._session, task.tube
    if ending.verb == "ack":
        return ops.Ack(tube, (finish(task, ending),), session)
    if ending.verb == "bury":
        return ops.Bury(tube, lease, session, payload.error_text(ending.value))
    if ending.verb == "release":
        return ops.Release(tube, lease, session, duration.delay(ending.value))
    if ending.verb == "refund":
        return ops.Release(tube, lease, session, refund=True)
    reasons = {"abort": Reason.ABORTED, "unknown_handler": Reason.UNKNOWN_HANDLER}
    return ops.Fail(tube, lease, session, ending.value, None, reasons.get(ending.verb))


def finish(task: Task, ending: Ending) -> ops.Finish:
    """One task of an Ack."""
    return calls.finish(task._lease(), ending.value, None, None)


def by_facade(task: Task, ending: Ending) -> Any:
    """End a task of a kind with hooks, which the facade calls."""
    try:
        if ending.verb == "ack":
            return task.ack(ending.value)
        if ending.verb == "bury":
            return task.bury(ending.value)
        if ending.verb in ("release", "refund"):
            return task.release(ending.value, refund=ending.verb == "refund")
        return task.fail(
            ending.value, abort=ending.verb if ending.verb == "unknown_handler" else ending.verb == "abort"
        )
    except PenstockError as error:
        return error


__all__ = ["ACK", "NOTHING", "REFUND", "Ending", "by_facade", "finish", "op", "raised", "returned"]
