"""Between the messages of wire/penstock.proto and the values of model/: tasks, ids, tubes, events."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from penstock.model.duration import EPOCH, SECOND, At, Delay, micros
from penstock.model.errors import UsageError
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.retry import Exponential, Retry
from penstock.model.state import State
from penstock.model.stats import Statistics
from penstock.model.task import HistoryRow, Placed, Record, TaskId
from penstock.model.tube import DURATIONS, TubeConfig
from penstock.wire._generated import penstock_pb2 as pb

STATES: dict[str, Any] = {state.value: pb.State.Value(f"STATE_{state.name}") for state in State}
STATE_OF = {number: State(name) for name, number in STATES.items()}
OUTCOMES: dict[str, Any] = {
    name: pb.Outcome.Value(f"OUTCOME_{name.upper()}") for name in ("new", "existing", "replaced", "restarted")
}
ON_CONFLICT = ("error", "error", "ignore", "replace", "restart")
"""By number; not to say is the same as the first."""
_COPIED = (
    ("reason", "reason"), ("lane", "lane"), ("key", "key"), ("put_id", "put_id"), ("max_attempts", "max_attempts"),
    ("ttl", "ttl_us"), ("ttr", "ttr_us"), ("expires_at", "expires_at_us"), ("deadline", "deadline_us"),
    ("done_at", "done_at_us"), ("purge_at", "purge_at_us"), ("repeat", "repeat_us"), ("result", "result"),
    ("error", "error"),
)  # fmt: skip
"""Fields of a record that a task has only where they are something."""
COPIED = tuple((Record._fields.index(ours), theirs) for ours, theirs in _COPIED)
_OFTEN = ("id", "state", "data", "attempt", "created_at", "ready_at", "token")
_often, _numbers = (
    itemgetter(*map(Record._fields.index, names)) for names in (_OFTEN, ("pri", "failures", "cancel_asked"))
)


def task_id(value: TaskId) -> pb.Id:
    """An id as a message."""
    if type(value) is int:
        return pb.Id(number=value)
    if isinstance(value, str):
        return pb.Id(text=value)
    assert isinstance(value, tuple)
    return pb.Id(parts=pb.Id.Parts(parts=[task_id(part) for part in value]))


def id_of(value: pb.Id) -> TaskId:
    """The other way round of task_id()."""
    kind = value.WhichOneof("kind")
    if kind == "number":
        return value.number
    if kind == "text":
        return value.text
    if kind == "parts" and value.parts.parts:
        return tuple(id_of(part) for part in value.parts.parts)  # type: ignore[misc]
    raise UsageError("id is missing: give number, text or parts")


def fill(tasks: Any, records: Sequence[Record], held: bool = False) -> None:
    """Write records into the tasks of a message; `held`: for their holder, who learns the tokens.

    Field by field, for most of them are empty in all records of a reply.
    """
    if not records:
        return
    columns = tuple(zip(*records, strict=True))
    add, made = tasks.add, []
    for value, state, data, attempt, created_at, ready_at, token in zip(*_often(columns), strict=True):
        made.append(task := add())
        if type(value) is int:
            task.id.number = value
        else:
            task.id.CopyFrom(task_id(value))
        task.state = STATES[state]
        if isinstance(data, str):
            task.json = data
        else:
            task.raw = data
        task.attempt = attempt
        task.created_at_us = created_at
        if ready_at is not None:
            task.ready_at_us = ready_at
        if held and token is not None:
            task.token = token
    for index, name in COPIED:
        column = columns[index]
        if column.count(None) < len(column):
            for task, value in zip(made, column, strict=True):
                if value is not None:
                    setattr(task, name, value)
    if any(map(any, _numbers(columns))):
        for task, record in zip(made, records, strict=True):
            task.pri, task.failures, task.cancel_asked = record.pri, record.failures, bool(record.cancel_asked)
            if record.failures and record.errors:
                task.errors.extend(json.loads(record.errors))


def task(record: Record, held: bool = False) -> pb.Task:
    """A record as a message."""
    reply = pb.TakeReply()
    fill(reply.tasks, (record,), held)
    made: pb.Task = reply.tasks[0]
    return made


def placed(found: Placed, result: pb.PutResult) -> None:
    """What became of a draft."""
    record, outcome = found
    value = record[1]
    if type(value) is int:
        result.id.number = value
    else:
        result.id.CopyFrom(task_id(value))
    result.outcome = OUTCOMES[outcome]
    result.state = STATES[record[2]]


def delay_of(message: Any, name: str = "delay") -> Delay | None:
    """The field `delay` of a message; what lies in the past is now."""
    if not message.HasField(name):
        return None
    found = getattr(message, name)
    return At(found.moment_us) if found.WhichOneof("kind") == "moment_us" else max(0, found.length_us)


def given(message: Any, name: str) -> Any:
    """An optional field, or None."""
    return getattr(message, name) if message.HasField(name) else None


def length_of(message: Any, name: str) -> int | None:
    """An optional duration: not negative."""
    value: int | None = given(message, name)
    if value is not None and value < 0:
        raise UsageError(f"{name} must not be negative, got {value}")
    return value


# -- tubes ---------------------------------------------------------------------------------------------

_PLAIN = (
    "pri", "capacity", "max_attempts", "concurrency", "lane_concurrency", "lane_rate", "lane_burst", "lane_order",
    "lane_pick", "payload", "max_payload", "history", "history_data", "id",
)  # fmt: skip


def tube(config: TubeConfig) -> pb.Tube:
    """A tube's settings as a message."""
    options = pb.TubeOptions()
    for name in _PLAIN:
        if (value := getattr(config, name)) is not None:
            setattr(options, name, value)
    for name in DURATIONS:
        value = getattr(config, name)
        if value == "derived":
            options.ttl_derived = True
        elif value is not None:
            setattr(options, f"{name}_us", value)
    _write_retry(options, config.retry)
    return pb.Tube(
        name=config.name, kind=config.kind, temporary=config.temporary, paused=config.paused, options=options
    )


