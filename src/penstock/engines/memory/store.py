"""A store in memory: all its tubes and sessions, and how ops are performed on them."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import Any, TypeVar

from penstock.engines import verbs
from penstock.engines.line import raised
from penstock.engines.memory.ledger import Ledgers
from penstock.engines.memory.tube import MemoryTube
from penstock.engines.spool import MemorySpool
from penstock.engines.store import Committed, Store
from penstock.engines.transaction import Holder, Transaction
from penstock.engines.transactor import Transactor
from penstock.model import ops
from penstock.model.clock import Clock, next_epoch
from penstock.model.errors import TubeNotFound
from penstock.model.ledger import Note
from penstock.model.session import Session
from penstock.model.task import HistoryRow
from penstock.model.tube import TubeConfig

R = TypeVar("R")
NEVER = 1 << 63


class Before:
    """All there was before a transaction that the caller ends; of a tube only from when it is first touched."""

    def __init__(self, tx: MemoryTransaction) -> None:
        self._tubes, self._sessions, self._numbers = dict(tx.tubes), dict(tx.sessions), tx.numbers
        self._events, self._length, self._last_event = tx.events, len(tx.events), tx.last_event
        self._images: dict[str, dict[str, Any]] = {}
        self.undo: list[Callable[[], None]] = []
        """How to come back where no image was kept, to be done from the last to the first."""

    def keep(self, tube: MemoryTube) -> None:
        """A tube may be changed from now on."""
        name = tube.config.name
        if name not in self._images and self._tubes.get(name) is tube:
            self._images[name] = tube.image()

    def restore(self, tx: MemoryTransaction) -> None:
        """Let everything be as it was. Tokens go on: nobody gets one that somebody else has seen."""
        tx.tubes, tx.sessions, tx.numbers = self._tubes, self._sessions, self._numbers
        for name, image in self._images.items():
            tx.tubes[name].restore(image)
        tx.events, tx.last_event = self._events, self._last_event
        del tx.events[self._length :]
        for undo in reversed(self.undo):
            undo()


class MemoryTransaction(Transaction):
    """All there is; an op that is refused never gets so far as to change it."""

    def __init__(self) -> None:
        super().__init__()
        self.tubes: dict[str, MemoryTube] = {}
        self.sessions: dict[str, Holder] = {}
        self.events: list[HistoryRow] = []
        self.last_event = 0
        self._ledgers = Ledgers()
        self.spool = MemorySpool()
        self.epoch = next_epoch(0)
        self.token = self.epoch << 32
        self.numbers = 0
        self._first_end = 0
        """No session ends before this moment; a lower bound."""
        self.before: Before | None = None
        """What to come back to if the caller's transaction is undone."""

    def tube(self, name: str) -> MemoryTube:
        try:
            tube = self.tubes[name]
        except KeyError:
            raise TubeNotFound(f"there is no tube {name!r}; create_tube({name!r}) makes it") from None
        if self.before is not None:
            self.before.keep(tube)
        return tube

    def has_tube(self, name: str) -> bool:
        return name in self.tubes

    def tube_names(self) -> list[str]:
        return list(self.tubes)

    def create_tube(self, config: TubeConfig) -> None:
        self.tubes[config.name] = MemoryTube(self, config)

    def configure_tube(self, config: TubeConfig, now: int) -> None:
        tube = self.tube(config.name)
        old, tube.config = tube.config, config
        if not (config.features.lanes and config.limits_differ(old)):
            return
        if config.lane_pick != old.lane_pick:
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
        self._first_end = min(self._first_end, expires_at)
        return self.sessions[session.uuid]

    def forget_holder(self, holder: Holder) -> None:
        del self.sessions[holder.session.uuid]

    def settle_sessions(self, now: int) -> None:
        if self._first_end <= now:
            super().settle_sessions(now)
            self._first_end = self.next_session_end() or NEVER

    def next_session_end(self) -> int | None:
        return min((holder.expires_at for holder in self.sessions.values()), default=None)

    def holder_name(self, number: int | None) -> str | None:
        return next((h.session.name for h in self.sessions.values() if h.number == number), None)

    def history(self, tube: str | None, after: int, limit: int, upto: int) -> list[HistoryRow]:
        return list(islice(self._events(tube, after, upto), limit))

    def _events(self, tube: str | None, after: int, upto: int) -> Iterator[HistoryRow]:
        start = bisect_right(self.events, after, key=lambda row: row.seq)
        found = takewhile(lambda row: row.seq <= upto, islice(self.events, start, None))
        return (row for row in found if tube in (None, row.tube))

    def forget_history(self, upto: int) -> int:
        kept = [row for row in self.events if row.seq > upto]
        number = len(self.events) - len(kept)
        self.events = kept
        return number

    def marks(self, tube: str | None, after: int, upto: int, every: int, limit: int) -> list[int]:
        seqs = [row.seq for row in islice(self._events(tube, after, upto), every * limit or None)]
        if not every:
            return seqs[-1:]
        return [seq for n, seq in enumerate(seqs, 1) if n % every == 0 or n == len(seqs)]

    def written(self, ledger: str, first: int, last: int) -> int | None:
        return self._ledgers.written(ledger, first, last)

    def write_notes(self, ledger: str, first: int, notes: Sequence[str]) -> None:
        self._remember(self._ledgers.write(ledger, first, notes))

    def notes(self, ledger: str, after: int, upto: int, limit: int) -> list[Note]:
        return self._ledgers.notes(ledger, after, upto, limit)

    def last_notes(self, ledger: str, limit: int) -> list[Note]:
        return self._ledgers.last(ledger, limit)

    def trim_notes(self, ledger: str, upto: int) -> int:
        number, undo = self._ledgers.trim(ledger, upto)
        self._remember(undo)
        return number

    def ledgers(self, prefix: str, after: str, limit: int) -> list[str]:
        return self._ledgers.names(prefix, after, limit)

    def _remember(self, undo: Callable[[], None]) -> None:
        if self.before is not None:
            self.before.undo.append(undo)


