"""The rules of adopting a table: what it must have, and which features it may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.engines.sqlite.database import Database
from penstock.model.duration import FOREVER, length
from penstock.model.errors import UsageError
from penstock.model.tube import Features, TubeConfig, checked, parse_keep, parse_options

FIELDS = {"status": "text", "run_at": "number", "priority": "number", "lane": "text", "attempts": "number"}
ALIASES = {"runat": "run_at", "tube": "lane", "pri": "priority"}
FEATURES = ("id", "retval", "buried", "delayed", "keep", "zombie", "ttl", "ttr", "tube_stats")
TIMED = ("delayed", "zombie", "ttl", "ttr")
IDS = {"auto_increment": "auto", "auto": "auto", "time64": "time64", "uuid": "uuid", "required": "required"}


def adoption(
    database: Database,
    name: str,
    table: str,
    fields: Mapping[str, str] | None,
    features: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> TubeConfig:
    """Check everything adopt() was given; the first thing that is wrong is named."""
    columns = table_columns(database, table)
    key = [column for column, _, position in sorted(columns, key=lambda c: c[2]) if position]
    if not key:
        raise UsageError(f"table {table!r} has no primary key, so its rows cannot be told apart: declare one")
    types = {column: kind_of(declared) for column, declared, _ in columns}
    mapped = check_fields(table, fields, types, key)
    asked = check_features(features, mapped)
    given = {
        "id": check_id(asked, types, key),
        "retval": asked["retval"] or "table",
        "buried": asked["buried"] is not False,
        "tube_stats": list(asked["tube_stats"] or ()),
    }
    kind = Features(
        pri="priority" in mapped,
        ttl=_on(asked["ttl"], mapped),
        ttr=_on(asked["ttr"], mapped),
        delay=_on(asked["delayed"], mapped),
        lanes="lane" in mapped,
    )
    config = TubeConfig(
        name,
        "adopted",
        kind,
        id=given["id"],
        keep=kept(asked),
        ttl=_seconds(asked["ttl"], "ttl"),
        ttr=_seconds(asked["ttr"], "ttr"),
        adopted={
            "table": table,
            "key": key,
            "fields": mapped,
            "data": [c for c, _, _ in columns if c not in (*mapped.values(), *key)],
            "zombie": bool(asked["zombie"]),
            **given,
        },
        **{"lane_pick": "order", **parse_options(options, kind)},
    )
    if config.lane_pick != "order":
        raise UsageError("an adopted table is served in the order of its primary key: lane_pick must be 'order'")
    return checked(config)


def table_columns(database: Database, table: str) -> list[tuple[str, str, int]]:
    """(name, declared type, position in the primary key) of every column."""
    rows = database.rows("SELECT name, type, pk FROM pragma_table_info(?)", (table,))
    if not rows:
        raise UsageError(f"there is no table {table!r} in {database.path}; create it before it is adopted")
    return [(name, declared, position) for name, declared, position in rows]


def kind_of(declared: str) -> str:
    """text or number, by SQLite's rules of affinity; other declarations fit both."""
    upper = declared.upper()
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "text"
    return "number" if any(word in upper for word in ("INT", "REAL", "FLOA", "DOUB", "NUM", "DEC")) else "any"


def check_fields(table: str, fields: Mapping[str, str] | None, types: dict[str, str], key: list[str]) -> dict[str, str]:
    """Which column is what. A status column is enough."""
    if not fields:
        raise UsageError("adopt() needs fields={'status': column}: which column holds the letters R T W B Z D")
    mapped: dict[str, str] = {}
    for given, column in fields.items():
        name = ALIASES.get(given, given)
        if name not in FIELDS:
            raise UsageError(f"unknown field {given!r}; there are {', '.join(FIELDS)}")
        if column not in types:
            raise UsageError(f"fields[{given!r}] names the column {column!r}, which table {table!r} does not have")
        if column in key:
            raise UsageError(f"fields[{given!r}] names {column!r}, which is part of the primary key")
        if types[column] not in (FIELDS[name], "any"):
            raise UsageError(f"column {column!r} holds a {types[column]}, the field {given!r} needs a {FIELDS[name]}")
        mapped[name] = column
    if "status" not in mapped:
        raise UsageError("adopt() needs fields={'status': column}: which column holds the letters R T W B Z D")
    return {name: mapped[name] for name in FIELDS if name in mapped}


def check_features(features: Mapping[str, Any] | None, mapped: dict[str, str]) -> dict[str, Any]:
    asked = dict.fromkeys(FEATURES)
    for name, value in (features or {}).items():
        if name not in FEATURES:
            raise UsageError(f"unknown feature {name!r}; there are {', '.join(FEATURES)}")
        asked[name] = value
    for name in TIMED:
        if asked[name] and "run_at" not in mapped:
            raise UsageError(f"the feature {name!r} needs a column for the time: fields={{'run_at': column}}")
    if asked["keep"] and asked["zombie"]:
        raise UsageError("the features keep and zombie exclude each other: keep stays for ever, zombie for a while")
    if asked["retval"] not in (None, "table", "tuple"):
        raise UsageError(f"retval must be 'table' or 'tuple', got {asked['retval']!r}")
    if asked["tube_stats"] and "lane" not in mapped:
        raise UsageError("the feature tube_stats needs fields={'lane': column}")
    return asked


def check_id(asked: dict[str, Any], types: dict[str, str], key: list[str]) -> Any:
    """How put makes ids; the default is uuid where the key is text, else the caller gives them."""
    mode = asked["id"]
    kind = types[key[0]] if len(key) == 1 else "composite"
    if mode is None:
        return "uuid" if kind in ("text", "any") else "required"
    if callable(mode):
        return "function"
    if mode not in IDS:
        raise UsageError(f"the feature id must be one of {', '.join(IDS)} or a function, got {mode!r}")
    if mode in ("auto_increment", "auto", "time64") and kind not in ("number", "any"):
        raise UsageError(f"id={mode!r} needs a numeric primary key of one column, {', '.join(key)} is {kind}")
    if mode == "uuid" and kind not in ("text", "any"):
        raise UsageError(f"id='uuid' needs a text primary key of one column, {', '.join(key)} is {kind}")
    return IDS[mode]


def kept(asked: dict[str, Any]) -> int:
    """keep and zombie=True stay for ever, zombie=seconds that long."""
    if asked["keep"]:
        return FOREVER
    return 0 if not asked["zombie"] else parse_keep(asked["zombie"], "zombie")


def _on(feature: Any, mapped: dict[str, str]) -> bool:
    return "run_at" in mapped if feature is None else feature is not False


def _seconds(value: Any, name: str) -> int | None:
    return None if value is None or isinstance(value, bool) else length(value, name)
