"""A connection to a place, as psql would have it."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from penstock.engines.postgres import templates


class Psql:
    """A connection that calls `penstock.put(..)` in the schema under test."""

    def __init__(self, url: str, role: str | None = None) -> None:
        parts = urlsplit(url)
        (self.schema,) = parse_qs(parts.query)["schema"]
        login = {"user": role} if role else {}
        self.connection = psycopg.connect(parts._replace(query="").geturl(), autocommit=True, **login)
        self.session: Any = None

    def rows(self, statement: str, *arguments: Any) -> list[Any]:
        statement = statement.replace("penstock.", f"{templates.quoted(self.schema)}.")
        return self.connection.execute(statement, arguments or None).fetchall()

    def do(self, statement: str, number: int = 0) -> None:
        """A statement without an answer; # is the number of a tube."""
        statement = statement.replace("penstock.", f"{templates.quoted(self.schema)}.").replace("#", str(number))
        self.connection.execute(statement)

    def number(self, tube: str) -> int:
        return self.one("select number from penstock.tubes where name = %s", tube)

    def one(self, statement: str, *arguments: Any) -> Any:
        (row,) = self.rows(statement, *arguments)
        return row[0] if len(row) == 1 else row

    def refused(self, statement: str, *arguments: Any) -> tuple[str, str]:
        """The SQLSTATE and the text of a refusal, its hint after it."""
        with pytest.raises(psycopg.Error) as caught:
            self.rows(statement, *arguments)
        said = caught.value.diag
        return caught.value.sqlstate or "", "; ".join(filter(None, (said.message_primary, said.message_hint)))

    def take(self, tube: str, ttr: float | None = None) -> Any:
        """id and token of a task that is taken now."""
        if self.session is None:
            self.session = self.one("select penstock.new_session('tests', 3600)")
        return self.one("select id, token from penstock.take(%s, session => %s, ttr => %s)", tube, self.session, ttr)
