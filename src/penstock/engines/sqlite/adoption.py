"""The rules of adopting a table: what it must have, and which features it may ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.engines.sqlite.database import Database
from penstock.engines.sqlite.statements import named
from penstock.model.duration import FOREVER, length
from penstock.model.errors import UsageError
from penstock.model.tube import Adoption, Features, TubeConfig, checked, parse_keep, parse_options

SQL = named("adopted.sql")
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
OWN_TABLES = re.compile(r"(penstock|sqlite)_.*", re.I)


class Column(NamedTuple):
    name: str
    declared: str
    required: bool
    position: int
    """Where it stands in the primary key, from 1; 0 outside."""


class Table(NamedTuple):
    name: str
    """As the database spells it."""
    strict: bool
    columns: list[Column]

    @property
    def key(self) -> list[str]:
        return [c.name for c in sorted(self.columns, key=lambda c: c.position) if c.position]

    def kind(self, column: str) -> str:
        return kind_of(next(c.declared for c in self.columns if c.name == column))


def adoption(database: Database, given: Adoption) -> TubeConfig:
    """Check everything adopt() was given; the first thing that is wrong is named."""
    name, table, fields, features, options = given
    found = find_table(database, table)
    check_key(found)
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
        },
        **{"lane_pick": "order", **parse_options(options, kind)},
    )
    if config.max_attempts is not None and asked["buried"] is False:
        raise UsageError("max_attempts buries a task that has used them up: it needs the feature buried")
    return checked(config)


def find_table(database: Database, table: str) -> Table:
    """A table of the user's, with what SQLite knows about it."""
    rows = database.rows(SQL["find_table"], (table,))
    if not rows:
        raise UsageError(f"there is no table {table!r} in {database.path}; create it before it is adopted")
    name, kind, strict = rows[0]
    if kind != "table" or OWN_TABLES.match(name):
        raise UsageError(
            f"{table!r} is not a table of your own but {'one of ours' if kind == 'table' else f'a {kind}'}"
        )
    columns = database.rows(SQL["columns"], (name,))
    return Table(name, bool(strict), [Column(c, t, bool(r), p) for c, t, r, p in columns])


def kind_of(declared: str) -> str:
    """text or number, by SQLite's rules of affinity; other declarations fit both."""
    upper = declared.upper()
    if "INT" in upper:
        return "number"
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "text"
    return "number" if any(word in upper for word in ("REAL", "FLOA", "DOUB", "NUM", "DEC")) else "any"


def check_key(table: Table) -> None:
    """Ids are whole numbers and text."""
    if not table.key:
        raise UsageError(f"table {table.name!r} has no primary key, so its rows cannot be told apart: declare one")
    for column in table.columns:
        upper = column.declared.upper()
        if column.position and any(word in upper for word in ("REAL", "FLOA", "DOUB", "BLOB")):
            raise UsageError(
                f"the primary key {column.name!r} is declared {column.declared}; ids are whole numbers or text"
            )


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
        kind = table.kind(column)
        if kind not in (FIELDS[name], "any"):
            raise UsageError(f"column {column!r} holds a {kind}, the field {given!r} needs a {FIELDS[name]}")
        declared = next(c.declared for c in table.columns if c.name == column)
        if name == "run_at" and table.strict and "INT" in declared.upper():
            raise UsageError(f"column {column!r} of a STRICT table cannot hold parts of a second: declare it REAL")
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
