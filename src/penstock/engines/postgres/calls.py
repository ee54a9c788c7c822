"""Every op as a call of a function in the database, in the order of model/ops.py.

A call is a statement with its parameters, and how to read what comes back. Ops that change the shape of the
store (tubes.py) are the exception: they take several statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from penstock.engines.postgres import answers
from penstock.engines.postgres.answers import (
    AT,
    INFO,
    ITEM,
    KIND,
    Again,
    Answer,
    Row,
    Stale,
    Tube,
    Unusual,
    record,
    refusal,
    stored_id,
)
from penstock.engines.verbs.checks import check_delay, check_ttl, missing
from penstock.engines.verbs.leases import check_take
from penstock.engines.verbs.putting import check_draft, check_id
from penstock.model import ops, rules
from penstock.model.duration import At, Delay
from penstock.model.errors import PenstockError, SessionExpired, UsageError
from penstock.model.session import Session
from penstock.model.state import State
from penstock.model.stats import CALLS, Statistics
from penstock.model.task import Draft, Gone, HistoryRow, Placed, Record, TaskId
from penstock.model.tube import TubeConfig

_CONTEXT = "%s::bigint, %s::uuid[], %s::int[]"


class Context(NamedTuple):
    """What is the same for all ops of one moment."""

    schema: str
    """Quoted."""
    now: int | None
    """None: the server's clock says."""
    kept: str
    """The sessions that this process keeps alive, as an array."""
    listened: list[int]
    relaxed: bool
    joined: bool = False


class Call(NamedTuple):
    """A statement, its parameters and how to read the rows."""

    sql: str
    params: tuple[Any, ...]
    read: Callable[[Any], Any]
    raw: bool = False
    """The rows are not those of an Answer."""


def _times(context: Context) -> tuple[Any, ...]:
    return context.now, context.kept, context.listened or None


def _delay(delay: Delay | None) -> dict[str, int]:
    if delay is None:
        return {}
    return {"delay_until": delay.moment} if isinstance(delay, At) else {"delay": delay}


def _task(tube: Tube, task_id: TaskId | None) -> str | None:
    """An id as the database knows it; one that no task of the tube can have is an id that none has."""
    config = tube.config
    if task_id is None or config.id not in ("auto", "time64") or config.adopted is not None:
        return None if task_id is None else stored_id(task_id)
    if isinstance(task_id, bool) or not isinstance(task_id, int) or not 0 <= task_id < 1 << 63:
        return "-1"
    return str(task_id)


def _ids(tube: Tube, ids: list[TaskId]) -> Any:
    """Many ids as the database knows them."""
    if tube.config.id in ("auto", "time64") and all(type(task_id) is int and task_id >= 0 for task_id in ids):
        return int_array(ids)  # type: ignore[arg-type]
    return [_task(tube, task_id) for task_id in ids]


# -- putting -------------------------------------------------------------------------------------------


def put(context: Context, op: ops.Put, tube: Tube) -> Call:
    if (shared := _shared(op.drafts)) is not None and is_plain(context, tube):
        return (
            _one(context, shared, tube)
            if len(op.drafts) == 1 and not context.joined
            else _bulk(context, op, tube, shared)
        )
    return _each(context, op, tube)


def is_plain(context: Context, tube: Tube) -> bool:
    """True for tubes in which a put meets nothing but room."""
    config = tube.config
    listened = tube.number in context.listened
    return (
        config.capacity is None
        and not config.history
        and not listened
        and config.id in ("auto", "time64")
        and config.adopted is None
    )


def _shared(drafts: tuple[Draft, ...]) -> Draft | None:
    """The options that all drafts have in common, if they differ in nothing but data, pri and lane."""
    if not drafts:
        return None
    first = drafts[0]
    if first.key is not None or first.put_id is not None or first.id is not None:
        return None
    if len(drafts) > 1:
        common = _common(first)
        if any(_common(draft) != common for draft in drafts):
            return None
    return first


_common = itemgetter(
    *(Draft._fields.index(name) for name in Draft._fields if name not in ("data", "pri", "lane", "on_conflict"))
)


