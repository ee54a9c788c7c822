"""The rules of adopting a table that do not depend on the engine: fields, features, ids and values of columns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.model.duration import FOREVER, length
from penstock.model.errors import UsageError
from penstock.model.task import TaskId
from penstock.model.tube import (
    PRI_RANGE,
    Adoption,
    Features,
    TubeConfig,
    check_text,
    checked,
    parse_keep,
    parse_options,
)

FIELDS = {"status": "text", "run_at": "number", "priority": "number", "lane": "text", "attempts": "number"}
ALIASES = {"runat": "run_at", "tube": "lane", "pri": "priority"}
FEATURES = ("id", "retval", "buried", "delayed", "keep", "zombie", "ttl", "ttr", "tube_stats")
TIMED = ("delayed", "zombie", "ttl", "ttr")
IDS = {
    "auto_increment": "auto",
    "auto": "auto",
    "time64": "time64",
    "uuid": "uuid",
    "required": "required",
    "function": "function",
}
NOT_OPTIONS = {
    **dict.fromkeys(("id", "keep", "ttl", "ttr"), "it is one of the features={..}"),
    "payload": "the data of an adopted table are its columns",
}


class Column(NamedTuple):
    name: str
    kind: str
    """text or number; any fits both, other neither."""
    required: bool
    position: int
    """Where it stands in the primary key, from 1; 0 outside."""
    declared: str
    no_time: str | None = None
    """Why it cannot be run_at."""


class Table(NamedTuple):
    name: str
    """As the database spells it."""
    columns: list[Column]

    @property
    def key(self) -> list[str]:
        return [c.name for c in sorted(self.columns, key=lambda c: c.position) if c.position]

    def column(self, name: str) -> Column:
        return next(c for c in self.columns if c.name == name)

    def kind(self, column: str) -> str:
        return self.column(column).kind


def configured(found: Table, given: Adoption, **more: Any) -> TubeConfig:
    """Check everything adopt() was given; the first thing that is wrong is named. `more`: what the engine remembers."""
    name, _, fields, features, options = given
    mapped = check_fields(found, fields)
    asked = check_features(features, mapped)
    mode = check_id(asked, found)
    for option in options:
        if option in NOT_OPTIONS:
            raise UsageError(f"{option!r} is no option of adopt(): {NOT_OPTIONS[option]}")
    kind = Features(
        pri="priority" in mapped,
        ttl=_on(asked["ttl"]),
        ttr=_on(asked["ttr"]),
        delay=_on(asked["delayed"]),
        lanes="lane" in mapped,
    )
    config = TubeConfig(
        name,
        "adopted",
        kind,
        id=mode,
        keep=kept(asked),
        ttl=_seconds(asked["ttl"], "ttl"),
        ttr=_seconds(asked["ttr"], "ttr"),
        adopted={
            "table": found.name,
            "key": found.key,
            "kinds": [found.kind(column) for column in found.key],
            "fields": mapped,
            "lane_required": any(c.required for c in found.columns if c.name == mapped.get("lane")),
            "retval": asked["retval"] or "table",
            "buried": asked["buried"] is not False,
            "keep": bool(asked["keep"]),
            "zombie": _on(asked["zombie"]),
            "tube_stats": list(asked["tube_stats"] or ()),
            **more,
        },
        **{"lane_pick": "order", **parse_options(options, kind)},
    )
    if config.max_attempts is not None and asked["buried"] is False:
        raise UsageError("max_attempts buries a task that has used them up: it needs the feature buried")
    return checked(config)


def check_fields(table: Table, fields: Mapping[str, str] | None) -> dict[str, str]:
    """Which column is what. A status column is enough."""
    mapped: dict[str, str] = {}
    names = [column.name for column in table.columns]
    for given, column in (fields or {}).items():
        name = ALIASES.get(given, given)
        if name not in FIELDS:
            raise UsageError(f"unknown field {given!r}; there are {', '.join(FIELDS)}")
        if column not in names:
            raise UsageError(f"fields[{given!r}] names the column {column!r}, which table {table.name!r} does not have")
        if column in table.key:
            raise UsageError(f"fields[{given!r}] names {column!r}, which is part of the primary key")
        if column in mapped.values() or name in mapped:
            raise UsageError(f"fields[{given!r}]: each field has one column, and each column is one field")
        found = table.column(column)
        if found.kind not in (FIELDS[name], "any"):
            holds = f"a {found.kind}" if found.kind != "other" else found.declared
            raise UsageError(f"column {column!r} holds {holds}, the field {given!r} needs a {FIELDS[name]}")
        if name == "run_at" and found.no_time:
            raise UsageError(found.no_time)
        mapped[name] = column
    if "status" not in mapped:
        raise UsageError("adopt() needs fields={'status': column}: which column holds the letters R T W B Z D")
    return {name: mapped[name] for name in FIELDS if name in mapped}


def check_features(features: Mapping[str, Any] | None, mapped: dict[str, str]) -> dict[str, Any]:
    """What was asked for by name; None for the rest. What is not asked for is off, buried apart."""
    asked = dict.fromkeys(FEATURES)
    for name, value in (features or {}).items():
        if name not in FEATURES:
            raise UsageError(f"unknown feature {name!r}; there are {', '.join(FEATURES)}")
        asked[name] = value
    for name in TIMED:
        if _on(asked[name]) and "run_at" not in mapped:
            raise UsageError(f"the feature {name!r} needs a column for the time: fields={{'run_at': column}}")
    for name in ("buried", "delayed", "keep"):
        if asked[name] not in (None, True, False):
            raise UsageError(f"the feature {name!r} is True or False, got {asked[name]!r}")
    if asked["keep"] and _on(asked["zombie"]):
        raise UsageError("the features keep and zombie exclude each other: keep stays for ever, zombie for a while")
    if asked["retval"] not in (None, "table", "tuple"):
        raise UsageError(f"retval must be 'table' or 'tuple', got {asked['retval']!r}")
    if asked["tube_stats"] and "lane" not in mapped:
        raise UsageError("the feature 'tube_stats' needs a column for the lane: fields={'lane': column}")
    return asked


def check_id(asked: dict[str, Any], table: Table) -> Any:
    """How put makes ids; the default is uuid where the key is text, else the caller gives them."""
    mode = asked["id"]
    kind = table.kind(table.key[0]) if len(table.key) == 1 else "composite"
    if mode is None:
        return "uuid" if kind in ("text", "any") else "required"
    if mode not in IDS:
        raise UsageError(f"the feature id must be one of {', '.join(IDS)} or a function, got {mode!r}")
    names = ", ".join(table.key)
    if mode in ("auto_increment", "auto", "time64") and kind not in ("number", "any"):
        raise UsageError(f"id={mode!r} needs a numeric primary key of one column, {names} is {kind}")
    if mode == "uuid" and kind not in ("text", "any"):
        raise UsageError(f"id='uuid' needs a text primary key of one column, {names} is {kind}")
    return IDS[mode]


def kept(asked: dict[str, Any]) -> int:
    """keep and zombie=True stay for ever, zombie=seconds that long."""
    if asked["keep"]:
        return FOREVER
    return 0 if not _on(asked["zombie"]) else parse_keep(asked["zombie"], "zombie")


def _on(feature: Any) -> bool:
    """A number, 0 included, is a default and switches the feature on."""
    return feature is not None and feature is not False


def _seconds(value: Any, name: str) -> int | None:
    return None if value is None or isinstance(value, bool) else length(value, name)


# -- what verbs are given ------------------------------------------------------------------------------


def check_task_id(config: TubeConfig, task_id: TaskId) -> tuple[Any, ...]:
    """The columns of the key, from an id."""
    adopted = config.adopted
    assert adopted is not None
    names, kinds = adopted["key"], adopted["kinds"]
    parts = task_id if isinstance(task_id, tuple) else (task_id,)
    types = {"number": int, "text": str}
    fits = len(parts) == len(names) and all(
        isinstance(part, types.get(kind, int | str)) for part, kind in zip(parts, kinds, strict=True)
    )
    if not fits:
        wanted = ", ".join(f"{key} ({kind})" for key, kind in zip(names, kinds, strict=True))
        what = f"the tuple ({wanted})" if len(names) > 1 else wanted
        raise UsageError(f"an id of tube {config.name!r} is {what}, got {task_id!r}")
    return parts


def check_kept(config: TubeConfig, keep: int) -> None:
    """Whether finished rows may stay that long."""
    adopted = config.adopted
    assert adopted is not None
    if keep >= FOREVER and not (adopted["keep"] or adopted["zombie"]):
        raise UsageError(f"keep=True needs the feature keep or zombie, which tube {config.name!r} lacks")
    if 0 < keep < FOREVER and not adopted["zombie"]:
        raise UsageError(f"keep=seconds needs the feature zombie, which tube {config.name!r} lacks")


class Moved(NamedTuple):
    """What the columns of lane and priority say; None: they were not given."""

    lane: str | None = None
    pri: int | None = None
    has_lane: bool = False


def take_moved(config: TubeConfig, columns: dict[str, Any]) -> Moved:
    """Take the columns of the lane and the priority out of the columns."""
    assert config.adopted is not None
    fields = config.adopted["fields"]
    lane, priority = fields.get("lane"), fields.get("priority")
    name, pri, has_lane = None, None, lane in columns
    if has_lane:
        name = config.lane_of(check_text(columns.pop(lane), "lane"))
    if priority in columns:
        pri = columns.pop(priority)
        if type(pri) is not int or pri not in PRI_RANGE:
            raise UsageError(f"{priority} must be a signed 64-bit integer, got {pri!r}")
    return Moved(name, pri, has_lane)


def storable(name: str, value: Any) -> Any:
    """A value for a column; lists and mappings become JSON text."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    fits = value is None or isinstance(value, str | bytes | bool)
    fits = fits or (isinstance(value, int) and value in PRI_RANGE)
    if fits or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise UsageError(f"column {name!r} can hold None, 64-bit numbers, text, bytes, lists and mappings, not {value!r}")
