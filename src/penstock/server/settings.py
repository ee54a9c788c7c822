"""What a server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.duration import FOREVER, SECOND
from penstock.model.errors import UsageError
from penstock.server.tls import Tls

MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """What one client, and all of them, may use; looked at before anything is allocated."""

    frame: int = 16 * MIB
    """Bytes of one request."""
    connections: int = 10_000
    waiting: int = 100_000
    """Takes that wait, of all connections."""
    waiting_each: int = 10_000
    pipeline: int = 256
    """Requests of one connection that have no answer yet and do not wait for a task; more are not read until there are
    fewer. So many answers may have to be kept before the first is written."""
    calls: int = 10_000
    """Calls of one connection of gRPC, those that wait among them."""
    unsent: int = 64 * MIB
    """Bytes of answers that a client has not read; one with more that reads nothing of them is cut off."""
    slow_seconds: float = 10.0
    """How long such a client may read nothing."""
    login_seconds: float = 10.0
    """A connection that has to log in and does not is closed."""
    transaction_seconds: float = 10.0
    """How long a client may keep a transaction of the store open."""
    session_seconds: float = 24 * 3600.0
    """How long a session may outlive its client, and with it what that holds."""

    def check_session(self, ttl: int) -> None:
        """UsageError if a session, or its next sign of life, is meant to last longer than that."""
        if ttl > self.session_seconds * SECOND:
            asked = "for ever" if ttl >= FOREVER else f"{ttl / SECOND:g} s"
            raise UsageError(
                f"session_ttl is {asked}, and this server allows {self.session_seconds:g} s at most "
                "(--max-session-ttl): ask for less"
            )


@dataclass(frozen=True)
class Settings:
    """Where a server listens and what it serves."""

    url: str
    host: str = "127.0.0.1"
    port: int | None = 3301
    """Of Tarantool's protocol and of penstock:// URLs; 0: any free one, None: not at all."""
    grpc_port: int | None = None
    http_port: int | None = None
    """Of /metrics, /health and /ready."""
    durability: str = "strict"
    drain_seconds: float = 30.0
    limits: Limits = field(default_factory=Limits)
    tls: Tls | None = None
    logins: str | None = None
    """A file of logins; None: everybody may do everything, which is for loopback and client certificates."""
