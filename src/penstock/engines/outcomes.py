"""When the connection breaks during a call nobody knows whether it was done. What can be told by asking again.

The session and the tokens are what makes most calls safe to repeat: a lease that this very token has ended does
not begin again. See docs/adr/0010-what-is-repeated-after-a-lost-reply.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.engines.line import Answer
from penstock.model import ops
from penstock.model.errors import EngineUnavailable, LeaseLost, NotTaken, NotWritable, TaskNotFound
from penstock.model.state import Reason, State
from penstock.model.task import Gone, Record, TaskId

Peek = Callable[[str, TaskId], Record | None]
READS = (
    *(ops.GetTube, ops.ListTubes, ops.Peek, ops.Watch, ops.ListTasks, ops.ListLanes, ops.GetStatistics),
    *(ops.ReadHistory, ops.GetState, ops.GetExtent, ops.MarkHistory, ops.ReadLedger, ops.LastNotes, ops.ListLedgers),
    *(ops.GetMoment, ops.ListLeases),
)
IDEMPOTENT = (
    *(ops.Tick, ops.KeepAlive, ops.OpenSession, ops.EndSession, ops.ForgetHistory, ops.TrimLedger),
    *(ops.AlterTube, ops.PauseTube, ops.ConfigureLane),
)
"""Done twice is done once, apart from a count in the answer."""
ENDS = (ops.Ack, ops.Release, ops.Bury, ops.Fail)


def is_repeatable(op: ops.Op[Any]) -> bool:
    """True for ops that may be performed again though they may have been done.

    A take belongs to them because what it was granted is found and given back first.
    """
    if isinstance(op, ops.Put):
        return all(draft.put_id is not None for draft in op.drafts)
    if isinstance(op, ops.CreateTube):
        return op.if_not_exists
    return isinstance(op, (ops.Take, *ENDS, *READS, *IDEMPOTENT))


def unknown(why: str) -> EngineUnavailable:
    return EngineUnavailable(f"the connection broke during the call ({why}); it may have been done", "unknown")


def second_answer(op: ops.Op[Any], answer: Answer, peek: Peek, now: int, why: str) -> Answer:
    """What the answer of a repeated op means, given that the op may have been done before."""
    if isinstance(answer, NotWritable):
        return unknown(why)
    if isinstance(op, ops.Ack) and isinstance(answer, list):
        return [_acked(op.tube, item.lease, one, peek, now, why) for item, one in zip(op.items, answer, strict=True)]
    if isinstance(op, ENDS) and isinstance(answer, LeaseLost | NotTaken | TaskNotFound):
        return unknown(why)
    return answer


def _acked(tube: str, lease: ops.Lease, answer: Answer, peek: Peek, now: int, why: str) -> Answer:
    if isinstance(answer, NotTaken | TaskNotFound):
        return unknown(why)
    if not isinstance(answer, LeaseLost):
        return answer
    if answer.now == "gone":
        return Gone(now)
    record = peek(tube, lease.id)
    if record is None:
        return Gone(now)
    if record.state == State.DONE:
        return record if record.reason == Reason.SUCCESS else answer
    # The ack of a repeating task leaves it waiting too.
    return answer if record.repeat is None else unknown(why)


def granted_tokens(requests: Sequence[ops.Op[Any]], answers: Sequence[Answer]) -> list[int]:
    """Tokens of all that was granted."""
    return [
        record.token
        for op, answer in zip(requests, answers, strict=True)
        if isinstance(op, ops.Take) and isinstance(answer, list)
        for record in answer
    ]
