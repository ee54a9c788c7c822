"""Where a queue on PostgreSQL is: what a URL says, apart from what the driver is told."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.model.errors import UsageError

OWN = ("schema", "notify", "prepare", "pool", "patience")
TAKEN = ("public", "information_schema")
"""Schemas that are not Penstock's to fill."""
_URL = re.compile(r"postgres(?:ql)?(?P<driver>\+\w+)?://(?P<user>[^@/]*@)?(?P<hosts>[^/?]*)(?P<rest>[^?]*)", re.I)
_HOSTS = re.compile(r"(?:(?:\[[^\]@]*\]|[^][:@,]*)(?::\d*)?(?:,|$))*")
_UNKNOWN = re.compile(r'invalid URI query parameter: "(.*)"')


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
    def address(self) -> str:
        """The URL of the database, without a password."""
        parts = conninfo_to_dict(self.conninfo)
        user = f"{quote(str(parts['user']), safe='')}@" if "user" in parts else ""
        pairs = zip(str(parts.get("host", "")).split(","), _ports(parts), strict=False)
        hosts = ",".join(f"{_host(host)}{port and f':{port}'}" for host, port in pairs)
        return f"postgresql://{user}{hosts}/{quote(str(parts.get('dbname', '')), safe='')}"

    @property
    def name(self) -> str:
        """What tells two stores apart, without a password: a role must not get the connection of another."""
        parts = conninfo_to_dict(self.conninfo)
        where = f"{parts.get('host', '')}:{parts.get('port', 5432)}/{parts.get('dbname', parts.get('user', ''))}"
        user = f"{parts['user']}@" if "user" in parts else ""
        return f"postgresql://{user}{where}?schema={self.schema}"

    def unlike(self, other: Place) -> list[str]:
        """The parameters of ours that another URL of the same store has otherwise, as that one has them."""
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in OWN]
        return [f"{name}={_written(theirs)}" for name, mine, theirs in pairs if mine != theirs]

    @classmethod
    def parse(cls, url: str) -> Place:
        """Split a URL into what is ours (schema, notify, prepare, pool, patience) and what is the driver's.

        Nothing of a URL is quoted that may be part of a password.
        """
        found = _URL.match(url)
        if found is None:
            raise _strange("it does not begin with postgresql://")
        if found["driver"]:
            raise UsageError(f"leave out `{found['driver']}`: postgresql://user@host/database")
        if not _HOSTS.fullmatch(found["hosts"]):
            raise _strange("after user and password there is no host or no port; / is written %2F there, @ %40, : %3A")
        own, others = {}, []
        for part in filter(None, url[found.end() + 1 :].split("&")):
            name, _, value = part.partition("=")
            if name in OWN:
                own[name] = unquote(value)
            else:
                others.append(part)
        conninfo = f"postgresql://{found['user'] or ''}{found['hosts']}{found['rest']}"
        conninfo += "?" + "&".join(others) if others else ""
        _check(conninfo)
        return cls(
            conninfo,
            _schema(own),
            _switch(own, "notify"),
            _switch(own, "prepare"),
            int(_number(own, "pool", 8, 1)),
            _number(own, "patience", 10.0, 0),
        )


def _check(conninfo: str) -> None:
    """Refuse what the driver would, before it is asked to connect."""
    try:
        conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError as error:
        unknown = _UNKNOWN.search(str(error))
        if unknown is None:
            # What follows the colon is the token that is wrong, and that may be a password.
            raise _strange(str(error).partition(': "')[0].strip()) from None
        raise UsageError(
            f"the URL has a parameter that neither Penstock nor libpq knows: {unknown[1]!r}; "
            f"Penstock's are {', '.join(OWN[:-1])} and {OWN[-1]}"
        ) from None


def _strange(reason: str) -> UsageError:
    return UsageError(f"this is not a URL of PostgreSQL: {reason}; it looks like postgresql://user@host/database")


def _ports(parts: dict[str, Any]) -> list[str]:
    hosts = str(parts.get("host", "")).count(",") + 1
    ports = str(parts.get("port", "")).split(",")
    return ports * hosts if len(ports) == 1 else ports


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else quote(host, safe="")


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _schema(own: dict[str, str]) -> str:
    schema = own.get("schema", "penstock")
    if not 1 <= len(schema.encode()) <= 63 or schema.startswith("pg_") or set(schema) & set("\0%$"):
        raise UsageError(
            f"schema= must be a name of 1 to 63 bytes without % and $ that does not begin with pg_, got {schema!r}"
        )
    if schema in TAKEN:
        raise UsageError(f"schema= must be a schema for Penstock alone, such as penstock, got {schema!r}")
    return schema


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
    if name == "pool" and not value.is_integer():
        raise UsageError(f"{name}= in the URL must be a whole number, got {own[name]!r}")
    if not least <= value <= 10_000:
        raise UsageError(f"{name}= in the URL must be from {least} to 10000, got {value:g}")
    return value
