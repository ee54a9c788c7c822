"""Where a server is: what a penstock:// or grpc:// URL says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from penstock.model.errors import UsageError

PORTS = {"penstock": 3301, "grpc": 3302}
OPTIONS = ("tls", "ca", "cert", "key")
SHAPE = "penstock://[login:secret@]host:port[?tls=on&ca=FILE&cert=FILE&key=FILE]"


class Place(NamedTuple):
    """A server, and how to get in."""

    scheme: str
    host: str
    port: int
    login: str | None = None
    secret: str | None = None
    """As it was given: `env:NAME` and `file:PATH` are looked up when it is needed."""
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @classmethod
    def parse(cls, url: str) -> Place:
        """Take a URL apart.

        >>> Place.parse("penstock://ann:env:TOKEN@queue.example?tls=on").name
        'penstock://ann@queue.example:3301'
        """
        scheme, _, rest = url.partition("://")
        before, _, query = rest.partition("?")
        # A secret may be file:PATH, and paths have slashes.
        who, _, where = before.rpartition("@")
        login, _, secret = who.partition(":")
        try:
            parts = urlsplit(f"{scheme.lower()}://{where}?{query}")
            port = parts.port
            given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise UsageError(f"this is not the URL of a server ({error}); they look like {SHAPE}") from None
        if not parts.hostname or parts.path.strip("/") or parts.fragment:
            raise UsageError(f"the URL of a server has a host, a port and no path: {SHAPE}")
        for name in given:
            if name not in OPTIONS:
                raise UsageError(f"there is no option {name!r} in the URL of a server; there are {', '.join(OPTIONS)}")
        tls = given.get("tls", "on" if given else "off")
        if tls not in ("on", "off"):
            raise UsageError(f"tls must be on or off, got {tls!r}")
        if ("cert" in given) != ("key" in given):
            raise UsageError("a client certificate needs both cert and key")
        files = (given.get("ca"), given.get("cert"), given.get("key"))
        server = (parts.scheme, parts.hostname, port or PORTS[parts.scheme])
        return cls(*server, unquote(login) or None, unquote(secret) or None, tls == "on", *files)

    @property
    def name(self) -> str:
        """What tells two servers, or two logins to one, apart; without secrets."""
        login = "" if self.login is None else f"{quote(self.login, safe='')}@"
        return f"{self.scheme}://{login}{self.address}"

    @property
    def address(self) -> str:
        """The host and the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def unlike(self, other: Place) -> list[str]:
        """What differs from another place of the same name."""
        return [name for name in self._fields[4:] if getattr(self, name) != getattr(other, name)]

    def password(self) -> str:
        """The secret itself."""
        kind, _, rest = (self.secret or "").partition(":")
        if kind == "env" and rest:
            if not os.environ.get(rest):
                raise UsageError(f"the secret of {self.name} is env:{rest}, but {rest} is not set here")
            return os.environ[rest]
        if kind == "file" and rest:
            try:
                return Path(rest).read_text().strip()
            except OSError as error:
                raise UsageError(f"the secret of {self.name} is file:{rest}, which cannot be read: {error}") from None
        return self.secret or ""
