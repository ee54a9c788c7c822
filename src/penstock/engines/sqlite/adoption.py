"""What SQLite knows about a table that is to be adopted."""

from __future__ import annotations

import re

from penstock.engines.adoption import Column, Table, configured
from penstock.engines.sqlite.database import Database
from penstock.engines.sqlite.statements import named
from penstock.model.errors import UsageError
from penstock.model.tube import Adoption, TubeConfig

SQL = named("adopted.sql")
OWN_TABLES = re.compile(r"(penstock|sqlite)_.*", re.I)


def adoption(database: Database, given: Adoption) -> TubeConfig:
    """The tube that adopt() asks for."""
    found = find_table(database, given.table)
    check_key(found)
    return configured(found, given)


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
    return Table(name, [_column(bool(strict), *column) for column in columns])


def _column(strict: bool, name: str, declared: str, required: int, position: int) -> Column:
    no_time = None
    if strict and "INT" in declared.upper():
        no_time = f"column {name!r} of a STRICT table cannot hold parts of a second: declare it REAL"
    return Column(name, kind_of(declared), bool(required), position, declared, no_time)


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
