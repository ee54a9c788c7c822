"""The SQL of the lake, kept in files. `{name}` stands for a DataFrame, `@name` for a text."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


def query(name: str, **texts: str) -> str:
    """A statement for spark.sql()."""
    sql = _text(name)
    for key, text in texts.items():
        sql = sql.replace(f"@{key}", text)
    return sql


@cache
def _text(name: str) -> str:
    return files("penstock.pipeline").joinpath("sql", f"{name}.sql").read_text()
