"""Names and expressions of one adopted table, for tube/adopted.sql: `u` is a row of it, `t` its task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import sql

from penstock.model.tube import TubeConfig

FIRST_NEW = 1 << 62
"""Numbers from here on are those of tasks that do not stand where their keys do yet."""


def identifier(name: str) -> str:
    """A name, by the driver's own quoting; a dollar in it must not end the body of a function."""
    quoted = sql.Identifier(name).as_string(None)
    return "U&" + quoted.replace("\\", "\\\\").replace("$", "\\0024") if "$" in quoted else quoted


def literal(text: str) -> str:
    """A text, in the same way."""
    parts = [sql.Literal(part).as_string(None).strip() for part in text.split("$")]
    return parts[0] if len(parts) == 1 else f"({' || chr(36) || '.join(parts)})"


def is_ranked(adopted: Mapping[str, Any]) -> bool:
    """True if the key is no single whole number, so that tasks need numbers in its order."""
    return len(adopted["key"]) > 1 or adopted["kinds"][0] != "number"


def names(schema: str, number: int, config: TubeConfig) -> dict[str, str]:
    """What to fill into tube/adopted.sql; the schema is quoted."""
    adopted = config.adopted
    assert adopted is not None
    fields: dict[str, str] = adopted["fields"]
    ranked = is_ranked(adopted)
    hidden = [*adopted["key"], *fields.values(), *adopted["computed"]]
    keys = [identifier(key) for key in adopted["key"]]
    letter = f"{schema}.letter(t.state, t.purge_at, t.keep, {'true' if adopted['zombie'] else 'false'})"
    same, values = _same(adopted, letter), _values(adopted, letter)
    new_seq = f"{FIRST_NEW} + nextval({literal(f'{schema}.seqs_{number}')})"
    return {
        "table": f"{identifier(adopted['schema'])}.{identifier(adopted['table'])}",
        "schema_text": literal(adopted["schema"]),
        "table_text": literal(adopted["table"]),
        "watched": _array([*adopted["key"], *fields.values()]),
        "hidden": _array(hidden),
        "tuple": "true" if adopted["retval"] == "tuple" else "false",
        "data_of": "json_agg(e.value order by e.i)"
        if adopted["retval"] == "tuple"
        else "json_object_agg(e.key, e.value order by e.i)",
        "no_data": "'[]'::json" if adopted["retval"] == "tuple" else "'{}'::json",
        "keys": ", ".join(keys),
        "key_values": ", ".join(_parts(adopted, "t.id")),
        "match": _match(adopted, "p_id"),
        "match_first": _match(adopted, "$1"),
        "match_task": _match(adopted, "t.id"),
        "match_given": _match(adopted, "p.id"),
        "id_of": _id_of(adopted),
        "new_seq": new_seq if ranked else "p_id::bigint",
        "row_seq": new_seq if ranked else f"u.{keys[0]}::bigint",
        "first_key": f"u.{keys[0]}",
        "least_key": "p_now * 1000" if config.id == "time64" else "1",
        "key_sequence": "null" if ranked or config.id == "time64" else _sequence(adopted),
        "mapped": ", ".join(identifier(column) for column in fields.values()),
        "mapped_values": ", ".join(values.values()),
        "shown": ", ".join(
            f"{identifier(column)} = case when {same[name]} then u.{identifier(column)} else {values[name]} end"
            for name, column in fields.items()
        ),
        "same": " and ".join(same.values()),
        "same_run_at": same.get("run_at", "true"),
        **_read(adopted),
    }


def _array(texts: list[str]) -> str:
    return f"array[{', '.join(map(literal, texts))}]::text[]"


