"""SQL from files: names filled in, and parts that a tube has no use for left out.

`@s` is the quoted schema and `@n` the tube's number; nothing else that a caller chose gets into a statement as text.
`--if feature` .. `--end` and `--unless feature` .. `--end` bracket what only some tubes have.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from psycopg import sql

from penstock.engines.postgres import adopted_sql
from penstock.model.state import BURIED_REASONS, DONE_REASONS, State
from penstock.model.tube import TubeConfig

HERE = Path(__file__).parent
FUNCTIONS = (
    "rules",
    "changes",
    "leases",
    "sessions",
    "acts",
    "tubes",
    "ledger",
    "adopt",
    "joined",
    "checks",
    "api",
    "by_hand",
)
TUBE = ("counts", "lanes", "save", "settle", "put", "load", "take", "ack", "marks")
ADOPTED = ("adopted", "keys", "edits")
SETTINGS = " ".join(
    f"set {name} = {value}"
    for name, value in {
        # Plans must not depend on what a table held when a connection first saw it.
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
    }.items()
)
# What a caller's role may call: it runs with the owner's rights, and finds no operator of the caller's making.
DEFINER = "security definer set search_path = pg_catalog, pg_temp"
UNWRITTEN = ("seq", "id", "data", "body", "place")
"""Columns that a change of state never writes."""
COLUMNS = tuple(
    line.split()[0]
    for line in (HERE / "migrations/0001_initial.sql")
    .read_text()
    .split("create type @s.task as (")[1]
    .split(");")[0]
    .splitlines()
    if line.startswith("    ")
)
_PART = re.compile(r"^--(if|unless) (\w+)\n((?:(?!--(?:if|unless) |--end$).*\n)*?)--end\n", re.M)


def quoted(name: str) -> str:
    """An identifier, by the driver's own quoting."""
    return sql.Identifier(name).as_string(None)


def channel(schema: str) -> str:
    """What processes on a schema listen to."""
    return "penstock_" + hashlib.sha256(schema.encode()).hexdigest()[:16]


def lock(schema: str, number: int = 0) -> int:
    """The first of eight advisory locks of a tube; tube 0 stands for the store."""
    return (int.from_bytes(hashlib.sha256(schema.encode()).digest()[:4], "big") << 28) + number * 8


@cache
def text(name: str) -> str:
    """A file of this folder."""
    return (HERE / name).read_text(encoding="utf-8")


def render(source: str, schema: str, **names: str) -> str:
    """Fill in names."""
    names = {
        "s": quoted(schema),
        "settings": SETTINGS,
        "definer": DEFINER,
        "channel": channel(schema),
        "locks": "300",
        "many": "50",
        "states": _listed(State),
        "reasons": _listed((*BURIED_REASONS, *DONE_REASONS)),
        **names,
    }
    longest_first = "|".join(sorted(names, key=len, reverse=True))
    name = re.compile(f"@({longest_first})(?![a-z])")

    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return names[found[1]]
        # Inside a string a quote in the name must not end it; comments only look as though they had strings.
        double = found[0].startswith("'")
        return name.sub(lambda inner: names[inner[1]].replace("'", "''") if double else names[inner[1]], found[0])

    return re.sub(f"{name.pattern}|--[^\\n]*|'(?:[^']|'')*'", fill, source)


def functions(schema: str) -> str:
    """The functions that all tubes share."""
    return "\n".join(render(text(f"functions/{name}.sql"), schema) for name in FUNCTIONS)


def tube(part: str, schema: str, number: int, config: TubeConfig) -> str:
    """One file of a tube's own."""
    flags = {
        # Rows of adopted tables are granted one by one, as those of lanes are.
        "lanes": config.features.lanes or config.adopted is not None,
        "ids": config.id not in ("auto", "time64") or config.adopted is not None,
        "time64": config.id == "time64" and config.adopted is None,
        "adopted": config.adopted is not None,
        "ranked": config.adopted is not None and adopted_sql.is_ranked(config.adopted),
    }
    source = _without(text(f"tube/{part}.sql"), tuple(flags.items()))
    by_seq = not flags["ids"]
    return render(
        source,
        schema,
        n=str(number),
        lock=str(lock(schema, number)),
        unlogged="unlogged" if config.temporary else "",
        pri=str(config.pri),
        by_id="seq = p_id::bigint" if by_seq else "id = p_id",
        item_key="i.id::bigint" if by_seq else "i.id",
        item_column="seq" if by_seq else "id",
        row=_row("x"),
        assignments=", ".join(f"{name} = t.{name}" for name in COLUMNS if name not in UNWRITTEN),
        taking_v=_taking("v_session", "v_now", schema),
        taking_p=_taking("p_session", "p_now", schema),
        taking_part=_taking("p_session", "p_now", schema, "v_tokens[array_position(v_part, x.seq)]"),
        **({} if config.adopted is None else adopted_sql.names(quoted(schema), number, config)),
    )


@cache
def _without(source: str, flags: tuple[tuple[str, bool], ...]) -> str:
    """A text without what tubes of these flags have no use for."""
    wanted = dict(flags)
    changed = 1
    while changed:
        source, changed = _PART.subn(lambda m: m[3] if wanted[m[2]] == (m[1] == "if") else "", source)
    return source


def tube_functions(schema: str, number: int, config: TubeConfig) -> str:
    """All functions of a tube's own."""
    lanes = config.features.lanes or config.adopted is not None
    parts = [part for part in TUBE if lanes or part != "lanes"]
    parts += ADOPTED if config.adopted is not None else ()
    return "\n".join(tube(part, schema, number, config) for part in parts)


def _listed(values: object) -> str:
    return ", ".join(f"'{value}'" for value in values)  # type: ignore[attr-defined]


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _row(alias: str) -> str:
    """A task as the last columns of an answer."""
    texts = ("state", "reason", "data")
    return ", ".join(f"{alias}.{name}::text" if name in texts else f"{alias}.{name}" for name in COLUMNS[:-3])


def _taking(session: str, now: str, schema: str, token: str | None = None) -> str:
    # A call has one moment, that of its beginning. A task that was given back since is not granted before that.
    now = f"greatest({now}, x.ready_at)"
    deadline = f"{quoted(schema)}.after({now}, coalesce(p_ttr, x.ttr))"
    token = token or f"nextval({_text(quoted(schema) + '.tokens')})"
    return (
        f"state = 'taken', session = {session}, token = {token}, attempt = x.attempt + 1, "
        f"taken_at = {now}, deadline = {deadline}, due_at = {deadline}, "
        f"due_rank = case when {deadline} is not null then 0 end"
    )
