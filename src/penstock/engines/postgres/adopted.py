"""Calls on a tube that is a table of the user's.

Their rows are filled with data from the user's columns, and what the table refuses is told without harm to others:
each call, or each item of one, is all or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from psycopg.pq import TransactionStatus

from penstock.engines.adoption import check_kept, check_task_id, storable, take_moved
from penstock.engines.postgres.answers import INFO, ITEM, KIND, Answer, Tube, record, refusal, stored_id
from penstock.engines.postgres.call import CONTEXT, Call, Context, times
from penstock.engines.postgres.puts import check, item_of
from penstock.model import ops
from penstock.model.errors import DuplicateKey, PenstockError, UsageError
from penstock.model.task import Draft, Placed, TaskId
from penstock.model.tube import TubeConfig

Build = Callable[[Context, Any, Tube], Call]
REFUSALS = ("22", "23", "44", "P0")
"""Classes of errors by which a table, or a trigger of the user's, says no."""
OWN = {"PS064": UsageError, "PS071": DuplicateKey}


def build(context: Context, op: Any, tube: Tube, ordinary: Build) -> Call:
    """The call of an op on an adopted tube."""
    if isinstance(op, ops.Put):
        return _put(context, op, tube)
    if isinstance(op, ops.Ack):
        return _ack(context, op, tube)
    call = ordinary(context, _with_checked_ids(op, tube.config), tube)
    function = call.sql.removeprefix("select * from ")
    return call._replace(
        sql=f"select f.* from {context.schema}.usable({tube.number}) ok, lateral {function} a, "
        f"lateral {context.schema}.filled(a) f"
    )


@contextmanager
def guarded(connection: psycopg.Connection[Any], tube: Tube) -> Iterator[None]:
    """What the table refuses has changed nothing, and other ops of the same transaction go on."""
    inside = connection.info.transaction_status != TransactionStatus.IDLE
    try:
        with connection.transaction() if inside else nullcontext():
            yield
    except psycopg.Error as error:
        if told := refused(tube, error.sqlstate or "", error.diag.message_primary or str(error)):
            raise told from None
        raise


def refused(tube: Tube, sqlstate: str, message: str) -> PenstockError | None:
    """The error of a refusal; None if it was none of the table's."""
    if sqlstate in OWN:
        return OWN[sqlstate](message)
    if not sqlstate.startswith(REFUSALS) and sqlstate != "428C9":
        return None
    assert tube.config.adopted is not None
    return UsageError(f"table {tube.config.adopted['table']!r} refuses this: {message}")


def _key(config: TubeConfig, task_id: TaskId) -> TaskId:
    parts = check_task_id(config, task_id)
    return parts if len(parts) > 1 else parts[0]


def _with_checked_ids(op: Any, config: TubeConfig) -> Any:
    if isinstance(op, ops.Release | ops.Bury | ops.Fail | ops.Touch):
        return replace(op, lease=op.lease._replace(id=_key(config, op.lease.id)))
    if isinstance(op, ops.ListTasks):
        return op if op.after is None else replace(op, after=_key(config, op.after))
    return replace(op, id=_key(config, op.id)) if getattr(op, "id", None) is not None else op


def _put(context: Context, op: ops.Put, tube: Tube) -> Call:
    results: list[Any] = [None] * len(op.drafts)
    items: list[dict[str, Any]] = []
    for number, draft in enumerate(op.drafts):
        try:
            items.append(item_of(number, _placed(tube.config, draft)))
        except PenstockError as error:
            results[number] = error

    def read(answer: Answer) -> list[Placed | PenstockError]:
        for row in answer.rows:
            draft = op.drafts[row[ITEM]]
            if row[KIND] == "task":
                results[row[ITEM]] = Placed(record(row), row[INFO])
            else:
                results[row[ITEM]] = _refusal(row, tube, draft.id, draft.key)
        return results

    return Call(
        f"select * from {context.schema}.put_rows_{tube.number}(%s, {CONTEXT}, %s, %s, %s::json)",
        (tube.version, *times(context), context.relaxed, context.joined, msgspec.json.encode(items).decode()),
        read,
    )


