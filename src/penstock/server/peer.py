"""One connection, as the queue behind the server sees it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.model import ops
from penstock.model.errors import UsageError
from penstock.model.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from penstock.server.auth import Login
    from penstock.server.core import Wait


class Peer:
    """Who it is, whose session it works in, what it waits for."""

    def __init__(self, address: str, login: Login) -> None:
        self.address = address
        self.login = login
        self.session: Session | None = None
        self.closed = False
        """True from the moment the connection is lost: what it is granted from now on is given back."""
        self.linger: int | None = None
        """Microseconds that the session outlives this connection, if it is the last; None: as the server says."""
        self.waits: set[Wait] = set()
        self.leaving: set[Callable[[], None]] = set()
        """Called when the connection is closed, before its session ends."""
        self._taking = 0
        self._quiet: asyncio.Future[None] | None = None

    def check(self, op: ops.Op[Any], facade: bool = False) -> None:
        """AccessDenied if the login may not do that; `facade`: by the rules of tarantool/queue."""
        self.login.check(op, facade)

    def held(self) -> Session:
        """The session that takes are for."""
        if self.session is None:
            raise UsageError("this connection has no session")
        return self.session

    def takes(self) -> None:
        """A take has begun."""
        self._taking += 1

    def took(self) -> None:
        """A take has its answer, and what it was granted too late is on its way back."""
        self._taking -= 1
        if self._quiet is not None and self._taking == 0 and not self._quiet.done():
            self._quiet.set_result(None)

    async def quiet(self) -> None:
        """Come back when nothing is being taken."""
        if self._taking:
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet
