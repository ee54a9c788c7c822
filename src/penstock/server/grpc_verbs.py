"""The verbs of gRPC: from a message to an op, and from its answer to a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock import calls, payload
from penstock.engines.line import Producer, Watcher
from penstock.model import ops, tube
from penstock.model.duration import FOREVER
from penstock.model.errors import (
    PenstockError,
    TaskFailed,
    TaskNotFound,
    TubeFull,
    UsageError,
    WaitTimeout,
)
from penstock.model.state import Reason, State
from penstock.model.task import Draft, Record
from penstock.model.tube import TubeConfig, check_count, check_name, check_text
from penstock.server.grpc_calls import Call, Granted, Verb, clipped, closing
from penstock.server.grpc_reply import MAX_REPLY, Room, fill_tasks, fitting
from penstock.wire import messages
from penstock.wire._generated import penstock_pb2 as pb
from penstock.wire.messages import delay_of, given, id_of, length_of

MAX_PAGE = 10_000
MAX_UUIDS = MAX_REPLY // 48
"""New ids of this sort that a reply can have."""
JSON = pb.Draft.JSON_FIELD_NUMBER
_encode = msgspec.json.Encoder().encode
Op = ops.Op[Any]


# -- parts of messages ---------------------------------------------------------------------------------


def json_text(text: str) -> str:
    """JSON as it is stored: the same value has the same text, whoever has put it."""
    return _encode(payload.checked_json(text)).decode()


def data_of(message: Any) -> str | bytes | None:
    """The data of a draft or a release; None if there is none."""
    kind = message.WhichOneof("data")
    if kind == "json":
        return json_text(message.json)
    found: bytes | None = message.raw if kind == "raw" else None
    return found


def checked_id(message: pb.Id) -> Any:
    """The id in a message."""
    return calls.check_id(id_of(message))


def lease(message: Any) -> ops.Lease:
    """Which lease; without a token the one that the session holds."""
    return ops.Lease(checked_id(message.id), given(message, "token"))


def _text(message: Any, name: str) -> str | None:
    return check_text(getattr(message, name), name) if message.HasField(name) else None


def _clipped(message: Any, name: str) -> int | None:
    value = length_of(message, name)
    return value if value is None or value < FOREVER else FOREVER


def _error(message: Any) -> str | None:
    return payload.error_text(given(message, "error"))


def drafts_of(messages: Sequence[pb.Draft], config: TubeConfig) -> list[Draft | PenstockError]:
    """Tasks about to be put, checked, or why they are refused."""
    if config.adopted is None:
        fields = [message.ListFields() for message in messages]
        if all(len(given) == 1 and given[0][0].number == JSON for given in fields):
            values = payload.plain_json([given[0][1] for given in fields])
            if values is not None:
                return [Draft(text) for text in payload.encode_plain(values)]
    drafts: list[Draft | PenstockError] = []
    for message in messages:
        try:
            drafts.append(draft(message, config))
        except PenstockError as error:
            drafts.append(error)
    return drafts


def draft(message: pb.Draft, config: TubeConfig) -> Draft:
    """One task about to be put, checked."""
    data = data_of(message)
    if data is None:
        raise UsageError("a draft needs its data: json or raw; no data at all is the JSON text null")
    repeat = _clipped(message, "repeat_us")
    if repeat == 0:
        raise UsageError("repeat_us must be more than 0")
    if not 0 <= message.on_conflict < len(messages.ON_CONFLICT):
        raise UsageError(f"on_conflict has no value {message.on_conflict}")
    task_id = checked_id(message.id) if message.HasField("id") else None
    if task_id is None and config.adopted is not None and config.id == "required":
        task_id = calls.id_in(payload.decode(data), config.adopted["key"])
    attempts = given(message, "max_attempts")
    return Draft(
        data,
        given(message, "pri"),
        _clipped(message, "ttl_us"),
        _clipped(message, "ttr_us"),
        delay_of(message),
        _text(message, "lane"),
        _text(message, "key"),
        messages.ON_CONFLICT[message.on_conflict],  # type: ignore[arg-type]
        _text(message, "put_id"),
        task_id,
        None if attempts is None else check_count(attempts, "max_attempts"),
        _clipped(message, "keep_us"),
        repeat,
    )


# -- batches -------------------------------------------------------------------------------------------


async def put(request: pb.PutRequest, call: Call) -> pb.PutReply:
    """Store tasks; a result for each."""
    name = check_name(request.tube)
    if len(request.drafts) > calls.MAX_BATCH:
        raise UsageError(f"put takes at most {calls.MAX_BATCH} drafts a call, got {len(request.drafts)}")
    call.check(ops.Put(name, ()))
    config = await call.desk.config(name)
    if config.hooks or config.id == "function":
        raise UsageError(f"tube {name!r} has rules in Python: put into it with the library")
    if config.id == "uuid" and len(request.drafts) > MAX_UUIDS:
        raise UsageError(f"a reply has room for {MAX_UUIDS} ids of this tube, got more drafts: put them in parts")
    drafts = drafts_of(request.drafts, config)
    op = ops.Put(name, tuple(each for each in drafts if type(each) is Draft))
    timeout = clipped(request.timeout_us)
    if timeout == 0:
        answers = await call.core.execute(op)
    else:
        answers = await call.wait(Producer(op, calls.wait_until(call.core.engine.clock.now(), timeout)), timeout)
        if call.desk.closing.is_set():
            answers = [closing() if isinstance(answer, TubeFull) else answer for answer in answers]
    reply = pb.PutReply()
    add = reply.results.add
    room = Room(len(drafts))
    for answer in calls.merged(drafts, answers):
        if isinstance(answer, PenstockError):
            add(error=room.error(answer))
        else:
            messages.placed(answer, result := add())
            if type(answer[0][1]) is not int and not room.has(result.id):
                result.ClearField("id")
    return reply


def take_op(tube: str, n: int, session: Any, message: Any) -> ops.Take:
    """What Take and TakeStream ask for."""
    if not 1 <= n <= calls.MAX_BATCH:
        raise UsageError(f"n must be a whole number from 1 to {calls.MAX_BATCH}, got {n}")
    lane = calls.lane_name(message.lane) if message.HasField("lane") else None
    return ops.Take(check_name(tube), n, session, length_of(message, "ttr_us"), lane, message.drain)


async def take(request: pb.TakeRequest, call: Call) -> Granted:
    """Take tasks; waits for the first."""
    op = take_op(request.tube, request.n or 1, await call.session(), request)
    records = await call.take(op, clipped(request.timeout_us))
    if records == [] and request.timeout_us:
        call.check_open()
    reply = pb.TakeReply(drained=records is None)
    sent = fill_tasks(reply, records or [], held=True)
    if records and sent < len(records):
        call.give_back(op, records[sent:])
    return Granted(reply, op, (records or [])[:sent])


async def ack(request: pb.AckRequest, call: Call) -> pb.AckReply:
    """Finish tasks; what is refused is named."""
    name = check_name(request.tube)
    if len(request.items) > calls.MAX_BATCH:
        raise UsageError(f"ack takes at most {calls.MAX_BATCH} items a call, got {len(request.items)}")
    items = [finish(item) for item in request.items]
    good = tuple(item for item in items if type(item) is ops.Finish)
    answers = iter(await call.execute(ops.Ack(name, good, await call.session())))
    reply = pb.AckReply()
    room = Room(len(items))
    for index, item in enumerate(items):
        answer = next(answers) if type(item) is ops.Finish else item
        if isinstance(answer, PenstockError):
            reply.refused.add(index=index, error=room.error(answer))
    reply.done = len(items) - len(reply.refused)
    return reply


def finish(item: pb.AckRequest.Finish) -> ops.Finish | PenstockError:
    """One task to acknowledge, or why it is refused."""
    number, token = item.id.number, item.token  # 0 is also what is not there, or is something else
    if number and token and not item.HasField("result") and not item.HasField("keep_us"):
        return ops.Finish(ops.Lease(number, token))
    try:
        result = json_text(item.result) if item.HasField("result") else None
        return ops.Finish(lease(item), None if result == "null" else result, _clipped(item, "keep_us"))
    except PenstockError as error:
        return error


# -- verbs that are one op -----------------------------------------------------------------------------


class Simple(NamedTuple):
    """An op made of a message, and a message made of its answer."""

    op: Callable[[Any], Op]
    reply: Callable[[Any], Any]

    async def perform(self, request: Any, call: Call) -> Any:
        """Do it."""
        return self.reply(await call.execute(self.op(request)))


class Held(NamedTuple):
    """The same for verbs of a session."""

    op: Callable[[Any, Any], Op]

    async def perform(self, request: Any, call: Call) -> Any:
        """Do it."""
        record = await call.execute(self.op(request, await call.session()))
        return messages.task(record, held=record.state == State.TAKEN)


def _created(request: pb.CreateTubeRequest) -> ops.CreateTube:
    options = messages.options_of(request.options)
    kind = calls.kind_named({}, request.kind or "standard")
    if options.get("id") == "function":
        raise UsageError("id must be one of auto, time64, uuid, required: functions are of the library")
    config = tube.new_tube(request.name, kind, request.temporary, options)
    return ops.CreateTube(config, request.if_not_exists, options)


def _altered(request: pb.AlterTubeRequest) -> ops.AlterTube:
    return ops.AlterTube(check_name(request.tube), messages.options_of(request.options, request.unset))


def _released(request: pb.ReleaseRequest, session: Any) -> ops.Release:
    return ops.Release(
        check_name(request.tube), lease(request.lease), session, delay_of(request), given(request, "pri"),
        _clipped(request, "ttl_us"), data_of(request), request.refund,
    )  # fmt: skip


def _buried(request: pb.BuryRequest, session: Any) -> ops.Bury:
    return ops.Bury(check_name(request.tube), lease(request.lease), session, _error(request))


def _failed(request: pb.FailRequest, session: Any) -> ops.Fail:
    abort = Reason.ABORTED if request.abort else None
    return ops.Fail(check_name(request.tube), lease(request.lease), session, _error(request), delay_of(request), abort)


def _touched(request: pb.TouchRequest, session: Any) -> ops.Touch:
    if request.by_us < 0:
        raise UsageError(f"by_us must not be negative, got {request.by_us}")
    return ops.Touch(check_name(request.tube), lease(request.lease), session, min(request.by_us, FOREVER))


def _kicked(request: pb.KickRequest) -> ops.Kick:
    n = None if request.all else check_count(request.n if request.HasField("n") else 1, "n", 0)
    return ops.Kick(check_name(request.tube), n, delay_of(request), _clipped(request, "ttl_us"))


def _dug(request: pb.DigRequest) -> ops.Dig:
    return ops.Dig(check_name(request.tube), checked_id(request.id), delay_of(request), _clipped(request, "ttl_us"))


def _cancelled(request: pb.CancelRequest) -> ops.Cancel:
    which = request.WhichOneof("which")
    if which is None:
        raise UsageError("cancel needs an id or a key")
    name = check_name(request.tube)
    if which == "id":
        return ops.Cancel(name, checked_id(request.id))
    key = check_text(request.key, "key")
    if key is None:
        raise UsageError("cancel needs an id or a key; an empty key is none")
    return ops.Cancel(name, None, key)


def _limit(value: int, default: int) -> int:
    if not 0 <= value <= MAX_PAGE:
        raise UsageError(f"limit must be a whole number from 0 to {MAX_PAGE}, got {value}")
    return value or default


def _listed(request: pb.ListTasksRequest) -> ops.ListTasks:
    after = checked_id(request.after) if request.HasField("after") else None
    state = messages.state_of(request.state)
    return ops.ListTasks(check_name(request.tube), state, _limit(request.limit, 100), after)


def _page(records: list[Record]) -> pb.ListTasksReply:
    reply = pb.ListTasksReply()
    fill_tasks(reply, records)
    return reply


def _lanes(request: pb.LanesRequest) -> ops.ListLanes:
    after = calls.lane_name(request.after, "after") if request.HasField("after") else None
    return ops.ListLanes(check_name(request.tube), _limit(request.limit, 100), after)


_SETTINGS = tuple(tube.LANE_OPTIONS)


def _configured(request: pb.ConfigureLaneRequest) -> ops.ConfigureLane:
    options: dict[str, Any] = dict.fromkeys(request.unset)
    options |= {name: getattr(request, name) for name in _SETTINGS if request.HasField(name)}
    parsed = tube.parse_lane_options(options)
    return ops.ConfigureLane(check_name(request.tube), calls.lane_name(request.lane), parsed)


def _history(request: pb.HistoryRequest) -> ops.ReadHistory:
    name = check_name(request.tube) if request.HasField("tube") else None
    return ops.ReadHistory(name, check_count(request.after, "after", 0), _limit(request.limit, 1000))


def _events(rows: list[Any]) -> pb.HistoryReply:
    reply = pb.HistoryReply(events=map(messages.event, rows))
    fitting(reply.events)
    return reply


def _statistics(request: pb.StatisticsRequest) -> ops.GetStatistics:
    return ops.GetStatistics(check_name(request.tube) if request.HasField("tube") else None)


def _count(number: int) -> pb.Count:
    return pb.Count(count=number)


def _maybe(record: Record | None) -> pb.CancelReply:
    return pb.CancelReply(task=None if record is None else messages.task(record))


def _named(op: Callable[[str], Op]) -> Callable[[Any], Op]:
    return lambda request: op(check_name(request.tube))


def _one(op: Callable[[str, Any], Op]) -> Callable[[Any], Op]:
    return lambda request: op(check_name(request.tube), checked_id(request.id))


def _delayed(op: Callable[[str, Any, Any], Op]) -> Callable[[Any], Op]:
    return lambda request: op(check_name(request.tube), checked_id(request.id), delay_of(request))


# -- waiting for the end of a task ---------------------------------------------------------------------


async def wait(request: pb.WaitRequest, call: Call) -> pb.Task:
    """Wait until a task is done or buried."""
    return messages.task(await _ended(request, call))


async def result(request: pb.WaitRequest, call: Call) -> pb.ResultReply:
    """Wait for a task and answer its result."""
    try:
        record = await _ended(request, call)
    except TaskNotFound as error:
        raise TaskFailed(f"{error}: it was removed, or had ended and was not kept", None) from error
    if record.reason != Reason.SUCCESS:
        text = f"task {record.id!r} is {record.state}: {record.reason}; {record.error or 'no error text'}"
        raise TaskFailed(text, record)
    return pb.ResultReply(result=record.result)


async def _ended(request: pb.WaitRequest, call: Call) -> Record:
    timeout = clipped(request.timeout_us) if request.HasField("timeout_us") else None
    until = calls.wait_until(call.core.engine.clock.now(), timeout)
    op = ops.Watch(check_name(request.tube), checked_id(request.id), until)
    call.check(op)
    watcher = Watcher(op, None if timeout is None else until)
    record: Record | None = await call.wait(watcher, timeout)
    if record is None:
        call.check_open()
        raise WaitTimeout(f"task {op.id!r} has not ended in time; it is {watcher.last.state}")
    return record


SIMPLE: dict[str, Simple | Held] = {
    "GetTube": Simple(_named(ops.GetTube), messages.tube),
    "ListTubes": Simple(lambda _: ops.ListTubes(), lambda found: pb.ListTubesReply(tubes=map(messages.tube, found))),
    "CreateTube": Simple(_created, messages.tube),
    "AlterTube": Simple(_altered, messages.tube),
    "DropTube": Simple(lambda it: ops.DropTube(check_name(it.tube), it.force), lambda _: pb.DropTubeReply()),
    "TruncateTube": Simple(_named(ops.TruncateTube), _count),
    "Pause": Simple(lambda it: ops.PauseTube(check_name(it.tube), not it.resume), messages.tube),
    "Release": Held(_released),
    "Bury": Held(_buried),
    "Fail": Held(_failed),
    "Touch": Held(_touched),
    "Peek": Simple(_one(ops.Peek), messages.task),
    "Kick": Simple(_kicked, _count),
    "Dig": Simple(_dug, messages.task),
    "Delete": Simple(_one(ops.Delete), messages.task),
    "Cancel": Simple(_cancelled, _maybe),
    "Restart": Simple(_delayed(ops.Restart), messages.task),
    "Snatch": Simple(_delayed(ops.Snatch), messages.task),
    "ReleaseAll": Simple(_named(ops.ReleaseAll), _count),
    "AddRetries": Simple(lambda it: ops.AddRetries(check_name(it.tube), check_count(it.n, "n")), _count),
    "ListTasks": Simple(_listed, _page),
    "Statistics": Simple(_statistics, messages.statistics),
    "Lanes": Simple(_lanes, lambda found: pb.LanesReply(lanes=map(messages.lane, found))),
    "ConfigureLane": Simple(_configured, messages.lane_limits),
    "History": Simple(_history, _events),
}
VERBS: dict[str, Verb] = {
    **{name: verb.perform for name, verb in SIMPLE.items()},
    "Put": put,
    "Ack": ack,
    "Wait": wait,
    "Result": result,
}
