"""Who may do what."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.model import ops


class Login(NamedTuple):
    """A name, and what it may do on which tubes."""

    name: str

    def check(self, op: ops.Op[Any]) -> None:
        """AccessDenied if the login may not do that."""


EVERYTHING = Login("guest")
"""Of clients on loopback when no logins are set up."""
