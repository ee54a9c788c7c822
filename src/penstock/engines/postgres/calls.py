"""Every op as a call of a function in the database, in the order of model/ops.py.

A call is a statement with its parameters, and how to read what comes back. Ops that change the shape of the
store (tubes.py) are the exception: they take several statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.engines.postgres import answers, ledger
from penstock.engines.postgres.adopted import update_of
from penstock.engines.postgres.answers import AT, INFO, ITEM, KIND, Again, Answer, Row, Tube, Unusual, record, refusal
from penstock.engines.postgres.call import (
    CONTEXT,
    Call,
    Context,
    delay_of,
    id_of,
    ids_of,
    int_array,
    text_array,
    times,
    unless_none,
)
from penstock.engines.postgres.puts import is_plain, put
from penstock.engines.verbs.checks import check_delay, check_ttl, missing
from penstock.engines.verbs.leases import check_take
from penstock.engines.verbs.putting import check_draft
from penstock.model import ops
from penstock.model.errors import PenstockError, SessionExpired, TaskNotFound, UsageError
from penstock.model.ledger import MOST
from penstock.model.session import Session
from penstock.model.state import State
from penstock.model.stats import CALLS, Statistics
from penstock.model.task import Draft, Gone, HistoryRow, Record, TaskId

# -- leases --------------------------------------------------------------------------------------------


def take(context: Context, op: ops.Take, tube: Tube, slowly: bool = False) -> Call:
    check_take(tube.config, op)
    if not slowly and op.n == 1 and not op.drain and not tube.config.features.lanes and is_plain(context, tube):
        return Call(
            f"select * from {context.schema}.take1_{tube.number}(%s, %s, %s, %s::uuid, %s)",
            (tube.version, context.now, context.relaxed, op.session.uuid, op.ttr),
            _granted,
        )
    session = op.session
    return Call(
        f"select * from {context.schema}.take_{tube.number}(%s, {CONTEXT}, %s, %s::uuid, %s, %s, %s, %s, %s, %s, %s)",
        (
            *(tube.version, *times(context), context.relaxed, session.uuid, session.name, session.ttl, session.direct),
            *(op.n, op.ttr, op.lane, op.drain),
        ),
        _granted,
    )


def _granted(answer: Answer) -> list[Record] | None:
    granted = [record(row) for row in answer.rows if row[KIND] == "task"]
    said = answer.rows[-1][INFO] if answer.rows and answer.rows[-1][KIND] == "error" else None
    if said == "again":
        raise Again(granted)
    if said == "unusual":
        raise Unusual
    return None if said is not None else granted


def ack(context: Context, op: ops.Ack, tube: Tube, slowly: bool = False) -> Call:
    for item in op.items:
        if item.update is not None and tube.config.adopted is None:
            raise UsageError("update= changes columns of an adopted table; this tube is not adopted")
    if not slowly and not context.joined and len(op.items) == 1 and is_plain(context, tube):
        lease, _, keep, _ = op.items[0]
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
        (tube.version, context.now, context.relaxed, op.session.uuid, id_of(tube, lease.id), lease.token),
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
        f"(%s, {CONTEXT}, %s, %s, %s::uuid, %s::text[], %s::bigint[], %s::text[], %s::bigint[])",
        (
            *(tube.version, *times(context), context.relaxed, context.joined, op.session.uuid),
            ids_of(tube, [item.lease.id for item in items]),
            int_array([item.lease.token for item in items]),
            unless_none([item.result for item in items]),
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
    args: dict[str, Any] = {"pri": op.pri, "ttl": op.ttl, "data": text, "refund": op.refund, **delay_of(op.delay)}
    args["update"] = update_of(tube, op.update)
    return _act(context, tube, "release", op.lease.id, args, op.lease.token, op.session, body)


def bury(context: Context, op: ops.Bury, tube: Tube) -> Call:
    args = {"error": op.error, "update": update_of(tube, op.update)}
    return _act(context, tube, "bury", op.lease.id, args, op.lease.token, op.session)


def fail(context: Context, op: ops.Fail, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    args = {"error": op.error, "abort": op.abort, **delay_of(op.delay)}
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
            raise refusal(row, tube.config, task_id, verb=verb)
        return record(row)

    given = {name: value for name, value in args.items() if value is not None}
    return Call(
        f"select * from {context.schema}.act(%s, %s, {CONTEXT}, %s, %s, %s, %s, %s::uuid, %s::json, %s::bytea)",
        (
            *(tube.number, tube.version, *times(context), context.relaxed, verb, id_of(tube, task_id), token),
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
    args = {"ttl": op.ttl, "update": update_of(tube, op.update), **delay_of(op.delay)}
    return _act_many(context, tube, "kick", op.n, args)


def dig(context: Context, op: ops.Dig, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    check_ttl(tube.config, op.ttl)
    args = {"ttl": op.ttl, "update": update_of(tube, op.update), **delay_of(op.delay)}
    return _act(context, tube, "dig", op.id, args)


def delete(context: Context, op: ops.Delete, tube: Tube) -> Call:
    return _act(context, tube, "delete", op.id, {})


def release_all(context: Context, op: ops.ReleaseAll, tube: Tube) -> Call:
    return _act_many(context, tube, "release_all", None, {})


def snatch(context: Context, op: ops.Snatch, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    return _act(context, tube, "snatch", op.id, delay_of(op.delay))


def switch(context: Context, op: ops.Switch, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    if op.state == State.TAKEN:
        raise UsageError("a task cannot be switched to taken; take it instead")
    if op.state == State.DELAYED and op.delay is None:
        raise UsageError("switching a task to delayed needs delay=")
    return _act(context, tube, "switch", op.id, {"state": op.state.value, **delay_of(op.delay)})


def restart(context: Context, op: ops.Restart, tube: Tube) -> Call:
    check_delay(tube.config, op.delay)
    return _act(context, tube, "restart", op.id, delay_of(op.delay))


def cancel(context: Context, op: ops.Cancel, tube: Tube) -> Call:
    return _act(context, tube, "cancel", op.id, {"key": op.key})


def add_retries(context: Context, op: ops.AddRetries, tube: Tube) -> Call:
    return _act_many(context, tube, "add_retries", op.n, {})


def _act_many(context: Context, tube: Tube, verb: str, n: int | None, args: dict[str, Any]) -> Call:
    """A verb on many tasks; answers how many."""
    given = {name: value for name, value in args.items() if value is not None}
    return Call(
        f"select * from {context.schema}.act_many(%s, %s, {CONTEXT}, %s, %s, %s, %s::json)",
        (tube.number, tube.version, *times(context), context.relaxed, verb, n, msgspec.json.encode(given).decode()),
        lambda answer: answer.rows[-1][AT],
    )


def list_tasks(context: Context, op: ops.ListTasks, tube: Tube) -> Call:
    counted = tube.config.id in ("auto", "time64") and tube.config.adopted is None and isinstance(op.after, int)

    def read(answer: Answer) -> list[Record]:
        if answer.rows and answer.rows[-1][KIND] == "error" and answer.rows[-1][INFO] == "TaskNotFound":
            raise TaskNotFound(f"there is no task {op.after!r} to list from")
        return [record(row) for row in answer.rows if row[KIND] == "task"]

    return Call(
        f"select * from {context.schema}.list_tasks(%s, {CONTEXT}, %s, %s, %s, %s)",
        (
            *(tube.number, *times(context), op.state, op.limit),
            *(op.after if counted else None, None if counted else id_of(tube, op.after)),
        ),
        read,
    )


def get_extent(context: Context, op: ops.GetExtent, tube: Tube) -> Call:
    def read(answer: Answer) -> tuple[int, int] | None:
        found = [row[AT] for row in answer.rows if row[INFO] == "extent"]
        return (found[0], found[1]) if found else None

    return Call(f"select * from {context.schema}.get_extent(%s, {CONTEXT})", (tube.number, *times(context)), read)


# -- counters ------------------------------------------------------------------------------------------


def get_statistics(context: Context, tubes: dict[int, str], number: int | None) -> Call:
    def read(answer: Answer) -> dict[str, Statistics]:
        found: dict[str, dict[str, int]] = {name: {} for name in sorted(tubes.values())}
        for row in answer.rows:
            if row[1] in tubes:
                found[tubes[row[1]]][row[INFO]] = row[AT]
        return {name: _statistics(numbers) for name, numbers in found.items()}

    return Call(f"select * from {context.schema}.read_statistics({CONTEXT}, %s)", (*times(context), number), read)


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

    upto = MOST if op.upto is None else op.upto
    sql = f"select * from {context.schema}.read_history(%s, %s, %s, %s)"
    return Call(sql, (op.tube, op.after, upto, op.limit), read)


def forget_history(context: Context, op: ops.ForgetHistory) -> Call:
    return Call(f"select {context.schema}.forget_history(%s)", (op.upto,), lambda rows: rows[0][0], raw=True)


# -- sessions and time ---------------------------------------------------------------------------------


def open_session(context: Context, op: ops.OpenSession) -> Call:
    session = op.session
    return Call(
        f"select * from {context.schema}.open_session({CONTEXT}, %s::uuid, %s, %s, %s)",
        (*times(context), session.uuid, session.name, session.ttl, session.direct),
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
        f"select * from {context.schema}.identify({CONTEXT}, %s::uuid, %s::uuid)",
        (*times(context), op.uuid, op.leave.uuid),
        read,
    )


def keep_alive(context: Context, op: ops.KeepAlive) -> Call:
    session = op.session
    return Call(
        f"select * from {context.schema}.extend_session({CONTEXT}, %s::uuid, %s, %s, %s, %s)",
        (*times(context), session.uuid, session.name, session.ttl, session.direct, op.until),
        lambda answer: [row[AT] for row in answer.rows if row[INFO] == "cancelled"],
    )


def keep_all_alive(context: Context, requests: Sequence[ops.KeepAlive]) -> tuple[str, tuple[Any, ...]]:
    """A statement that does the same for many, and its parameters; rows begin with whose they are."""
    sessions = [op.session for op in requests]
    sql = (
        "select s.place, a.* from unnest(%s::uuid[], %s::text[], %s::bigint[], %s::boolean[], %s::bigint[]) "
        "with ordinality s (uuid, name, ttl, direct, until, place), "
        f"lateral {context.schema}.extend_session({CONTEXT}, s.uuid, s.name, s.ttl, s.direct, s.until) a"
    )
    columns = (
        text_array(session.uuid for session in sessions),
        text_array(session.name for session in sessions),
        int_array(session.ttl for session in sessions),
        text_array(str(session.direct) for session in sessions),
        int_array(op.until for op in requests),
    )
    return sql, (*columns, *times(context))


def end_session(context: Context, op: ops.EndSession) -> Call:
    return Call(
        f"select * from {context.schema}.close_session({CONTEXT}, %s::uuid)",
        (*times(context), op.session.uuid),
        lambda answer: answer.rows[-1][AT],
    )


def list_leases(context: Context, op: ops.ListLeases) -> Call:
    def read(rows: Any) -> list[ops.Held]:
        return [ops.Held(tube, answers.task_id(task), token) for tube, _, task, token in sorted(rows)]

    return Call(
        f"select * from {context.schema}.list_leases(%s, %s::uuid, %s)",
        (context.now, op.session.uuid, op.here),
        read,
        raw=True,
    )


def tick(context: Context, op: ops.Tick) -> Call:
    return Call(f"select * from {context.schema}.tick({CONTEXT})", times(context), lambda answer: answer.rows[-1][AT])


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


def get_moment(context: Context, op: ops.GetMoment) -> Call:
    return Call(
        f"select 'value', null::int, null::int, null, {context.schema}.now_us(%s)",
        (context.now,),
        lambda answer: answer.rows[0][AT],
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
    ops.GetExtent: get_extent,
}
STORE_CALLS: dict[type[ops.Op[Any]], Callable[[Context, Any], Call]] = {
    ops.ReadHistory: read_history,
    ops.ForgetHistory: forget_history,
    **ledger.CALLS,
    ops.OpenSession: open_session,
    ops.Identify: identify,
    ops.KeepAlive: keep_alive,
    ops.EndSession: end_session,
    ops.ListLeases: list_leases,
    ops.Tick: tick,
    KeepTime: keep_time,
    ops.GetState: get_state,
    ops.GetMoment: get_moment,
}
