"""A store in memory: all its tubes and sessions, and how ops are performed on them."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from penstock.engines import verbs
from penstock.engines.line import raised
from penstock.engines.memory.tube import MemoryTube
from penstock.engines.store import Committed, Store, Transactor
from penstock.engines.transaction import Holder, Transaction
from penstock.model import ops
from penstock.model.clock import Clock, next_epoch
from penstock.model.errors import PenstockError, TubeNotFound
from penstock.model.session import Session
from penstock.model.task import HistoryRow
from penstock.model.tube import TubeConfig

R = TypeVar("R")


class MemoryTransaction(Transaction):
    """All there is; a transaction that fails never gets so far as to change it."""

    def __init__(self) -> None:
        super().__init__()
        self.tubes: dict[str, MemoryTube] = {}
        self.sessions: dict[str, Holder] = {}
        self.events: list[HistoryRow] = []
        self.last_event = 0
        self.epoch = next_epoch(0)
        self.token = self.epoch << 32
        self.numbers = 0

    def tube(self, name: str) -> MemoryTube:
        try:
            return self.tubes[name]
        except KeyError:
            raise TubeNotFound(f"there is no tube {name!r}; create_tube({name!r}) makes it") from None

    def has_tube(self, name: str) -> bool:
        return name in self.tubes

    def tube_names(self) -> list[str]:
        return list(self.tubes)

    def create_tube(self, config: TubeConfig) -> None:
        self.tubes[config.name] = MemoryTube(self, config)

    def configure_tube(self, config: TubeConfig, now: int) -> None:
        tube = self.tubes[config.name]
        repicked = config.lane_pick != tube.config.lane_pick
        tube.config = config
        if repicked:
            tube.place_by_seq()
        tube.refresh_all(now)

    def drop_tube(self, name: str) -> None:
        del self.tubes[name]

    def holders(self) -> Iterable[Holder]:
        return self.sessions.values()

    def holder(self, uuid: str) -> Holder | None:
        return self.sessions.get(uuid)

    def save_holder(self, session: Session, expires_at: int, attached: int) -> Holder:
        old = self.sessions.get(session.uuid)
        self.numbers += old is None
        number = self.numbers if old is None else old.number
        self.sessions[session.uuid] = Holder(number, session, expires_at, attached)
        return self.sessions[session.uuid]

    def forget_holder(self, holder: Holder) -> None:
        del self.sessions[holder.session.uuid]

    def next_session_end(self) -> int | None:
        return min((holder.expires_at for holder in self.sessions.values()), default=None)

    def holder_name(self, number: int | None) -> str | None:
        return next((h.session.name for h in self.sessions.values() if h.number == number), None)

    def history(self, tube: str | None, after: int, limit: int) -> list[HistoryRow]:
        return [row for row in self.events if row.seq > after and tube in (None, row.tube)][:limit]

    def forget_history(self, upto: int) -> int:
        kept = [row for row in self.events if row.seq > upto]
        number = len(self.events) - len(kept)
        self.events = kept
        return number


class MemoryStore(Store):
    """A queue that lives as long as its process."""

    def __init__(self, name: str, clock: Clock, data: MemoryTransaction | None = None) -> None:
        super().__init__(name, clock)
        self.lasting = "#" not in name
        self.data = data or MemoryTransaction()
        self.data.listened = self._listeners.keys()
        self.data.waiting = self.waiting
        self.start()

    def commit(self, requests: Sequence[ops.Op[Any]], strict: bool) -> Committed:
        tx = self.data
        tx.announced, tx.touched = [], set()
        answers: list[Any] = []
        for op in requests:
            try:
                answers.append(verbs.execute(tx, op, self.clock.now()))
            except PenstockError as error:
                answers.append(error)
        moments = [tx.tubes[name].next_due for name in tx.touched if name in tx.tubes]
        next_due = min((m for m in moments if m is not None), default=None)
        return Committed(answers, tx.touched, tx.announced, next_due)

    @contextmanager
    def transaction(self) -> Iterator[Transactor]:
        self.check_usable()
        with self._group.alone():
            self._owner = threading.get_ident()
            before = copy.deepcopy(self.data, {id(self.data.listened): self.data.listened, id(self): self})
            transactor = MemoryTransactor(self)
            try:
                yield transactor
            except BaseException:
                self.data = before
                raise
            finally:
                self._owner = None
                transactor.ended = True
            for done in transactor.done:
                self.note(done)
                self._serve(done.touched, strict=False)
        self._announce()

    def shut(self) -> None:
        pass

    def abandon(self) -> MemoryStore:
        self.close()
        (data := self.data).begin_run(self.clock.now())
        data.epoch = next_epoch(data.token >> 32)
        data.token = data.epoch << 32
        return MemoryStore(self.name, self.clock, data)


class MemoryTransactor(Transactor):
    def __init__(self, store: MemoryStore) -> None:
        self.store: MemoryStore = store
        self.done: list[Committed] = []

    def execute(self, op: ops.Op[R]) -> R:
        self.done.append(self.store.commit((op,), strict=False))
        answer: R = raised(self.done[-1].answers[0])
        return answer
