"""What a verb sees of an engine: tubes and sessions inside one transaction.

An engine with a store of its own (memory, SQLite) implements the abstract methods; what is alike for all of
them, namely how a change is counted, recorded and announced and how due things are done in order, is here.
"""

from __future__ import annotations

import heapq
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from penstock.engines.spool import Spool
from penstock.model import rules
from penstock.model.errors import UsageError
from penstock.model.lane import LaneInfo, LaneLimits
from penstock.model.ledger import Note
from penstock.model.rules import Due, Rank
from penstock.model.session import Session
from penstock.model.state import TRANSITIONS, Event, State, Transition
from penstock.model.stats import Counters
from penstock.model.task import Change, HistoryRow, Record, TaskId
from penstock.model.tube import Adoption, TubeConfig

CLASS = re.compile(r"[^\W\d][\w.]*(?=:(?:\s|$))")
"""How the text of an exception begins."""
BATCH = 1000
"""How many due tasks are loaded at a time."""


class Holder(NamedTuple):
    """A session as a store knows it."""

    number: int
    session: Session
    expires_at: int
    attached: int


class TubeStore(ABC):
    """One tube, inside a transaction."""

    config: TubeConfig
    counters: Counters
    tx: Transaction
    next_due: int | None
    """A lower bound of the next moment at which time changes something here; None: nothing is due, ever."""

    # -- storage -----------------------------------------------------------------------------------

    @abstractmethod
    def next_seq(self, at_least: int = 0) -> int: ...

    @abstractmethod
    def next_token(self) -> int: ...

    @abstractmethod
    def find(self, task_id: TaskId) -> Record | None: ...

    @abstractmethod
    def find_key(self, key: str) -> Record | None:
        """The live task with this key."""

    @abstractmethod
    def find_put_id(self, put_id: str) -> Record | None: ...

    @abstractmethod
    def insert(self, record: Record, now: int) -> None: ...

    @abstractmethod
    def update(self, before: Record, after: Record, now: int) -> None: ...

    @abstractmethod
    def remove(self, record: Record, now: int) -> None: ...

    @abstractmethod
    def record_history(self, row: HistoryRow) -> None: ...

    @abstractmethod
    def truncate(self) -> int: ...

    def whole(self) -> AbstractContextManager[None]:
        """A context in which a refusal undoes what was written. Only tables of the user's refuse after a write."""
        return nullcontext()

    def change_columns(self, record: Record, update: Mapping[str, Any]) -> Record:
        """Change other columns of an adopted table."""
        raise UsageError("update= changes columns of an adopted table; this tube is not adopted")

    # -- reading -----------------------------------------------------------------------------------

    @abstractmethod
    def candidate(self, lane: str | None, now: int) -> Record | None:
        """The task that the next grant is for, by the rules of order and lanes; the tube is settled."""

    @abstractmethod
    def due_tasks(self, until: int, limit: int) -> list[Record]:
        """Tasks that time changes up to a moment, earliest first."""

    @abstractmethod
    def due_lanes(self, until: int) -> list[tuple[int, str]]:
        """Lanes that a rate limit opens up to a moment."""

    @abstractmethod
    def open_lane(self, lane: str, at: int) -> None: ...

    @abstractmethod
    def first_due(self) -> int | None: ...

    @abstractmethod
    def buried(self, limit: int | None) -> list[Record]:
        """Buried tasks in the order of the tube."""

    @abstractmethod
    def exhausted(self) -> list[Record]:
        """What add_retries revives: buried for no_attempts or lost, kept as expired."""

    @abstractmethod
    def taken(self, session: int | None = None) -> list[Record]: ...

    @abstractmethod
    def page(self, state: State | None, limit: int, after: TaskId | None) -> list[Record]: ...

    @abstractmethod
    def extent(self) -> tuple[int, int] | None:
        """The lowest and the highest seq."""

    # -- lanes -------------------------------------------------------------------------------------

    @abstractmethod
    def configure_lane(self, lane: str, options: Mapping[str, Any], now: int) -> LaneLimits: ...

    @abstractmethod
    def lanes(self, limit: int, after: str | None, now: int) -> list[LaneInfo]: ...

    # -- the same for every store ------------------------------------------------------------------

    def save(self, changes: Sequence[Change]) -> Record:
        """Store the outcome of changes of one task; count, record and announce each step."""
        before, after = changes[0].before, changes[-1].after
        at = changes[-1].at
        counters = self.counters
        for change in changes:
            old = None if change.before is None else State(change.before.state)
            new = change.after
            reason = new.reason
            assert Transition(change.event, old, State(new.state), reason) in TRANSITIONS, change  # type: ignore[arg-type]
            counters.call(change.event)
            if new.state == State.DONE and old != State.DONE:
                counters.finished()
            if self.config.history:
                self.record_history(self._history(change))
        gone = rules.is_gone(after)
        counters.move(None if before is None else before.state, None if gone else after.state)
        if before is None:
            self.insert(after, at)
        elif gone:
            self.remove(before, at)
        else:
            self.update(before, after, at)
        self.tx.changed(self, changes)
        return after

    def give_back(self, changes: Sequence[Change]) -> Record:
        """Save what the end of a session does; nobody is there to be told that a table of the user's refuses it."""
        return self.save(changes)

    def purge(self, record: Record, at: int) -> None:
        """A kept task's time is over. No event."""
        self.counters.move(record.state, None)
        self.remove(record, at)

    def settle(self, until: int) -> None:
        """Do all that is due up to a moment, in the order of (moment, rank, seq). [rule 2]"""
        if self.next_due is None or self.next_due > until:
            return
        while True:
            tasks = self.due_tasks(until, BATCH)
            last = rules.due(tasks[-1]) if len(tasks) == BATCH else None
            horizon = until if last is None else last.at
            lanes = self.due_lanes(horizon)
            if not tasks and not lanes:
                break
            self._settle_batch(tasks, lanes, horizon)
        self.next_due = self.first_due()

    def _settle_batch(self, tasks: list[Record], lanes: list[tuple[int, str]], horizon: int) -> None:
        line: list[tuple[Due, int, Record | str]] = []
        for record in tasks:
            what = rules.due(record)
            assert what is not None
            line.append((what, record.seq, record))
        line.extend((Due(at, Rank.LANE), i, lane) for i, (at, lane) in enumerate(lanes))
        heapq.heapify(line)
        while line:
            what, seq, item = heapq.heappop(line)
            if isinstance(item, str):
                self.open_lane(item, what.at)
                self.tx.touched.add(self.config.name)
            elif (left := self._settle_step(item, what)) and (then := rules.due(left)) and then.at <= horizon:
                heapq.heappush(line, (then, seq, left))

    def _settle_step(self, record: Record, what: Due) -> Record | None:
        changes = rules.settle(self.config, record, what)
        if not changes:
            self.purge(record, what.at)
            return None
        after = self.save(changes)
        return None if rules.is_gone(after) else after

    def settled(self, record: Record | None, now: int) -> Record | None:
        """One task with what is due for it done; None when that ended it."""
        while record and (what := rules.due(record)) and what.at <= now:
            record = self._settle_step(record, what)
        return record

    def note_due(self, record: Record) -> None:
        """Lower the bound of next_due after a record was written."""
        what = rules.due(record)
        if what is not None and (self.next_due is None or what.at < self.next_due):
            self.next_due = what.at

    def _history(self, change: Change) -> HistoryRow:
        before, after = change.before, change.after
        holder = after.session or (before.session if before else None)
        error = change.error
        named = None if error is None else CLASS.match(error)
        delayed = after.state == State.DELAYED and after.ready_at is not None
        return HistoryRow(
            seq=0,
            at=change.at,
            tube=self.config.name,
            task_id=after.id,
            event=change.event.value,
            from_state=str(before.state) if before else None,
            to_state=str(after.state),
            reason=None if after.reason is None else str(after.reason),
            attempt=after.attempt,
            pri=after.pri,
            lane=after.lane,
            key=after.key,
            worker=self.tx.holder_name(holder),
            error_class=named[0][:100] if named else None,
            error=error,
            ready_at=after.ready_at,
            taken_at=after.taken_at or (before.taken_at if before else None),
            delay=(after.ready_at or 0) - change.at if delayed else None,
            data=after.data if self.config.history_data else None,
        )


