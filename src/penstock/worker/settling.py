"""From what a handler did to the op that ends its task."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock import payload
from penstock.blocking import Task
from penstock.model import duration, ops
from penstock.model.errors import PenstockError, UsageError
from penstock.model.state import Reason
from penstock.outcomes import Bury, Release, abort_in, alone
from penstock.shape import BadPayload
from penstock.worker.processes import HandlerError, Unstorable
from penstock.worker.trace import text_of


class Ending(NamedTuple):
    """How a task is to end: the verb, and what goes with it."""

    verb: str
    """ack, fail, abort, bury, release, refund, unknown_handler; or nothing: the handler, or time, has ended it."""
    value: Any = None
    """The result as JSON, the text of an error, the reason or the delay."""

    @property
    def ok(self) -> bool:
        return self.verb in ("ack", "release", "refund", "nothing")

    @property
    def headline(self) -> str:
        """What a log says about it."""
        return str(self.value or "").partition("\n")[0]


ACK = Ending("ack")
REFUND = Ending("refund")
NOTHING = Ending("nothing")


def returned(task: Task, value: Any, stored: bool) -> Ending:
    """A handler has returned."""
    if _is_ended(task):
        return NOTHING
    if not stored or value is None:
        return ACK
    try:
        return Ending("ack", payload.encode_result(value))
    except UsageError as error:
        return Ending("abort", payload.error_text(f"the work was done, but its result cannot be stored: {error}"))


def raised(task: Task, error: BaseException) -> Ending:
    """A handler has raised."""
    if _is_ended(task):
        return NOTHING
    error = _as_raised(error)
    said = alone(error)
    if isinstance(said, Release):
        try:
            duration.delay(said.delay)
        except UsageError as wrong:
            return Ending("fail", text_of(wrong))
        return Ending("release", said.delay)
    if isinstance(said, Bury):
        return Ending("bury", said.text)
    if isinstance(error, BadPayload | Unstorable):
        return Ending("abort", payload.error_text(str(error)))
    elsewhere = next((one for one in (error, error.__cause__) if isinstance(one, HandlerError)), None)
    text = text_of(error) if elsewhere is None else elsewhere.text
    return Ending("abort" if abort_in(error) else "fail", text)


def _as_raised(error: BaseException) -> BaseException:
    """Python lets no StopIteration out of a coroutine: it makes another error of it, which says less."""
    cause = error.__cause__
    is_made = isinstance(error, RuntimeError) and str(error) == "coroutine raised StopIteration"
    return cause if is_made and isinstance(cause, StopIteration) else error


def _is_ended(task: Task) -> bool:
    """Whether the handler has ended its task; if that was in a transaction, nobody knows yet."""
    return task._ended is not None and task._undo is None


def op(task: Task, ending: Ending) -> ops.Op[Any]:
    """The op that ends a task."""
    lease, session, tube = task._lease(), task._tube._session, task.tube
    if ending.verb == "ack":
        return ops.Ack(tube, (finish(task, ending),), session)
    if ending.verb == "bury":
        return ops.Bury(tube, lease, session, ending.value)
    if ending.verb == "release":
        return ops.Release(tube, lease, session, duration.delay(ending.value))
    if ending.verb == "refund":
        return ops.Release(tube, lease, session, refund=True)
    reasons = {"abort": Reason.ABORTED, "unknown_handler": Reason.UNKNOWN_HANDLER}
    return ops.Fail(tube, lease, session, ending.value, None, reasons.get(ending.verb))


def finish(task: Task, ending: Ending) -> ops.Finish:
    """One task of an Ack."""
    return ops.Finish(task._lease(), ending.value)


def by_facade(task: Task, ending: Ending) -> Any:
    """End a task of a kind with hooks, which the facade calls, or one that was ended in a transaction."""
    try:
        if task._undo is not None:
            task._recall()
            if task._ended is not None:  # and that was committed
                return None
        if ending.verb == "ack":
            return task.ack(None if ending.value is None else payload.decode(ending.value))
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
