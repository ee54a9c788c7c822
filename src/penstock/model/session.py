"""Who holds leases."""

from __future__ import annotations

import os
import socket
import uuid
from typing import NamedTuple

from penstock.model.duration import SECOND, Seconds, length
from penstock.model.errors import UsageError

DEFAULT_TTL = 30 * SECOND


class Session(NamedTuple):
    """An identity that holds leases and outlives connections.

    The uuid is a credential: whoever knows it can finish the session's tasks. The name is public.
    """

    uuid: str
    name: str
    ttl: int
    direct: bool = True
    """True for a process on the store itself: it cannot outlive the store's run."""

    def __repr__(self) -> str:
        return f"<Session of {self.name}>"


def check_ttl(value: Seconds | None) -> int:
    """A session must outlive the time between two signs of life."""
    ttl = length(value, "session_ttl")
    if ttl is None or ttl == 0:
        raise UsageError(f"session_ttl must be more than 0 seconds, got {value!r}")
    return ttl


def new_session(ttl: int | None, direct: bool = True) -> Session:
    """A fresh identity for this process."""
    return Session(str(uuid.uuid4()), public_name(), DEFAULT_TTL if ttl is None else ttl, direct)


def public_name() -> str:
    """How other sessions see this one: host and process, never the uuid."""
    return f"{socket.gethostname()}:{os.getpid()}"


def parse_uuid(value: object) -> str:
    """A session's uuid as text, whatever form it was given in."""
    try:
        if isinstance(value, bytes) and len(value) == 16:
            return str(uuid.UUID(bytes=value))
        return str(uuid.UUID(str(value)))
    except ValueError:
        raise UsageError("identify() needs the UUID of a session, as text or 16 bytes") from None
