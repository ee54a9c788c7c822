"""Sessions that a store keeps alive for the engines of this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.engines.line import Answer, raised
from penstock.engines.signs import Signs
from penstock.model import ops
from penstock.model.clock import Clock
from penstock.model.duration import SECOND
from penstock.model.session import Session

if TYPE_CHECKING:
    from penstock.engines.keeper import Keeper


class KeptSessions(ABC):
    """Who is alive, and who says so."""

    writable = True
    kept_together = 100
    """Sessions that are kept alive in one transaction."""
    _keeper: Keeper | None = None

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._sessions: dict[str, Session] = {}
        self._keeping: dict[str, set[int]] = {}
        """Which engines of this process keep a session alive; two queues may share one."""
        self._alive_at: dict[str, int] = {}
        self._signs = Signs()
        self._next_alive = 0
        """No session has to be kept alive before this moment."""
        self._cancelled: dict[str, list[int]] = {}

    @abstractmethod
    def execute_many(self, requests: Sequence[ops.Op[Any]], strict: bool = True) -> list[Answer]:
        """Perform ops."""

    @property
    def cancelled(self) -> set[int]:
        """Tokens of tasks held here that were asked to cancel, as of the last keepalive."""
        return {token for tokens in list(self._cancelled.values()) for token in tokens}

    def hear(self, uuid: str, ttl: int) -> None:
        """Somebody far away has given a sign of life for a session; it need not be written down yet to count."""
        self._signs.hear(uuid, ttl, self.clock.now())

    def lives(self) -> set[str]:
        """Sessions that must not end now: those kept here, and those heard of."""
        return {*self._sessions, *self._signs.alive(self.clock.now())}

    def keep(self, session: Session, engine: int) -> None:
        """Keep a session alive from now on, for one of the engines on this store."""
        self._keeping.setdefault(session.uuid, set()).add(engine)
        self._alive_at[session.uuid] = self.clock.now()
        self._sessions[session.uuid] = session
        moment = self.clock.now() + session.ttl // 3
        if moment < self._next_alive:
            self._next_alive = moment
            if self._keeper is not None:
                self._keeper.poke()

    def lose(self, session: Session, engine: int) -> None:
        """Stop keeping a session alive once no engine on this store does."""
        keeping = self._keeping.get(session.uuid, set())
        keeping.discard(engine)
        if not keeping:
            for known in (self._keeping, self._sessions, self._alive_at, self._cancelled):
                known.pop(session.uuid, None)

    def _keep_sessions(self, now: int) -> list[float]:
        """Keep those alive that it is time for, all together; answers the seconds until the next time."""
        if now >= self._next_alive:
            due: list[Session] = []
            self._next_alive = now + SECOND
            for session in self._kept_alive():
                moment = self._alive_at.get(session.uuid, now) + session.ttl // 3
                if moment <= now:
                    due.append(session)
                    moment = now + session.ttl // 3
                self._next_alive = min(self._next_alive, moment)
            self._keep_alive(due)
        return [(self._next_alive - now) / SECOND]

    def _kept_alive(self) -> list[Session]:
        """None where nothing can be written: a standby keeps its sessions from the moment it is promoted."""
        return list(self._sessions.values()) if self.writable else []

    def _keep_alive(self, sessions: Sequence[Session]) -> None:
        for start in range(0, len(sessions), self.kept_together):
            some = sessions[start : start + self.kept_together]
            self._alive_at.update((session.uuid, self.clock.now()) for session in some)
            answers = self.execute_many([ops.KeepAlive(session) for session in some], strict=False)
            for session, tokens in zip(some, answers, strict=True):
                if session.uuid in self._sessions:
                    self._cancelled[session.uuid] = raised(tokens)
