"""Sessions that the database may take for dead although this process keeps them alive."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.engines.line import Answer
from penstock.engines.signs import Signs
from penstock.engines.store import Store
from penstock.model import ops
from penstock.model.clock import Clock
from penstock.model.session import Session

FAR = 1 << 62
FEW = 8
"""So many are sooner named than thought about."""
SPARE = 1000
SIGNS = (ops.KeepAlive, ops.OpenSession)
"""After these a session has its whole ttl before it."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Passing:
    """Microseconds that have passed: by the wall clock, or by that of the machine if the wall clock was set back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sum = 0
        self._wall, self._machine = self._read()

    def _read(self) -> tuple[int, int]:
        wall = self._clock.now()
        return wall, wall if self._clock.manual else time.clock_gettime_ns(_CLOCK) // 1000

    def now(self) -> int:
        """Never less than before."""
        wall, machine = self._read()
        self._sum += max(wall - self._wall, machine - self._machine, 0)
        self._wall, self._machine = wall, machine
        return self._sum


class Doubts:
    """For half its ttl after a sign of life was written, a session is not over by the database's clock.

    The other half is for what nobody here can see: the way to the database, a clock there that goes faster or is set, a
    standby that has not got the last sign when it takes over. Signs are written every third of a ttl, so usually
    nothing is in doubt, which one comparison tells.
    """

    def __init__(self, clock: Clock, kept: Mapping[str, Any], signs: Signs) -> None:
        self._lock = threading.Lock()
        self._clock, self._passing = clock, Passing(clock)
        self._kept, self._signs = kept, signs
        self._parted: deque[str] = deque()
        """Sessions that are kept here no longer, until somebody looks."""
        self._sure: dict[str, int] = {}
        """Until when a session lives in any case; also of some that are not kept here."""
        self._doubtful: set[str] = set()
        self._array: str | None = "{}"
        self._look_at = FAR
        """Before this moment nobody comes into doubt, and no sign of one in doubt is over."""
        self._full_at = SPARE
        """With so many it is time to look which of them are of use."""

    def now(self) -> int:
        """The moment before a sign is written."""
        with self._lock:
            return self._passing.now()

    def written(self, uuid: str, ttl: int, since: int) -> None:
        """The database has got a sign of life that was on its way since that moment."""
        with self._lock:
            self._sure[uuid] = since + ttl // 2
            if uuid in self._doubtful:
                self._doubtful.discard(uuid)
                self._array = None
                self._look_at = min(self._look_at, self._sure[uuid])
            if len(self._sure) > self._full_at:
                self._look_at = 0

    def meet(self, uuid: str) -> None:
        """A session lives from now on, or a sign of it was heard."""
        with self._lock:
            until = self._sure.get(uuid, 0)
            if until <= self._passing.now():
                self._doubtful.add(uuid)
                self._array = None
                until = self._end(uuid)
            self._look_at = min(self._look_at, until)

    def part(self, uuid: str) -> None:
        """A session is kept here no longer. Waits for no lock: a queue may be dropped in the middle of anything."""
        self._parted.append(uuid)

    def doubt_all(self) -> None:
        """What was written may be lost."""
        with self._lock:
            self._sure.clear()
            self._look_at = 0

    def _end(self, uuid: str) -> int:
        """When the last sign of a session is over that others keep alive."""
        left = self._signs.until(uuid) - self._clock.now()
        return self._passing.now() + left if left > 0 else FAR

    def array(self) -> str:
        """Those in doubt, as PostgreSQL reads an array."""
        with self._lock:
            while self._parted:
                uuid = self._parted.popleft()
                if uuid not in self._kept and not self._signs.until(uuid) > self._clock.now():
                    self._doubtful.discard(uuid)
                    self._array = None
            if (now := self._passing.now()) >= self._look_at:
                self._look(now)
            if self._array is None:
                self._array = "{" + ",".join(self._doubtful) + "}"
            return self._array

    def _look(self, now: int) -> None:
        lives = {*self._kept, *self._signs.alive(self._clock.now())}
        self._sure = {uuid: until for uuid, until in self._sure.items() if until > now}
        self._doubtful = lives - self._sure.keys()
        self._array = None
        moments = [self._end(uuid) for uuid in self._doubtful]
        moments += [until for uuid, until in self._sure.items() if uuid in lives]
        self._look_at = min(moments, default=FAR)
        self._full_at = 2 * len(self._sure) + SPARE


class DoubtingStore(Store):
    """A store that tells its database which sessions live, where that may be news."""

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(name, clock)
        self.doubts = Doubts(clock, self._sessions, self._signs)

    def keep(self, session: Session, engine: int) -> None:
        super().keep(session, engine)
        self.doubts.meet(session.uuid)

    def lose(self, session: Session, engine: int) -> None:
        super().lose(session, engine)
        self.doubts.part(session.uuid)

    def kept(self) -> str:
        """Sessions that live here, as an array; where they are many, those that may be over in the database."""
        if len(self._sessions) <= FEW and not self._signs:
            return "{" + ",".join(self._sessions) + "}"
        return self.doubts.array()

    def hear(self, uuid: str, ttl: int) -> None:
        super().hear(uuid, ttl)
        self.doubts.meet(uuid)

    def note_signs(self, requests: Sequence[ops.Op[Any]], answers: Sequence[Answer], since: int) -> None:
        """After a transaction that was begun at that moment: which sessions it has given time to."""
        for op, answer in zip(requests, answers, strict=True):
            if isinstance(op, SIGNS) and not isinstance(answer, BaseException):
                self.doubts.written(op.session.uuid, op.session.ttl, since)