class MemoryStore(Store):
    """A queue that lives as long as its process."""

    holdings = "penstock.engines.memory.holdings"

    def __init__(self, name: str, clock: Clock, *, lasting: bool, data: MemoryTransaction | None = None) -> None:
        super().__init__(name, clock)
        self.lasting = lasting
        self.data = data or MemoryTransaction()
        self.data.listened = self._listeners.keys()
        self.data.watched = self._lines.watched
        self.data.waiting = self.waiting
        self.data.lives = self.lives
        self.start()

    def commit(self, requests: Sequence[ops.Op[Any]], strict: bool) -> Committed:
        tx = self.data
        tx.announced, tx.touched, tx.ended = [], set(), set()
        answers: list[Any] = []
        for op in requests:
            try:
                answers.append(verbs.execute(tx, op, self.clock.now()))
            except Exception as error:
                answers.append(error)
        moments = [tx.tubes[name].next_due for name in tx.touched if name in tx.tubes]
        next_due = min((m for m in moments if m is not None), default=None)
        return Committed(answers, tx.touched, tx.announced, next_due, tx.ended)

    @contextmanager
    def transaction(self) -> Iterator[Transactor]:
        self.check_usable()
        with self._group.alone():
            self._owner = threading.get_ident()
            before = self.data.before = Before(self.data)
            transactor = MemoryTransactor(self)
            try:
                yield transactor
            except BaseException:
                before.restore(self.data)
                raise
            finally:
                self.data.before = self._owner = None
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
        return MemoryStore(self.name, self.clock, lasting=self.lasting, data=data)


class MemoryTransactor(Transactor):
    def __init__(self, store: MemoryStore) -> None:
        self.store: MemoryStore = store
        self.done: list[Committed] = []

    def execute(self, op: ops.Op[R]) -> R:
        self.done.append(self.store.commit((op,), strict=False))
        answer: R = raised(self.done[-1].answers[0])
        return answer