def _parts(adopted: Mapping[str, Any], task_id: str) -> list[str]:
    """The columns of the key, from an id."""
    types = [adopted["types"][key] for key in adopted["key"]]
    if len(types) == 1:
        return [
            f"{task_id}::bigint::{types[0]}"
            if adopted["kinds"][0] == "number"
            else f"({task_id}::jsonb #>> '{{}}')::{types[0]}"
        ]
    return [f"({task_id}::jsonb ->> {place})::{kind}" for place, kind in enumerate(types)]


def _match(adopted: Mapping[str, Any], task_id: str) -> str:
    parts = zip(adopted["key"], _parts(adopted, task_id), strict=True)
    return " and ".join(f"u.{identifier(key)} = {part}" for key, part in parts)


def _id_of(adopted: Mapping[str, Any]) -> str:
    parts = [
        f"u.{identifier(key)}::{'bigint' if kind == 'number' else 'text'}"
        for key, kind in zip(adopted["key"], adopted["kinds"], strict=True)
    ]
    if len(parts) > 1:
        return f"jsonb_build_array({', '.join(parts)})::text"
    return f"{parts[0]}::text" if adopted["kinds"][0] == "number" else f"to_jsonb({parts[0]})::text"


def _sequence(adopted: Mapping[str, Any]) -> str:
    table = f"quote_ident({literal(adopted['schema'])}) || '.' || quote_ident({literal(adopted['table'])})"
    return f"pg_get_serial_sequence({table}, {literal(adopted['key'][0])})::regclass"


def _values(adopted: Mapping[str, Any], letter: str) -> dict[str, str]:
    """What a task shows in the mapped columns, by field."""
    fields: dict[str, str] = adopted["fields"]
    no_lane = "''" if adopted["lane_required"] else "null"
    values = {
        "status": letter,
        "run_at": "coalesce(t.due_at / 1000000.0, 0)",
        "priority": "t.pri",
        "lane": f"coalesce(t.lane, {no_lane})",
        "attempts": "t.attempt",
    }
    return {name: f"({values[name]})::{adopted['types'][column]}" for name, column in fields.items()}


def _same(adopted: Mapping[str, Any], letter: str) -> dict[str, str]:
    """Whether a row says what its task is, by field. Nothing in a column counts as zero, or as no lane."""
    fields: dict[str, str] = adopted["fields"]
    same = {}
    for name, column in fields.items():
        shown = f"u.{identifier(column)}"
        same[name] = {
            "status": f"coalesce({shown}::text = {letter}, false)",
            "run_at": f"coalesce({shown}, 0) = coalesce(t.due_at / 1000000.0, 0)::{adopted['types'][column]}",
            "priority": f"coalesce({shown}, 0) = t.pri",
            "lane": f"coalesce({shown}::text, '') = coalesce(t.lane, '')",
            "attempts": f"coalesce({shown}, 0) = t.attempt",
        }[name]
    return same


def _read(adopted: Mapping[str, Any]) -> dict[str, str]:
    """The mapped columns of a row as a task has them."""
    fields: dict[str, str] = adopted["fields"]
    columns = {name: f"u.{identifier(column)}" for name, column in fields.items()}
    run_at = columns.get("run_at")
    return {
        "status": f"{columns['status']}::text",
        "run_at": f"case when {run_at} > 0 and {run_at} < 4611686018427 then round({run_at} * 1000000)::bigint end"
        if run_at
        else "null::bigint",
        "priority": _whole(adopted, "priority"),
        "lane": f"{columns['lane']}::text" if "lane" in columns else "null::text",
        "attempts": _whole(adopted, "attempts"),
    }


def _whole(adopted: Mapping[str, Any], field: str) -> str:
    """A number as a whole one of 64 bits; what does not fit counts as 0."""
    name = adopted["fields"].get(field)
    if name is None:
        return "null::bigint"
    column = f"u.{identifier(name)}"
    if name in adopted["whole"]:
        return f"coalesce({column}::bigint, 0)"
    fits = f"{column} >= -9223372036854775808 and {column} < 9223372036854774784"
    return f"case when {fits} then trunc({column})::bigint else 0 end"
