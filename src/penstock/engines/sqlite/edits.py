"""What a row of an adopted table says, as a task: the rules for rows that were written by hand.

The row has one column for the time, run_at, which means what the state needs: W the moment it is due, R and B
the end of its life, T the end of the lease, Z the moment it is removed; 0 is never. The side table knows all
moments, so an unchanged run_at beside a changed letter is left over from the state before and means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.model import rules
from penstock.model.duration import FOREVER, SECOND
from penstock.model.state import Reason, State
from penstock.model.task import Draft, Record, TaskId
from penstock.model.tube import PRI_RANGE, TubeConfig

LETTERS = {State.READY: "R", State.TAKEN: "T", State.DELAYED: "W", State.BURIED: "B"}
STATES = {"R": State.READY, "T": State.TAKEN, "W": State.DELAYED, "B": State.BURIED, "Z": State.DONE, "D": State.DONE}


class Update(NamedTuple):
    """Columns that a verb changes together with the task."""

    stored: Record
    """The task as it is stored."""
    seen: Record
    """The same with its new lane and priority, which is what the verb goes on with."""
    columns: dict[str, Any]


def fresh(config: TubeConfig, task_id: TaskId, seq: int, row: Mapping[str, Any], now: int) -> Record:
    """The task of a row that was not a task before."""
    base = rules.put(config, Draft("{}"), now, seq, task_id).after
    base = _common(config, base, row)._replace(expires_at=None)
    state = STATES[row["status"]]
    run_at = moment(row)
    if state in (State.READY, State.BURIED) and config.features.ttl:
        base = base._replace(expires_at=run_at)
    return _entered(config, base, row["status"], run_at, now)


def letter_of(config: TubeConfig, record: Record) -> str:
    """xqueue's letter of a state. The triggers say the same in SQL."""
    if record.state != State.DONE:
        return LETTERS[State(record.state)]
    assert config.adopted is not None
    for_ever = record.keep == FOREVER or (record.keep is None and not config.adopted["zombie"])
    return "D" if record.purge_at is None and for_ever else "Z"


def mapped(config: TubeConfig, record: Record) -> dict[str, Any]:
    """The mapped columns of a task, by field."""
    assert config.adopted is not None
    what = rules.due(record)
    values = {
        "status": letter_of(config, record),
        "run_at": 0 if what is None else what.at / SECOND,
        "priority": record.pri,
        "lane": "" if record.lane is None and config.adopted["lane_required"] else record.lane,
        "attempts": record.attempt,
    }
    return {name: values[name] for name in config.adopted["fields"]}


def differs(config: TubeConfig, record: Record, row: Mapping[str, Any]) -> bool:
    """True if the row does not say what the task is; nothing in a column counts as zero."""
    return any((row[name] or 0) != (value or 0) for name, value in mapped(config, record).items())


def edited(config: TubeConfig, old: Record, row: Mapping[str, Any], now: int) -> Record:
    """A task whose row was changed."""
    new, letter = _common(config, old, row), letter_of(config, old)
    run_at, what = moment(row), rules.due(old)
    moved = "run_at" in row and run_at != (None if what is None else what.at)
    if row["status"] != letter:
        if moved and STATES[row["status"]] in (State.READY, State.BURIED) and config.features.ttl:
            new = new._replace(expires_at=run_at)
        return _entered(config, new, row["status"], run_at, now)
    if not moved:
        return new
    if new.state == State.TAKEN:
        return new._replace(deadline=run_at) if config.features.ttr else new
    if new.state == State.DELAYED:
        return new._replace(ready_at=run_at)
    if new.state == State.DONE:
        return new._replace(purge_at=run_at) if letter == "Z" else new
    return new._replace(expires_at=run_at) if config.features.ttl else new


def _common(config: TubeConfig, record: Record, row: Mapping[str, Any]) -> Record:
    if "priority" in row:
        record = record._replace(pri=whole(row["priority"]))
    if "lane" in row:
        lane = row["lane"]
        record = record._replace(lane=config.lane_of(None if lane is None else str(lane)))
    if "attempts" in row:
        record = record._replace(attempt=max(0, whole(row["attempts"])))
    return record


def _entered(config: TubeConfig, record: Record, letter: str, run_at: int | None, now: int) -> Record:
    """Into the state of a letter, without a lease: nobody who writes T by hand could finish the task."""
    state = State.READY if letter == "T" else STATES[letter]
    adopted = config.adopted
    assert adopted is not None
    kept = record.keep
    if state == State.DONE:
        for_ever = run_at is None or letter == "D"
        kept = FOREVER if letter == "D" else (0 if for_ever and not adopted["zombie"] else None)
    return record._replace(
        state=state.value,
        reason={State.BURIED: Reason.ASKED.value, State.DONE: Reason.SUCCESS.value}.get(state),
        ready_at=run_at if state == State.DELAYED else now,
        done_at=now if state == State.DONE else None,
        purge_at=run_at if letter == "Z" else None,
        keep=kept,
        session=None,
        token=None,
        taken_at=None,
        deadline=None,
        cancel_asked=0,
    )


def moment(row: Mapping[str, Any]) -> int | None:
    """run_at in microseconds; 0, nothing and what is no number are never."""
    value = row.get("run_at")
    if not isinstance(value, int | float) or not math.isfinite(value) or not 0 < value * SECOND < 1 << 62:
        return None
    return round(value * SECOND)


def whole(value: Any) -> int:
    """A priority or a count as a 64-bit number; what is none counts as 0."""
    if isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value) and int(value) in PRI_RANGE:
        return int(value)
    return 0
