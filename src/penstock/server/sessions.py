"""Sessions over connections: a session ends when its last connection is closed, or some time after.

Connections of a server that are in one session count as one in the store (`attached`): other servers, and processes
that work on the store themselves, may be in it too, and the last one out ends it.
"""

from __future__ import annotations

import asyncio
import uuid as uuids

from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.errors import PenstockError, SessionExpired
from penstock.model.session import Session
from penstock.server.core import Core, log
from penstock.server.peer import Peer

KEPT_TTL = 10 * SECOND
"""Of sessions that the server keeps alive: how long their tasks stay taken when the server itself dies."""


class Kept:
    """A session that this server keeps alive, and its connections here."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.peers: set[Peer] = set()
        self.linger: int | None = None
        """How long it outlives its connections; None: as long as the others."""
        self.timer: asyncio.TimerHandle | None = None
        """Ends it, once nobody is connected any more."""


class Sessions:
    """Which connections of this server a session has."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._kept: dict[str, Kept] = {}
        self.linger = 0
        """Microseconds that a session outlives its last connection; 0: it ends at once."""

    def __len__(self) -> int:
        """How many sessions the server keeps alive."""
        return len(self._kept)

    def begin(self, peer: Peer) -> Session:
        """The session of a connection; the server begins one, to be kept alive here, if it has none."""
        if peer.session is None:
            linger = self.linger if peer.linger is None else peer.linger
            session = Session(str(uuids.uuid4()), peer.address, max(KEPT_TTL, linger), direct=False)
            # Asked for first, so it is there before whatever the connection asks for in it.
            self._core.ask(ops.OpenSession(session), lambda answer: _log_failure(answer, peer))
            self._attach(peer, session)
        return peer.held()

    async def join(self, peer: Peer, uuid: str) -> Session:
        """Leave the connection's session for another one; SessionExpired if that is over."""
        if peer.session is not None and peer.session.uuid == uuid:
            return peer.session
        if peer.closed:
            raise SessionExpired("the connection is closed")
        peer.takes()  # should the connection be closed meanwhile, then it leaves the new session
        try:
            kept = self._kept.get(uuid)
            session = kept.session if kept is not None else await self._identify(uuid)
            left = self._detach(peer)
            self._attach(peer, session)
            if left is not None:
                await self._leave(left)
        finally:
            peer.took()
        return session

    async def _identify(self, uuid: str) -> Session:
        """Join a session that no connection here is in, on behalf of the server."""
        nobody = Session(str(uuids.uuid4()), "", KEPT_TTL, direct=False)
        session = await self._core.execute(ops.Identify(uuid, nobody))
        if uuid in self._kept:
            # Two connections joined it at one time: the server counts once.
            await self._core.execute(ops.EndSession(session))
        return session

    def _attach(self, peer: Peer, session: Session) -> None:
        peer.session = session
        kept = self._kept.get(session.uuid)
        if kept is None:
            kept = self._kept[session.uuid] = Kept(session)
            self._core.engine.keep(session)
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None
        kept.peers.add(peer)

    def _detach(self, peer: Peer) -> Kept | None:
        """Take a connection from its session; answers the session if nobody here is in it any more."""
        if peer.session is None:
            return None
        kept = self._kept[peer.session.uuid]
        kept.peers.discard(peer)
        kept.linger = peer.linger
        peer.session = None
        return None if kept.peers else kept

    async def leave(self, peer: Peer) -> None:
        """The connection is closed: what waits takes nothing, and the session ends if this was the last one."""
        peer.closed = True
        for wait in tuple(peer.waits):
            wait.leave()
        await peer.quiet()
        for call in tuple(peer.leaving):
            call()
        left = self._detach(peer)
        if left is not None:
            await self._leave(left)

    async def _leave(self, kept: Kept) -> None:
        """Nobody here is in the session any more."""
        linger = self._linger(kept.linger)
        if linger == 0:
            await self._end(kept)
            return
        kept.timer = self._core.loop.call_later(linger / SECOND, self._time_is_over, kept)
        if kept.session.ttl < linger:
            # Should the server end before that, then the session lives on for as long.
            kept.session = kept.session._replace(ttl=linger)
            self._core.engine.keep(kept.session)
            self._core.ask(ops.KeepAlive(kept.session), lambda answer: _log_failure(answer, kept.session))

    def _linger(self, own: int | None) -> int:
        return self.linger if own is None else own

    def _time_is_over(self, kept: Kept) -> None:
        kept.timer = None
        self._forget(kept)
        self._core.ask(ops.EndSession(kept.session), lambda answer: _log_failure(answer, kept.session))

    async def _end(self, kept: Kept) -> None:
        self._forget(kept)
        try:
            await self._core.execute(ops.EndSession(kept.session))
        except PenstockError as error:
            _log_failure(error, kept.session)

    def _forget(self, kept: Kept) -> None:
        self._kept.pop(kept.session.uuid, None)
        self._core.engine.lose(kept.session)

    def close(self) -> None:
        """The server ends: sessions that linger are the store's to end."""
        for kept in list(self._kept.values()):
            if kept.timer is not None:
                kept.timer.cancel()
                self._forget(kept)


def _log_failure(answer: object, whose: Peer | Session) -> None:
    if isinstance(answer, BaseException):
        name = whose.address if isinstance(whose, Peer) else whose.name
        log.warning("a session of %s could not begin or end, its tasks come back later: %s", name, answer)