def _one(context: Context, draft: Draft, tube: Tube) -> Call:
    config = tube.config
    try:
        check(config, draft)
    except PenstockError as error:
        return _said([error])

    def read(rows: list[Row]) -> list[Placed | PenstockError]:
        ((at, seq),) = rows
        if at is None:
            raise Stale
        return [Placed(rules.put(config, draft, at, seq, seq).after, "new")]

    delay = draft.delay
    is_bytes, derived = config.payload == "bytes", draft.ttl == "derived"
    return Call(
        f"select * from {context.schema}.put1_{tube.number}(%s, %s, %s, %s::json, %s::bytea{', %s' * 10})",
        (
            *(tube.version, context.now, context.relaxed),
            *(None if is_bytes else draft.data, draft.data if is_bytes else None),
            *(draft.pri, None if derived else draft.ttl, derived, draft.ttr),
            *(None if isinstance(delay, At) else delay, delay.moment if isinstance(delay, At) else None),
            *(draft.lane, draft.max_attempts, draft.keep, draft.repeat),
        ),
        read,
        raw=True,
    )


def _said(results: list[Any]) -> Call:
    """Nothing to ask: every item is refused already."""
    return Call("select 1", (), lambda rows: results, raw=True)


def _bulk(context: Context, op: ops.Put, tube: Tube, shared: Draft) -> Call:
    config, drafts = tube.config, op.drafts
    errors = _refused(config, drafts)
    good = [draft for number, draft in enumerate(drafts) if number not in errors] if errors else drafts
    if not good:
        return _said(list(errors.values()))

    def read(rows: list[Row]) -> list[Placed | PenstockError]:
        ((at, seqs),) = rows
        if at is None:
            raise Stale
        placed: Iterator[Placed | PenstockError] = _placed(config, good, seqs, at)
        if not errors:
            return list(placed)
        return [errors[number] if number in errors else next(placed) for number in range(len(drafts))]

    derived, ttl = shared.ttl == "derived", None if shared.ttl == "derived" else shared.ttl
    delay = shared.delay
    pris = [draft.pri for draft in good]
    lanes = [draft.lane for draft in good]
    data: Any = [draft.data for draft in good]
    texts, bodies = (None, data) if config.payload == "bytes" else (text_array(data), None)
    return Call(
        f"select * from {context.schema}.bulk_{tube.number}"
        f"(%s, %s, %s, %s, %s::text[], %s::bytea[], %s::bigint[], %s::text[]{', %s' * 9})",
        (
            *(tube.version, context.now, context.relaxed, context.joined, texts, bodies),
            *(
                None if pris.count(None) == len(pris) else int_array(pris),
                _unless_none(lanes),
                None,
                ttl,
                derived,
                shared.ttr,
            ),
            *(None if isinstance(delay, At) else delay, delay.moment if isinstance(delay, At) else None),
            *(shared.max_attempts, shared.keep, shared.repeat),
        ),
        read,
        raw=True,
    )


def _refused(config: TubeConfig, drafts: tuple[Draft, ...]) -> dict[int, PenstockError]:
    """Drafts that do not fit, by their number. They differ in data, pri and lane alone."""
    first, longest = drafts[0], max(len(draft.data) for draft in drafts)
    if longest * 4 <= config.max_payload and (config.features.pri and config.features.lanes or len(drafts) == 1):
        drafts = (first,)
    elif longest * 4 <= config.max_payload and not any(
        draft.pri is not None or draft.lane is not None for draft in drafts
    ):
        drafts = (first,)
    errors: dict[int, PenstockError] = {}
    for number, draft in enumerate(drafts):
        try:
            check(config, draft)
        except PenstockError as error:
            errors[number] = error
    return errors


def _placed(config: TubeConfig, drafts: Sequence[Draft], seqs: Sequence[int], at: int) -> Iterator[Placed]:
    """Fresh tasks as the database has stored them. They differ in number, data, pri and lane alone."""
    first = rules.put(config, drafts[0], at, 0, 0).after
    state, reason, rest = first.state, first.reason, first[_LANE + 1 :]
    default_pri, shared_lane = config.pri, config.lane_of(None)
    new = tuple.__new__
    for draft, seq in zip(drafts, seqs, strict=True):
        pri = default_pri if draft.pri is None else draft.pri
        yield Placed(new(Record, (seq, seq, state, reason, draft.data, pri, draft.lane or shared_lane, *rest)), "new")


_LANE = Record._fields.index("lane")


def text_array(values: Iterable[str]) -> str:
    """Texts as PostgreSQL reads an array: a few times as fast as the driver's way, which looks at each item's type."""
    return "{" + ",".join(['"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values]) + "}"


def int_array(values: Iterable[int | None]) -> str:
    """Whole numbers as PostgreSQL reads an array."""
    return "{" + ",".join(["null" if value is None else str(value) for value in values]) + "}"


def _unless_none(values: list[Any]) -> list[Any] | None:
    return None if values.count(None) == len(values) else values


def _each(context: Context, op: ops.Put, tube: Tube) -> Call:
    results: list[Any] = [None] * len(op.drafts)
    items: list[dict[str, Any]] = []
    for number, draft in enumerate(op.drafts):
        try:
            check(tube.config, draft)
        except PenstockError as error:
            results[number] = error
        else:
            items.append(_item(number, draft))
    bodies = [draft.data for draft in op.drafts] if tube.config.payload == "bytes" else None

    def read(answer: Answer) -> list[Placed | PenstockError]:
        for row in answer.rows:
            draft = op.drafts[row[ITEM]]
            if row[KIND] == "task":
                results[row[ITEM]] = Placed(record(row), row[INFO])
            else:
                results[row[ITEM]] = refusal(row, tube.config, draft.id, draft.key)
        return results

    return Call(
        f"select * from {context.schema}.puts_{tube.number}(%s, {_CONTEXT}, %s, %s, %s::json, %s::bytea[])",
        (tube.version, *_times(context), context.relaxed, context.joined, msgspec.json.encode(items).decode(), bodies),
        read,
    )


def check(config: TubeConfig, draft: Draft) -> None:
    """Refuse a draft that does not fit the tube."""
    check_draft(config, draft)
    check_id(config, draft)
    if draft.ttl == "derived" or (draft.ttl is None and config.ttl == "derived"):
        ttr = config.ttr if draft.ttr is None else draft.ttr
        rules.derived_ttl(config, ttr, config.max_attempts if draft.max_attempts is None else draft.max_attempts)


def _item(number: int, draft: Draft) -> dict[str, Any]:
    item: dict[str, Any] = {"item": number}
    if isinstance(draft.data, str):
        item["data"] = msgspec.Raw(draft.data.encode())
    for name in ("pri", "ttr", "lane", "key", "put_id", "max_attempts", "keep", "repeat"):
        value = getattr(draft, name)
        if value is not None:
            item[name] = value
    if draft.key is not None:
        item["on_conflict"] = draft.on_conflict
    if draft.ttl == "derived":
        item["derived"] = True
    elif draft.ttl is not None:
        item["ttl"] = draft.ttl
    if draft.id is not None:
        item["id"] = stored_id(draft.id)
    item.update(_delay(draft.delay))
    return item


# -- leases --------------------------------------------------------------------------------------------


def take(context: Context, op: ops.Take, tube: Tube) -> Call:
    check_take(tube.config, op)

    def read(answer: Answer) -> list[Record] | None:
        granted = [record(row) for row in answer.rows if row[KIND] == "task"]
        if not granted and answer.rows:
            if answer.rows[0][INFO] == "again":
                raise Again
            return None
        return granted

    session = op.session
    return Call(
        f"select * from {context.schema}.take_{tube.number}(%s, {_CONTEXT}, %s, %s::uuid, %s, %s, %s, %s, %s, %s, %s)",
        (
            *(tube.version, *_times(context), context.relaxed, session.uuid, session.name, session.ttl, session.direct),
            *(op.n, op.ttr, op.lane, op.drain),
        ),
        read,
    )


def ack(context: Context, op: ops.Ack, tube: Tube, slowly: bool = False) -> Call:
    for item in op.items:
        if item.update is not None and tube.config.adopted is None:
            raise UsageError("update= changes columns of an adopted table; this tube is not adopted")
    if not slowly and not context.joined and len(op.items) == 1 and is_plain(context, tube):
        lease, result, keep, _ = op.items[0]
        if lease.token is not None and not keep and tube.config.keep == 0:
            return _ack_one(context, op, tube, lease)
    return _ack_many(context, op, tube)


def _ack_one(context: Context, op: ops.Ack, tube: Tube, lease: ops.Lease) -> Call:
    def read(rows: list[Row]) -> Any:
        if rows[0][0] is None:
            raise Unusual
        return [Gone(rows[0][0])]

    return Call(
        f"select * from {context.schema}.ack1_{tube.number}(%s, %s, %s, %s::uuid, %s, %s)",
        (tube.version, context.now, context.relaxed, op.session.uuid, _task(tube, lease.id), lease.token),
        read,
        raw=True,
    )


def _ack_many(context: Context, op: ops.Ack, tube: Tube) -> Call:
    def read(answer: Answer) -> list[Record | Gone | PenstockError]:
        results: list[Any] = [None] * len(op.items)
        gone: Any = None
        for row in answer.rows:
            if row[KIND] == "task":
                results[row[ITEM] - 1] = record(row)
            elif row[INFO] == "gone":
                gone = Gone(row[AT])
            else:
                results[row[ITEM] - 1] = refusal(row, tube.config, op.items[row[ITEM] - 1].lease.id)
        return [gone if result is None else result for result in results]

    items = op.items
    keeps = [item.keep for item in items]
    return Call(
        f"select * from {context.schema}.ack_{tube.number}"
        f"(%s, {_CONTEXT}, %s, %s, %s::uuid, %s::text[], %s::bigint[], %s::text[], %s::bigint[])",
        (
            *(tube.version, *_times(context), context.relaxed, context.joined, op.session.uuid),
            _ids(tube, [item.lease.id for item in items]),
            int_array([item.lease.token for item in items]),
            _unless_none([item.result for item in items]),
            None if keeps.count(None) == len(keeps) else int_array(keeps),
        ),
        read,
    )


def release(context: Context, op: ops.Release, tube: Tube) -> Call:
    config = tube.config
    check_delay(config, op.delay)
    if op.pri is not None and not config.features.pri:
        raise missing(config, "pri", "pri")
    check_ttl(config, op.ttl)
    if op.data is not None:
        check_draft(config, Draft(op.data))
    text = op.data if isinstance(op.data, str) else None
    body = op.data if isinstance(op.data, bytes) else None
    args = {"pri": op.pri, "ttl": op.ttl, "data": text, "refund": op.refund, **_delay(op.delay)}
    return _act(context, tube, "release", op.lease.id, args, op.lease.token, op.session, body)


def bury(context: Context, op: ops.Bury, tube: Tube) -> Call:
    return _act(context, tube, "bury", op.lease.id, {"error": op.error}, op.lease.token, op.session)


def fail(context: Context, op: ops.Fail, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    args = {"error": op.error, "abort": op.abort, **_delay(op.delay)}
    return _act(context, tube, "fail", op.lease.id, args, op.lease.token, op.session)


def touch(context: Context, op: ops.Touch, tube: Tube) -> Call:
    if not tube.config.features.ttr:
        raise missing(tube.config, "touch", "ttr")
    return _act(context, tube, "touch", op.lease.id, {"by": op.by}, op.lease.token, op.session)


def _act(
    context: Context,
    tube: Tube,
    verb: str,
    task_id: TaskId | None,
    args: dict[str, Any],
    token: int | None = None,
    session: Session | None = None,
    body: bytes | None = None,
) -> Call:
    """A verb on one task."""

    def read(answer: Answer) -> Record | None:
        if not answer.rows:
            return None
        row = answer.rows[-1]
        if row[KIND] == "error":
            raise refusal(row, tube.config, task_id)
        return record(row)

    given = {name: value for name, value in args.items() if value is not None}
    return Call(
        f"select * from {context.schema}.act(%s, %s, {_CONTEXT}, %s, %s, %s, %s, %s::uuid, %s::json, %s::bytea)",
        (
            *(tube.number, tube.version, *_times(context), context.relaxed, verb, _task(tube, task_id), token),
            *(None if session is None else session.uuid, msgspec.json.encode(given).decode(), body),
        ),
        read,
    )


# -- by hand -------------------------------------------------------------------------------------------


def peek(context: Context, op: ops.Peek, tube: Tube) -> Call:
    return _act(context, tube, "peek", op.id, {})


def watch(context: Context, op: ops.Watch, tube: Tube) -> Call:
    return _act(context, tube, "watch", op.id, {"until": op.until})


def kick(context: Context, op: ops.Kick, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    check_ttl(tube.config, op.ttl)
    return _act_many(context, tube, "kick", op.n, {"ttl": op.ttl, **_delay(op.delay)})


def dig(context: Context, op: ops.Dig, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    check_ttl(tube.config, op.ttl)
    return _act(context, tube, "dig", op.id, {"ttl": op.ttl, **_delay(op.delay)})


def delete(context: Context, op: ops.Delete, tube: Tube) -> Call:
    return _act(context, tube, "delete", op.id, {})


def release_all(context: Context, op: ops.ReleaseAll, tube: Tube) -> Call:
    return _act_many(context, tube, "release_all", None, {})


def snatch(context: Context, op: ops.Snatch, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    return _act(context, tube, "snatch", op.id, _delay(op.delay))


def switch(context: Context, op: ops.Switch, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    if op.state == State.TAKEN:
        raise UsageError("a task cannot be switched to taken; take it instead")
    if op.state == State.DELAYED and op.delay is None:
        raise UsageError("switching a task to delayed needs delay=")
    return _act(context, tube, "switch", op.id, {"state": op.state.value, **_delay(op.delay)})


def restart(context: Context, op: ops.Restart, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    return _act(context, tube, "restart", op.id, _delay(op.delay))


def cancel(context: Context, op: ops.Cancel, tube: Tube) -> Call:
    return _act(context, tube, "cancel", op.id, {"key": op.key})


def add_retries(context: Context, op: ops.AddRetries, tube: Tube) -> Call:
    return _act_many(context, tube, "add_retries", op.n, {})


def _act_many(context: Context, tube: Tube, verb: str, n: int | None, args: dict[str, Any]) -> Call:
    """A verb on many tasks; answers how many."""
    given = {name: value for name, value in args.items() if value is not None}
    return Call(
        f"select * from {context.schema}.act_many(%s, %s, {_CONTEXT}, %s, %s, %s, %s::json)",
        (tube.number, tube.version, *_times(context), context.relaxed, verb, n, msgspec.json.encode(given).decode()),
        lambda answer: answer.rows[-1][AT],
    )


def list_tasks(context: Context, op: ops.ListTasks, tube: Tube) -> Call:
    counted = tube.config.id in ("auto", "time64") and tube.config.adopted is None and isinstance(op.after, int)

    def read(answer: Answer) -> list[Record]:
        if answer.rows and answer.rows[-1][KIND] == "error" and answer.rows[-1][INFO] == "TaskNotFound":
            raise refusal(answer.rows[-1], tube.config, op.after)
        return [record(row) for row in answer.rows if row[KIND] == "task"]

    return Call(
        f"select * from {context.schema}.list_tasks(%s, {_CONTEXT}, %s, %s, %s, %s)",
        (
            *(tube.number, *_times(context), op.state, op.limit),
            *(op.after if counted else None, None if counted else _task(tube, op.after)),
        ),
        read,
    )


# -- counters ------------------------------------------------------------------------------------------


def get_statistics(context: Context, tubes: dict[int, str], number: int | None) -> Call:
    def read(answer: Answer) -> dict[str, Statistics]:
        found: dict[str, dict[str, int]] = {name: {} for name in sorted(tubes.values())}
        for row in answer.rows:
            if row[1] in tubes:
                found[tubes[row[1]]][row[INFO]] = row[AT]
        return {name: _statistics(numbers) for name, numbers in found.items()}

    return Call(f"select * from {context.schema}.read_statistics({_CONTEXT}, %s)", (*_times(context), number), read)


def _statistics(numbers: dict[str, int]) -> Statistics:
    tasks = {state.value: numbers.get(state.value, 0) for state in State if state != State.DONE}
    total = sum(tasks.values())
    calls = {event.value: numbers.get(f"c:{event.value}", 0) for event in CALLS}
    return Statistics({**tasks, "kept": numbers.get("done", 0), "done": numbers.get("ended", 0), "total": total}, calls)


def read_history(context: Context, op: ops.ReadHistory) -> Call:
    def read(answer: Answer) -> list[HistoryRow]:
        rows = answer.rows
        return [
            HistoryRow._make([*row[:3], answers.task_id(row[3]), *row[4:18], row[18] if row[19] is None else row[19]])
            for row in rows
        ]

    return Call(f"select * from {context.schema}.read_history(%s, %s, %s)", (op.tube, op.after, op.limit), read)


def forget_history(context: Context, op: ops.ForgetHistory) -> Call:
    return Call(
        f"with old as (delete from {context.schema}.events where seq <= %s returning 1) "
        "select 'value', null::int, null::int, null, count(*) from old",
        (op.upto,),
        lambda answer: answer.rows[0][AT],
    )


# -- sessions and time ---------------------------------------------------------------------------------


def open_session(context: Context, op: ops.OpenSession) -> Call:
    session = op.session
    return Call(
        f"select * from {context.schema}.open_session({_CONTEXT}, %s::uuid, %s, %s, %s)",
        (*_times(context), session.uuid, session.name, session.ttl, session.direct),
        lambda answer: None,
    )


def identify(context: Context, op: ops.Identify) -> Call:
    def read(answer: Answer) -> Session:
        row = answer.rows[-1]
        kind, _, name = row[INFO].partition(" ")
        if kind == "SessionExpired":
            raise SessionExpired("no session with this uuid lives: it is unknown or has ended")
        return Session(op.uuid, name, row[AT], kind == "direct")

    return Call(
        f"select * from {context.schema}.identify({_CONTEXT}, %s::uuid, %s::uuid)",
        (*_times(context), op.uuid, op.leave.uuid),
        read,
    )


def keep_alive(context: Context, op: ops.KeepAlive) -> Call:
    session = op.session
    return Call(
        f"select * from {context.schema}.extend_session({_CONTEXT}, %s::uuid, %s, %s, %s, %s)",
        (*_times(context), session.uuid, session.name, session.ttl, session.direct, op.until),
        lambda answer: [row[AT] for row in answer.rows if row[INFO] == "cancelled"],
    )


def end_session(context: Context, op: ops.EndSession) -> Call:
    return Call(
        f"select * from {context.schema}.close_session({_CONTEXT}, %s::uuid)",
        (*_times(context), op.session.uuid),
        lambda answer: answer.rows[-1][AT],
    )


def tick(context: Context, op: ops.Tick) -> Call:
    return Call(f"select * from {context.schema}.tick({_CONTEXT})", _times(context), lambda answer: answer.rows[-1][AT])


class KeepTime(ops.Tick):
    """The tick of a keeper, which leaves to other processes what they are about to do."""

    __slots__ = ()


def keep_time(context: Context, op: KeepTime) -> Call:
    return Call(
        f"select * from {context.schema}.keep_time(%s::uuid[], %s::int[])",
        (context.kept, context.listened),
        lambda answer: answer.rows[-1][AT],
    )


def get_state(context: Context, op: ops.GetState) -> Call:
    return Call(
        f"select 'value', null::int, null::int, {context.schema}.state(), null",
        (),
        lambda answer: answer.rows[0][INFO],
    )


TUBE_CALLS: dict[type[ops.Op[Any]], Callable[[Context, Any, Tube], Call]] = {
    ops.Put: put,
    ops.Take: take,
    ops.Ack: ack,
    ops.Release: release,
    ops.Bury: bury,
    ops.Fail: fail,
    ops.Touch: touch,
    ops.Peek: peek,
    ops.Watch: watch,
    ops.Kick: kick,
    ops.Dig: dig,
    ops.Delete: delete,
    ops.ReleaseAll: release_all,
    ops.Snatch: snatch,
    ops.Switch: switch,
    ops.Restart: restart,
    ops.Cancel: cancel,
    ops.AddRetries: add_retries,
    ops.ListTasks: list_tasks,
}
STORE_CALLS: dict[type[ops.Op[Any]], Callable[[Context, Any], Call]] = {
    ops.ReadHistory: read_history,
    ops.ForgetHistory: forget_history,
    ops.OpenSession: open_session,
    ops.Identify: identify,
    ops.KeepAlive: keep_alive,
    ops.EndSession: end_session,
    ops.Tick: tick,
    KeepTime: keep_time,
    ops.GetState: get_state,
}