def _refusal(row: Any, tube: Tube, task_id: Any, key: str | None = None) -> PenstockError:
    code, _, info = row[INFO].partition(" ")
    if code != "Refused":
        return refusal(row, tube.config, task_id, key)
    sqlstate, _, message = info.partition(" ")
    told = refused(tube, sqlstate, message)
    assert told is not None
    return told


def _placed(config: TubeConfig, draft: Draft) -> Draft:
    """A draft whose data are free columns alone: those of the key, the lane and the priority go where they belong."""
    adopted = config.adopted
    assert adopted is not None
    check(config, draft)
    check_kept(config, draft.keep or 0)
    if draft.max_attempts is not None and not adopted["buried"]:
        raise UsageError(f"tube {config.name!r} was adopted with buried=False: max_attempts needs the feature buried")
    if draft.id is not None:
        draft = draft._replace(id=_key(config, draft.id))
    columns = json.loads(draft.data)
    if isinstance(columns, list) and adopted["retval"] == "tuple":
        return draft
    if not isinstance(columns, dict):
        raise UsageError(f"the data of an adopted table is a mapping of columns, got {str(draft.data)[:100]}")
    parts = [None] * len(adopted["key"]) if draft.id is None else check_task_id(config, draft.id)
    for name, part in zip(adopted["key"], parts, strict=True):
        if columns.pop(name, part) != part:
            raise UsageError(f"the data has another {name!r} than the id of the task: {part!r}")
    moved = take_moved(config, columns)
    return draft._replace(
        data=json.dumps(columns, ensure_ascii=False),
        lane=moved.lane if moved.has_lane else draft.lane,
        pri=draft.pri if moved.pri is None else moved.pri,
    )


def _ack(context: Context, op: ops.Ack, tube: Tube) -> Call:
    config = tube.config
    results: list[Any] = [None] * len(op.items)
    items: list[dict[str, Any]] = []
    for number, (lease, result, keep, update) in enumerate(op.items):
        try:
            if keep is not None and keep != config.keep:
                check_kept(config, keep)
            task_id = stored_id(_key(config, lease.id))
            given = {"token": lease.token, "result": result, "keep": keep, "update": update_of(tube, update)}
        except PenstockError as error:
            results[number] = error
        else:
            items.append({"item": number, "id": task_id, **{k: v for k, v in given.items() if v is not None}})

    def read(answer: Answer) -> list[Any]:
        for row in answer.rows:
            task_id = op.items[row[ITEM]].lease.id
            results[row[ITEM]] = record(row) if row[KIND] == "task" else _refusal(row, tube, task_id)
        return results

    return Call(
        f"select * from {context.schema}.ack_rows_{tube.number}(%s, {CONTEXT}, %s, %s, %s::uuid, %s::json)",
        (
            *(tube.version, *times(context), context.relaxed, context.joined, op.session.uuid),
            msgspec.json.encode(items).decode(),
        ),
        read,
    )


def update_of(tube: Tube, update: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What update= changes: columns, and the lane and the priority if theirs are among them."""
    if update is None:
        return None
    if tube.config.adopted is None:
        raise UsageError("update= changes columns of an adopted table; this tube is not adopted")
    if not isinstance(update, Mapping):
        raise UsageError(f"update is a mapping of columns, got {update!r}")
    columns = dict(update)
    moved = take_moved(tube.config, columns)
    changed: dict[str, Any] = {"columns": {name: _value(name, value) for name, value in columns.items()}}
    if moved.pri is not None:
        changed["pri"] = moved.pri
    if moved.has_lane:
        changed["lane"] = moved.lane
    return changed


def _value(name: str, value: Any) -> Any:
    """A value as JSON has it; the column's own type reads the text of the others."""
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, dict | list):
        return value
    if isinstance(value, datetime | date | time | Decimal | UUID):
        return str(value)
    return storable(name, value)
