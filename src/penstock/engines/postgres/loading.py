"""Very many tasks at once, by COPY straight into the tube's table."""

from __future__ import annotations

from typing import Any

import psycopg

from penstock.engines.postgres.answers import Stale, Tube
from penstock.engines.postgres.call import Context
from penstock.engines.postgres.puts import check, is_plain
from penstock.model import ops
from penstock.model.duration import At
from penstock.model.errors import PenstockError
from penstock.model.task import Draft

CONSTANT = (
    *("state", "attempt", "failures", "max_attempts", "ttl", "ttr", "created_at", "ready_at", "expires_at"),
    *("repeat", "cancel_asked", "due_at", "due_rank"),
)
"""What all rows have in common."""
WRITE = 2000
"""Rows handed to the driver at a time, so that the server works while the next ones are made."""
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def can_copy(context: Context, op: ops.Load, tube: Tube) -> bool:
    """True if nothing has to be decided task by task."""
    config = tube.config
    lanes = op.lanes or (op.shared.lane,)
    in_turns = config.features.lanes and config.lane_pick == "turns" and not config.shared_lane
    return is_plain(context, tube) and not (in_turns and None in lanes)


def load(connection: psycopg.Connection[Any], context: Context, op: ops.Load, tube: Tube) -> list[PenstockError]:
    """Copy what is good; answers the refusals."""
    refused: list[PenstockError] = []
    if not _all_fit(op, tube):
        good: list[Draft] = []
        for draft in op.drafts():
            try:
                check(tube.config, draft)
                good.append(draft)
            except PenstockError as error:
                refused.append(error)
        data, pris, lanes = [d.data for d in good], [d.pri for d in good], [d.lane for d in good]
        op = ops.Load(op.tube, data, pris, lanes, op.shared)
    if op.data:
        _copy(connection, context, op, tube)
    return refused


def _all_fit(op: ops.Load, tube: Tube) -> bool:
    """True if it is plain without a look at each task that none will be refused."""
    longest = max(op.data, key=len)
    some_pri = next((pri for pri in op.pris or () if pri is not None), op.shared.pri)
    some_lane = next((lane for lane in op.lanes or () if lane is not None), op.shared.lane)
    try:
        check(tube.config, op.shared._replace(data=longest, pri=some_pri, lane=some_lane))
    except PenstockError:
        return False
    return len(longest) * 4 <= tube.config.max_payload  # a character has up to four bytes


def _copy(connection: psycopg.Connection[Any], context: Context, op: ops.Load, tube: Tube) -> None:
    schema, number, shared = context.schema, tube.number, op.shared
    delay, derived = shared.delay, shared.ttl == "derived"
    fields = ", ".join(f"(shared).{name}" for name in (*CONSTANT, "pri", "lane"))
    row = connection.execute(
        f"select first, {fields} from {schema}.load_begin_{number}(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        [
            *(tube.version, context.now, shared.pri, None if derived else shared.ttl, derived, shared.ttr),
            *(None if isinstance(delay, At) else delay, delay.moment if isinstance(delay, At) else None),
            *(shared.max_attempts, shared.repeat),
        ],
    ).fetchone()
    if row is None:
        raise Stale
    first, *constant = row[:-2]
    pri, common_lane = row[-2:]
    column = "body" if tube.config.payload == "bytes" else "data"
    names = ", ".join([*CONSTANT, "keep", "pri", "lane", column])
    prefix = "\t".join(map(_text, [*constant, shared.keep])) + "\t"
    lanes: dict[str, int] = {}
    with connection.cursor().copy(f"copy {schema}.tasks_{number} ({names}) from stdin") as copy:
        for start in range(0, len(op.data), WRITE):
            copy.write("".join(_lines(op, start, prefix, pri, shared.lane or common_lane, lanes)))
    connection.execute(
        f"select {schema}.load_end_{number}(%s, %s, %s, %s, %s::text[], %s::bigint[])",
        [len(op.data), constant[0], constant[CONSTANT.index("created_at")], first, list(lanes), list(lanes.values())],
    )


def _lines(op: ops.Load, start: int, prefix: str, pri: int, lane: str | None, lanes: dict[str, int]) -> list[str]:
    """Some rows as COPY reads them; `lanes` learns the best pri of each lane."""
    part = op.data[start : start + WRITE]
    texts = [f"\\\\x{data.hex()}" if isinstance(data, bytes) else data.replace("\\", "\\\\") for data in part]
    if op.pris is None and op.lanes is None:
        if lane is not None:
            lanes[lane] = pri
        head = f"{prefix}{pri}\t{_text(lane)}\t"
        return [f"{head}{text}\n" for text in texts]
    lines = []
    for index, text in enumerate(texts, start):
        own_pri = pri if op.pris is None or (given := op.pris[index]) is None else given
        own_lane = lane if op.lanes is None or (named := op.lanes[index]) is None else named
        if own_lane is not None:
            lanes[own_lane] = min(own_pri, lanes.get(own_lane, own_pri))
        lines.append(f"{prefix}{own_pri}\t{_text(own_lane)}\t{text}\n")
    return lines


def _text(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return "t" if value else "f"
    return value.translate(_ESCAPES) if isinstance(value, str) else str(value)
