"""Where a queue on PostgreSQL is: what a URL says, apart from what the driver is told."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict

from penstock.model.errors import UsageError

SCHEMES = ("postgresql", "postgres")
OWN = ("schema", "notify", "pool", "prepare", "patience")


class Place(NamedTuple):
    """A schema in a database, and how to get there."""

    conninfo: str
    schema: str = "penstock"
    notify: bool = True
    """Wake other processes by LISTEN and NOTIFY; off behind a pooler that lends a connection per transaction."""
    prepare: bool = True
    """Prepare statements on the server."""
    pool: int = 8
    """Connections for transactions and long calls, beside the one for ordinary calls and the one that listens."""
    patience: float = 10.0
    """Seconds that a call waits for the server to come back."""

    @property
    def name(self) -> str:
        """What tells two stores apart, without a password: a role must not get the connection of another."""
        parts = conninfo_to_dict(self.conninfo)
        where = f"{parts.get('host', '')}:{parts.get('port', 5432)}/{parts.get('dbname', parts.get('user', ''))}"
        user = f"{parts['user']}@" if "user" in parts else ""
        return f"postgresql://{user}{where}?schema={self.schema}"

    @classmethod
    def parse(cls, url: str) -> Place:
        """Split a URL into what is ours (schema, notify, pool, prepare, patience) and what is the driver's."""
        split = urlsplit(url)
        own = {}
        others = []
        for name, value in parse_qsl(split.query, keep_blank_values=True):
            if name in OWN:
                own[name] = value
            else:
                others.append((name, value))
        conninfo = urlunsplit(split._replace(scheme="postgresql", query=urlencode(others, quote_via=quote)))
        if not split.netloc and split.path:
            conninfo = conninfo.replace("postgresql:/", "postgresql:///", 1) if ":///" not in conninfo else conninfo
        schema = own.get("schema", "penstock")
        if not 1 <= len(schema.encode()) <= 63 or schema.startswith("pg_") or set(schema) & set("\0%$"):
            raise UsageError(
                f"schema= must be a name of 1 to 63 bytes without % and $ that does not begin with pg_, got {schema!r}"
            )
        return cls(
            conninfo,
            schema,
            _switch(own, "notify"),
            _switch(own, "prepare"),
            int(_number(own, "pool", 8, 1)),
            _number(own, "patience", 10.0, 0),
        )


def _switch(own: dict[str, str], name: str) -> bool:
    value = own.get(name, "on").lower()
    if value not in ("on", "off", "true", "false", "1", "0"):
        raise UsageError(f"{name}= in the URL must be on or off, got {value!r}")
    return value in ("on", "true", "1")


def _number(own: dict[str, str], name: str, default: float, least: float) -> float:
    try:
        value = float(own.get(name, default))
    except ValueError:
        raise UsageError(f"{name}= in the URL must be a number, got {own[name]!r}") from None
    if not least <= value <= 10_000:
        raise UsageError(f"{name}= in the URL must be from {least} to 10000, got {value:g}")
    return value
