"""The statements of one adopted table, made from adopted.sql."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw

from penstock.engines.sqlite.database import Database
from penstock.engines.sqlite.statements import named
from penstock.model.duration import FOREVER
from penstock.model.tube import TubeConfig

SQL = named("adopted.sql")
PER_CALL = ("insert_row", "change", "data")
"""Statements whose columns differ from call to call."""
Quote = Callable[[str], str]


def quoter(database: Database) -> Quote:
    """Identifiers, quoted by SQLite itself."""

    def quote(name: str) -> str:
        quoted: str = database.value(SQL["quote"], (name,))
        return quoted

    return quote


def data_of(number: int, config: TubeConfig, columns: Sequence[str], quote: Quote) -> str:
    """The expression that makes a task's data from the user's columns; NULL if the row is gone."""
    adopted = config.adopted
    assert adopted is not None
    shown = [_shown(f"u.{quote(column)}") for column in columns]
    if adopted["retval"] == "tuple":
        data = f"json_array({', '.join(shown)})"
    else:
        pairs = zip(columns, shown, strict=True)
        data = f"json_object({', '.join(f'{apsw.format_sql_value(name)}, {value}' for name, value in pairs)})"
    row_of_side = " AND ".join(
        f'u.{quote(key)} IS "penstock_tasks_{number}".k{i}' for i, key in enumerate(adopted["key"])
    )
    return f"({SQL['data'].format(data=data, table=quote(adopted['table']), row_of_side=row_of_side)})"


def _shown(column: str) -> str:
    """What JSON has no word for is shown as text: bytes in hex, infinite numbers."""
    return (
        f"CASE typeof({column}) WHEN 'blob' THEN hex({column}) "
        f"WHEN 'real' THEN iif(abs({column}) < 9e999, {column}, cast({column} AS text)) ELSE {column} END"
    )


def adopted_sql(number: int, config: TubeConfig, quote: Quote) -> dict[str, str]:
    """Statements on the user's table and the triggers that watch it."""
    adopted = config.adopted
    assert adopted is not None
    fields: dict[str, str] = adopted["fields"]
    keys = [quote(key) for key in adopted["key"]]
    table = quote(adopted["table"])
    values = {
        "table": table,
        "side": f'"penstock_tasks_{number}"',
        "number": number,
        "columns": ", ".join(quote(column) for column in fields.values()),
        "keys": ", ".join(keys),
        "key_marks": ", ".join("?" * len(keys)),
        "first_key": keys[0],
        "match": " AND ".join(f"{key} IS ?" for key in keys),
        "match_named": " AND ".join(f"{key} IS :k{i}" for i, key in enumerate(keys)),
        "assignments": ", ".join(_assignment(name, quote(column)) for name, column in fields.items()),
        "watched": ", ".join([*(quote(column) for column in fields.values()), *keys]),
        "same_key": f"id IS {_id_of('NEW', keys)}",
        "old_key": f"id IS {_id_of('OLD', keys)}",
        "side_of_row": f"id IS {_id_of(table, keys)}",
        "new_id": "json_array(" + ", ".join(f"NEW.{key}" for key in keys) + ")",
        "old_id": "json_array(" + ", ".join(f"OLD.{key}" for key in keys) + ")",
        "new_key_counts": _counts("NEW", keys),
        "old_key_counts": _counts("OLD", keys),
        "moved": " OR ".join(f"NEW.{key} IS NOT OLD.{key}" for key in keys),
        "same_values": " AND ".join(
            f"{_of_side(name, adopted['zombie'])} IS {_plain(name, f'NEW.{quote(column)}')}"
            for name, column in fields.items()
        ),
    }
    return {name: text.format(**values) for name, text in SQL.items() if name not in PER_CALL}


def per_call(name: str, config: TubeConfig, quote: Quote, **columns: str) -> str:
    """A statement on columns that the caller chose."""
    adopted = config.adopted
    assert adopted is not None
    match = " AND ".join(f"{quote(key)} IS ?" for key in adopted["key"])
    return SQL[name].format(table=quote(adopted["table"]), match=match, **columns)


def _id_of(row: str, keys: list[str]) -> str:
    """The side table's id of a row. The + takes away the column's affinity, so that the index on id serves."""
    if len(keys) == 1:
        return f"+{row}.{keys[0]}"
    return "json_array(" + ", ".join(f"{row}.{key}" for key in keys) + ")"


def _counts(row: str, keys: list[str]) -> str:
    """Rows whose key is neither a whole number nor text cannot be tasks."""
    return "(" + " AND ".join(f"typeof({row}.{key}) IN ('integer', 'text')" for key in keys) + ")"


def _of_side(name: str, zombie: bool) -> str:
    """A mapped column as the side table has it. Must agree with edits.letter_of."""
    done = f"iif(purge_at IS NULL AND (keep = {FOREVER} OR (keep IS NULL AND {not zombie})), 'D', 'Z')"
    return {
        "status": "CASE state WHEN 'ready' THEN 'R' WHEN 'taken' THEN 'T' WHEN 'delayed' THEN 'W' "
        f"WHEN 'buried' THEN 'B' ELSE {done} END",
        "run_at": "coalesce(due_at, 0) / 1000000.0",
        "priority": "pri",
        "lane": "coalesce(lane, '')",
        "attempts": "attempt",
    }[name]


def _plain(name: str, column: str) -> str:
    """Nothing in a column counts as zero, or as no lane."""
    if name == "status":
        return column
    return f"coalesce({column}, '')" if name == "lane" else f"coalesce({column}, 0)"


def _assignment(name: str, column: str) -> str:
    if name == "status":
        return f"{column} = :status"
    return f"{column} = iif({_plain(name, column)} IS {_plain(name, f':{name}')}, {column}, :{name})"
