"""The parts of tubes that tests have left, for the next tube that is made from the very same texts.

To make tables, indexes and functions of a tube costs more than the calls of most tests. A tube is
emptied instead; the row that says what the tube is, is written by the engine as ever.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import psycopg

from penstock.engines.postgres import templates, tubes
from penstock.model.tube import TubeConfig

Connection = psycopg.Connection[Any]
MANY = 500
"""Tasks that leave too much behind when they are deleted."""
_TABLE = re.compile(r"^create +(?:unlogged +)?table (\S+)", re.M)
_SEQUENCE = re.compile(r"^create sequence (\S+);", re.M)
_INSERT = re.compile(r"^insert into [^;]*;", re.M)
# An alteration changes no part but this index, which may outlast the order that it is for.
USED = """
    select number, config, to_regclass('{0}.tasks_' || number || '_stand') is not null,
        coalesce(pg_sequence_last_value(to_regclass('{0}.seqs_' || number)), 0)
    from {0}.tubes
"""
SHARED = "select max(oid)::bigint from pg_proc where pronamespace = to_regnamespace('{0}') and proname !~ '_[0-9]+$'"
NUMBERS = "pg_get_serial_sequence('{}.tubes', 'number')"


class Shelf:
    """Those of one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._quoted = templates.quoted(schema)
        self._parts: dict[str, list[int]] = {}
        self._taken: set[int] = set()
        self._shapes: dict[int, str] = {}
        self._shared: int | None = None
        self.left = 0
        """How many tubes have parts that nobody will use any more."""

    def insert(self, connection: Connection, config: TubeConfig) -> int:
        """A row for a tube, with a number whose parts are here if there are such."""
        parts = self._parts.get(shape(config))
        if not parts:
            return _insert(connection, self._quoted, config)
        number = parts.pop(0)
        self._taken.add(number)
        numbers = NUMBERS.format(self._quoted)
        row = connection.execute(f"select nextval({numbers}), setval({numbers}, {number}, false)").fetchone()
        assert row is not None
        try:
            return _insert(connection, self._quoted, config)
        finally:
            if connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                connection.execute(f"select setval({numbers}, {row[0]}, false)")

    def make(self, connection: Connection, number: int, config: TubeConfig) -> None:
        """The parts of a tube, unless they are here."""
        if number not in self._taken:
            _make(connection, self.schema, number, config)
            self._shapes[number] = shape(config)

    @property
    def questions(self) -> list[str]:
        """What to ask about the schema before anything is collected: the answers are for is_whole() and collect()."""
        return [SHARED.format(self._quoted), USED.format(self._quoted)]

    def is_whole(self, shared: list[Any]) -> bool:
        """False when functions were made anew since: those of tubes that nobody had are gone then."""
        before, self._shared = self._shared, shared[0][0]
        return before in (None, self._shared)

    def collect(self, used: list[Any]) -> list[str]:
        """Keep the parts of tubes that are there; answers what empties those.

        Parts of tubes that are gone or big are left alone.
        """
        self._taken.clear()
        orders = []
        for number, json, stands, tasks in used:
            config = TubeConfig.from_json(json)
            made = self._shapes.setdefault(number, "")
            same = made == shape(config) and stands == (config.lane_order == "strict")
            if made and same and tasks <= MANY:
                orders.append(_emptying(self.schema, number, replace(config, name="")))
                self._parts.setdefault(made, []).append(number)
        for parts in self._parts.values():
            parts.sort()
        kept = {number for parts in self._parts.values() for number in parts}
        self.left += len(self._shapes.keys() - kept)
        self._shapes = {number: made for number, made in self._shapes.items() if number in kept}
        return orders


@lru_cache(maxsize=1000)
def _emptying(schema: str, number: int, config: TubeConfig) -> str:
    """What to do so that a tube is as it was made."""
    tables = templates.tube("tables", schema, number, config)
    sequences = _SEQUENCE.findall(tables)
    orders = [
        *(f"delete from {table};" for table in _TABLE.findall(tables)),  # noqa: S608
        *(f"select setval('{name}', 1, false);" for name in sequences),
        *_INSERT.findall(tables),
    ]
    return "\n".join(orders)


@lru_cache(maxsize=1000)
def _shape(config: TubeConfig) -> str:
    text = templates.tube("tables", "s", 0, config) + templates.tube_functions("s", 0, config)
    return hashlib.sha256(f"{text}{config.lane_order}".encode()).hexdigest()


def shape(config: TubeConfig) -> str:
    """Equal for tubes whose parts differ only in their number; "" for those that are not kept."""
    return "" if config.adopted is not None else _shape(replace(config, name=""))


_insert, _make = tubes.insert, tubes.make


def make_through(shelf_of: Callable[[str], Shelf | None]) -> None:
    """From now on tubes that this process makes ask for the shelf of a database."""

    def insert(connection: Connection, schema: str, config: TubeConfig) -> int:
        shelf = shelf_of(connection.info.dbname)
        if shelf is None or schema != templates.quoted(shelf.schema):
            return _insert(connection, schema, config)
        return shelf.insert(connection, config)

    def make(connection: Connection, schema: str, number: int, config: TubeConfig) -> None:
        shelf = shelf_of(connection.info.dbname)
        if shelf is None or schema != shelf.schema:
            _make(connection, schema, number, config)
        else:
            shelf.make(connection, number, config)

    tubes.insert, tubes.make = insert, make