def _write_retry(options: pb.TubeOptions, retry: Retry) -> None:
    if isinstance(retry, Exponential):
        how = options.retry.exponential
        how.base_us, how.max_us = micros(retry.base, "base"), micros(retry.max, "max")
        how.factor, how.jitter = retry.factor, retry.jitter
    elif retry is not None:
        delays = retry if isinstance(retry, tuple) else (retry,)
        options.retry.delays_us.extend(micros(each, "retry") for each in delays)


def options_of(options: pb.TubeOptions, unset: Any = ()) -> dict[str, Any]:
    """Options as create_tube() and alter() take them: durations in seconds."""
    found: dict[str, Any] = dict.fromkeys(unset)
    found |= {name: getattr(options, name) for name in _PLAIN if options.HasField(name)}
    for name in DURATIONS:
        if options.HasField(f"{name}_us"):
            found[name] = getattr(options, f"{name}_us") / SECOND
    if options.ttl_derived:
        found["ttl"] = "derived"
    if options.HasField("retry"):
        found["retry"] = _retry_of(options.retry)
    return found


def _retry_of(retry: pb.Retry) -> Any:
    if retry.HasField("exponential"):
        how = retry.exponential
        return Exponential(how.base_us / SECOND, how.factor, how.max_us / SECOND, how.jitter)
    delays = [each / SECOND for each in retry.delays_us]
    return delays if len(delays) != 1 else delays[0]


# -- looking -------------------------------------------------------------------------------------------


def lane_limits(limits: LaneLimits) -> pb.LaneLimits:
    """Limits of a lane as a message."""
    return pb.LaneLimits(concurrency=limits.concurrency, rate=limits.rate, burst=limits.burst, paused=limits.paused)


def lane(info: LaneInfo) -> pb.LanesReply.Lane:
    """A lane as a message."""
    next_at = None if info.next_at is None else round((info.next_at - EPOCH).total_seconds() * SECOND)
    return pb.LanesReply.Lane(
        name=info.name, ready=info.ready, taken=info.taken, limits=lane_limits(info.limits), next_at_us=next_at
    )


def statistics(found: Mapping[str, Statistics]) -> pb.StatisticsReply:
    """Counters as a message."""
    counted = {name: pb.StatisticsReply.Counters(tasks=each.tasks, calls=each.calls) for name, each in found.items()}
    return pb.StatisticsReply(tubes=counted)


_EVENT: dict[str, Callable[[Any], Any]] = {"task_id": task_id, "from_state": STATES.get, "to_state": STATES.get}
_EVENT_US = {"at", "ready_at", "taken_at", "delay"}


def event(row: HistoryRow) -> pb.HistoryReply.Event:
    """An event of the history as a message."""
    values: dict[str, Any] = {}
    for name, value in zip(HistoryRow._fields[:-1], row, strict=False):
        if value is not None:
            values[f"{name}_us" if name in _EVENT_US else name] = _EVENT[name](value) if name in _EVENT else value
    if row.data is not None:
        values["json" if isinstance(row.data, str) else "raw"] = row.data
    return pb.HistoryReply.Event(**values)


def state_of(number: int) -> State | None:
    """A state by its number; 0 is none."""
    if number == 0:
        return None
    if number not in STATE_OF:
        raise UsageError(f"no state has the number {number}")
    return STATE_OF[number]
