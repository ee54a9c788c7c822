"""SQL from the .sql files: named statements, and a tube's own rendered from its configuration."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from penstock.model.state import Reason, State
from penstock.model.task import Record
from penstock.model.tube import TubeConfig

COLUMNS = Record._fields
FRESH = (
    "seq", "state", "data", "pri", "max_attempts", "ttl", "ttr", "created_at", "ready_at", "expires_at", "repeat",
    "keep", "due_at",
)  # fmt: skip
"""The columns that a fresh task without key can have set, lane and place apart."""
_NAME = re.compile(r"^-- name: (\w+)\n", re.M)


@cache
def named(file: str) -> dict[str, str]:
    """The statements of a file by name, without comments."""
    parts = _NAME.split(files(__package__).joinpath(file).read_text())
    return {
        name: re.sub(r"--.*", "", text).strip().rstrip(";") for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


class Keys(NamedTuple):
    """How an adopted table is ordered and its rows are told apart; empty for tubes of our own."""

    columns: tuple[str, ...] = ()
    data: str = ""
    """The expression that makes a task's data from the user's columns."""


NO_KEYS = Keys()


def render(number: int, config: TubeConfig, keys: Keys = NO_KEYS) -> dict[str, str]:
    """All statements of one tube."""
    table = f'"penstock_tasks_{number}"'
    own_id = config.id not in ("auto", "time64") or bool(keys.columns)
    id_column = "id" if own_id else "seq"
    lanes, turns = config.features.lanes, config.lane_pick == "turns"
    by = ", ".join(f"k{i}" for i in range(len(keys.columns))) or "seq"
    order = f"pri, {by}" if config.features.pri or keys.columns else by
    shown = {"id": id_column, "data": keys.data or "data"}
    stored = [name for name in COLUMNS if name != "id" or own_id]
    values = {
        "table": table,
        "table_name": f"'penstock_tasks_{number}'",
        "head_id": "id, " if own_id else "",
        # A blob: no id that a caller can give is equal to it.
        "head_id_value": "x'00', " if own_id else "",
        "id": id_column,
        "id_column": "id NOT NULL UNIQUE," + "".join(f" k{i}," for i in range(len(keys.columns))) if own_id else "",
        "data_rule": "" if keys.columns else "NOT NULL",
        # A chain of comparisons: IN with a list would build a temporary index for every row.
        "known_state": " OR ".join(f"state = '{state}'" for state in State),
        "known_reason": "reason IS NULL OR " + " OR ".join(f"reason = '{reason}'" for reason in Reason),
        "fresh": ", ".join(FRESH),
        "fresh_marks": ", ".join("?" * len(FRESH)),
        "alike_marks": ", ".join(f"?{i}" for i in range(3, len(FRESH))),
        "alike_array": f"?{len(FRESH)}",
        "numbered_marks": ", ".join(f"?{i + 3}" for i in range(len(FRESH))),
        "columns": ", ".join(shown.get(name, name) for name in COLUMNS),
        "stored": ", ".join([*stored, *(f"k{i}" for i in range(len(keys.columns)))]),
        "marks": ", ".join("?" * (len(stored) + len(keys.columns))),
        "assignments": ", ".join(f"{name} = ?" for name in COLUMNS[2:]),
        "order": order,
        "line": ("pri, place" if config.features.pri else "place") if lanes and turns else order,
        "in_line": " AND place IS NOT NULL" if lanes else "",
        "waiting": waiting(config),
        "slot_on_take": slot_on_take(config),
        "lease": f"seq, {id_column}, token, session, deadline, "
        "keep IS NOT NULL OR repeat IS NOT NULL OR watched_until IS NOT NULL, lane",
    }
    for index in ("due", "taken", "buried", "key", "put_id", "ready", "waiting", "slot"):
        values[f"{index}_index"] = f'"penstock_tasks_{number}_{index}"'
    return {name: text.format(**values) for name, text in named("tube.sql").items()}


def waiting(config: TubeConfig) -> str:
    """Which tasks stand in a lane behind the one that stands in the line for it."""
    states = "= 'ready'" if config.lane_order == "skip" else "IN ('ready', 'delayed', 'buried')"
    return f"lane IS NOT NULL AND place IS NULL AND state {states}"


def slot_on_take(config: TubeConfig) -> str:
    """Where a lane limits concurrency its taken tasks keep a place as their slot; elsewhere they give it up."""
    if not config.features.lanes or config.lane_concurrency is not None:
        return ""
    return ", place = CASE WHEN lane IS NULL THEN place END"
