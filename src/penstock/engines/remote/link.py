"""A connection to a server, whatever carries it: requests go out, answers and pushes come in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Protocol

from penstock.engines.remote.place import Place

CONNECT_SECONDS = 10.0
"""How long a server may take to say the first word."""
TRANSPORTS = {"penstock": "penstock.engines.remote.iproto_link", "grpc": "penstock.engines.remote.grpc_link"}
"""Which module opens links of a scheme: it has `open_link(place, ear) -> Link`."""


class Ear(Protocol):
    """Hears what a link brings, in a thread of the link's own."""

    def heard(self, link: Link, number: int, failed: bool, payload: bytes) -> None:
        """An answer, or with number 0 a push."""

    def lost(self, link: Link, why: str) -> None:
        """The connection is broken or closed; called once."""


class Link(ABC):
    """One connection. It is logged in, and may be used by several threads at once."""

    leaving = False
    """True once the server has asked to go elsewhere: nothing new is sent here."""
    patience = 10.0
    """Seconds that a server may need for a sign of life."""
    moved_at = 0.0
    """When something came or went last."""
    called_at: float | None = None
    """When a sign of life was asked for that has not come yet."""

    @abstractmethod
    def send(self, number: int, seen: int, kind: str, payload: bytes) -> None:
        """Send a request. What cannot be sent is heard of by lost()."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection; lost() may be called or not."""

    @abstractmethod
    def disown(self) -> None:
        """In a child after fork: let go of what belongs to the parent, without a trace at the other end."""


def open_link(place: Place, ear: Ear) -> Link:
    """Connect and log in. EngineUnavailable if nobody answers, AccessDenied if the login is refused."""
    link: Link = import_module(TRANSPORTS[place.scheme]).open_link(place, ear)
    return link
