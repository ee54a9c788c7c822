"""One connection, as the queue behind the server sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model import ops
from penstock.model.errors import UsageError
from penstock.model.session import Session

if TYPE_CHECKING:
    from typing import Any

    from penstock.server.auth import Login
    from penstock.server.core import Wait


class Peer:
    """Who it is, whose session it works in, what it waits for."""

    def __init__(self, address: str, login: Login) -> None:
        self.address = address
        self.login = login
        self.session: Session | None = None
        self.kept = False
        """True if the server keeps the session alive; a remote engine does that itself."""
        self.linger = 0
        """Microseconds that the session outlives its last connection; 0: it ends at once."""
        self.waits: set[Wait] = set()

    def check(self, op: ops.Op[Any]) -> None:
        """AccessDenied if the login may not do that."""
        self.login.check(op)

    def held(self) -> Session:
        """The session that takes are for."""
        if self.session is None:
            raise UsageError("this connection has no session")
        return self.session
