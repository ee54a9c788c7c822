"""Tasks and tubes as JSON documents and as rows of tables."""

from __future__ import annotations

import json
from typing import Any

from penstock.blocking import Task, Tube
from penstock.cli import output
from penstock.cli.values import shown_id
from penstock.model import retry
from penstock.model.duration import FOREVER
from penstock.model.stats import Statistics

TASK = (
    *("id", "tube", "state", "reason", "data", "pri", "lane", "key", "attempt", "max_attempts", "ttl", "ttr"),
    *("created_at", "ready_at", "expires_at", "deadline", "done_at", "purge_at", "error", "errors", "result"),
    "cancel_asked",
)
"""What a task's document has, in this order."""
COLUMNS = ("id", "state", "reason", "pri", "lane", "key", "attempt", "created_at", "error", "data")
NUMBERS = ("pri", "attempt", "max_attempts", "ttl", "ttr")
SPARE = ("created_at", "reason", "pri", "attempt", "key", "lane", "error")
"""Columns that a narrow terminal does without, the first one first."""
LONG = ("data", "error", "errors", "result")


def task(task: Task, **more: Any) -> dict[str, Any]:
    """All about a task; what never ends is null."""
    return {**{name: _plain(getattr(task, name)) for name in TASK}, **more}


def _plain(value: Any) -> Any:
    return None if value == float("inf") else value


def cell(task: Task, name: str) -> Any:
    """What stands in a column. Of an error it is the first line."""
    if name == "id":
        return shown_id(task.id)
    value = getattr(task, name)
    if name == "data":
        return data_text(value, one_line=True)
    if name == "error" and value:
        return value.partition("\n")[0]
    return value


def data_text(data: Any, one_line: bool = False) -> str:
    """Data as people read it: JSON. Bytes that are text are shown as it."""
    if isinstance(data, bytes):
        return data.decode(errors="backslashreplace")
    text = json.dumps(data, ensure_ascii=False)
    return text or '""' if one_line else text


def show(found: Task, **more: Any) -> None:
    """Print one task: what there is about it."""
    if output.as_json():
        output.json_line(task(found, **more))
        return
    pairs = {name: cell(found, name) for name in TASK if name != "errors"}
    pairs["error"] = found.error
    told = ("id", "tube", "state", "data", "attempt")
    output.fields({name: value for name, value in {**pairs, **more}.items() if name in told or value})


def tube(tube: Tube, statistics: Statistics) -> dict[str, Any]:
    """A tube: its settings as create takes them, and how many tasks it has."""
    options = tube.options
    paused, temporary = options.pop("paused"), options.pop("temporary")
    options["retry"] = retry.to_json(options["retry"])
    for name in ("keep", "keep_failed"):
        options[name] = _kept(options[name])
    return {
        "name": tube.name,
        "kind": tube.kind,
        "paused": paused,
        "temporary": temporary,
        "options": {name: _plain(value) for name, value in options.items()},
        "tasks": statistics.tasks,
    }


def _kept(value: float | None) -> Any:
    if value is None:
        return None
    return value if 0 < value < FOREVER / 1_000_000 else bool(value)
