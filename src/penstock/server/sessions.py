"""Sessions over connections: a session ends when its last connection is closed, or some time after.

How many connections a session has is counted in the store too (`attached`), so they may be on several servers.
"""

from __future__ import annotations

from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.errors import PenstockError
from penstock.model.session import Session, new_session
from penstock.server.core import Core, log
from penstock.server.peer import Peer

KEPT_TTL = 10 * SECOND
"""Of sessions that the server keeps alive: how long their tasks stay taken when the server itself dies."""


class Sessions:
    """Which connections of this server a session has."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._peers: dict[str, set[Peer]] = {}

    async def open(self, peer: Peer, session: Session | None = None) -> Session:
        """Begin a session for a connection; without one given it is the server's to keep alive."""
        if session is None:
            peer.kept = True
            session = new_session(KEPT_TTL, direct=False)._replace(name=peer.address)
        await self._core.execute(ops.OpenSession(session))
        self._attach(peer, session)
        return session

    async def join(self, peer: Peer, uuid: str) -> Session:
        """Leave the connection's session for another one; SessionExpired if that is over."""
        session = await self._core.execute(ops.Identify(uuid, peer.held()))
        if session.uuid != peer.held().uuid:
            self._detach(peer)
            self._attach(peer, session)
        return session

    def _attach(self, peer: Peer, session: Session) -> None:
        peer.session = session
        self._peers.setdefault(session.uuid, set()).add(peer)
        if peer.kept:
            self._core.engine.keep(session)

    def _detach(self, peer: Peer) -> bool:
        """Take a connection from its session; answers whether it was the last one here."""
        session = peer.held()
        peers = self._peers.get(session.uuid, set())
        peers.discard(peer)
        if not any(other.kept for other in peers):
            self._core.engine.lose(session)
        if not peers:
            self._peers.pop(session.uuid, None)
        return not peers

    async def leave(self, peer: Peer) -> None:
        """The connection is closed: what waits takes nothing, and the session ends if this was the last one."""
        for wait in tuple(peer.waits):
            wait.leave()
        session = peer.session
        if session is None:
            return
        last = self._detach(peer)
        peer.session = None
        try:
            if not peer.kept:
                return  # a remote engine ends its session itself; one that was lost ends after its ttl
            if peer.linger == 0:
                await self._core.execute(ops.EndSession(session))
            elif last:
                now = await self._core.execute(ops.GetMoment())
                await self._core.execute(ops.KeepAlive(session, until=now + peer.linger))
        except PenstockError as error:
            log.warning("the session of %s could not be ended, its tasks come back later: %s", peer.address, error)