End = tuple[str, TaskId | None]
"""A tube and the id of a task; None: it may be any."""
ENDS = (State.DONE, State.BURIED)


class Transaction(ABC):
    """All tubes and sessions of a store, inside one transaction."""

    spool: Spool
    """What is staged."""

    def __init__(self) -> None:
        self.announced: list[tuple[TubeStore, Change]] = []
        self.touched: set[str] = set()
        self.ended: set[End] = set()
        """Tasks that have ended, as far as somebody waits for that."""
        self.watched: Container[str] = ()
        """Tubes in which somebody of this process waits for the end of a task."""
        self.listened: Container[str] = ()
        """Tubes with an on_task_change callback in this process."""
        self.lives: Callable[[], Container[str]] = tuple
        """Sessions that this process keeps alive, or has heard of."""
        self.waiting: Callable[[str], int] = lambda tube: 0
        """How many takers wait on a tube in this process."""

    # -- tubes -------------------------------------------------------------------------------------

    @abstractmethod
    def tube(self, name: str) -> TubeStore:
        """The tube of that name, or TubeNotFound."""

    @abstractmethod
    def has_tube(self, name: str) -> bool: ...

    @abstractmethod
    def tube_names(self) -> list[str]: ...

    @abstractmethod
    def create_tube(self, config: TubeConfig) -> None: ...

    @abstractmethod
    def configure_tube(self, config: TubeConfig, now: int) -> None: ...

    @abstractmethod
    def drop_tube(self, name: str) -> None: ...

    def adopt(self, asked: Adoption, now: int) -> TubeConfig:
        raise UsageError("adopt() needs a store with tables: open a SQLite file")

    # -- sessions ----------------------------------------------------------------------------------

    @abstractmethod
    def holders(self) -> Iterable[Holder]: ...

    @abstractmethod
    def holder(self, uuid: str) -> Holder | None: ...

    @abstractmethod
    def save_holder(self, session: Session, expires_at: int, attached: int) -> Holder: ...

    @abstractmethod
    def forget_holder(self, holder: Holder) -> None: ...

    @abstractmethod
    def next_session_end(self) -> int | None: ...

    @abstractmethod
    def holder_name(self, number: int | None) -> str | None: ...

    # -- history and ledgers -----------------------------------------------------------------------

    @abstractmethod
    def history(self, tube: str | None, after: int, limit: int, upto: int) -> list[HistoryRow]: ...

    @abstractmethod
    def forget_history(self, upto: int) -> int: ...

    @abstractmethod
    def marks(self, tube: str | None, after: int, upto: int, every: int, limit: int) -> list[int]:
        """The seq of every `every`-th event, and of the last."""

    @abstractmethod
    def written(self, ledger: str, first: int, last: int) -> int | None:
        """The lowest of these numbers that was ever written."""

    @abstractmethod
    def write_notes(self, ledger: str, first: int, notes: Sequence[str]) -> None: ...

    @abstractmethod
    def notes(self, ledger: str, after: int, upto: int, limit: int) -> list[Note]: ...

    @abstractmethod
    def last_notes(self, ledger: str, limit: int) -> list[Note]: ...

    @abstractmethod
    def trim_notes(self, ledger: str, upto: int) -> int: ...

    @abstractmethod
    def ledgers(self, prefix: str, after: str, limit: int) -> list[str]: ...

    # -- the same for every store ------------------------------------------------------------------

    def changed(self, tube: TubeStore, changes: Sequence[Change]) -> None:
        """Remember who must be woken and told after the commit."""
        name = tube.config.name
        self.touched.add(name)
        if name in self.listened:
            self.announced.extend((tube, change) for change in changes)
        if name in self.watched:
            # Keys of adopted tables have more shapes than one.
            known = tube.config.adopted is None
            ends = [change.after.id for change in changes if change.after.state in ENDS]
            self.ended.update((name, id if known else None) for id in ends)

    def emptied(self, name: str) -> None:
        """Tasks of a tube may be gone, nobody knows which."""
        self.touched.add(name)
        self.ended.add((name, None))

    def settle_sessions(self, now: int) -> None:
        """End sessions whose time is over, each at its own moment. [rules 2, 13]"""
        first = self.next_session_end()
        if first is None or first > now:
            return
        lives = self.lives()
        for holder in sorted(self.holders(), key=lambda h: (h.expires_at, h.number)):
            if holder.expires_at > now:
                break
            if holder.session.uuid in lives:
                # Its process lives: it is this one, and only had no time for a sign of life.
                self.save_holder(holder.session, now + holder.session.ttl, holder.attached)
                continue
            for name in self.tube_names():
                self.tube(name).settle(holder.expires_at - 1)
            self.end_session(holder, holder.expires_at)

    def end_session(self, holder: Holder, at: int) -> int:
        """Give back all that a session holds."""
        number = 0
        for name in self.tube_names():
            tube = self.tube(name)
            for record in sorted(tube.taken(holder.number), key=lambda r: r.seq):
                what = rules.due(record)
                if what is not None and what.at <= at:
                    tube.settled(record, at)
                    continue
                tube.give_back(rules.lose(tube.config, record, at, Event.RELEASE))
                number += 1
        self.forget_holder(holder)
        return number

    def begin_run(self, now: int) -> None:
        """The store was open nowhere and is opened again. [rule 13]"""
        for holder in list(self.holders()):
            if holder.session.direct:
                self.end_session(holder, now)
            else:
                self.save_holder(holder.session, now + holder.session.ttl, 0)
        for name in self.tube_names():
            tube = self.tube(name)
            if tube.config.temporary:
                tube.truncate()
            tube.counters.new_run()

    def join(self, session: Session, now: int) -> Holder:
        """The stored session of a caller; made anew if it had ended while its process lives on."""
        holder = self.holder(session.uuid)
        if holder is None:
            holder = self.save_holder(session, now + session.ttl, 1)
        return holder
