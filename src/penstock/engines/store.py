"""A store: one object per process and place, shared by all its queues.

Where this process works on it itself, ops that threads ask for at one time are performed in one transaction (group.py).
After the commit the same thread serves the waiters (line.py) and, outside the lock, calls the change callbacks. A store
behind a server sends its ops there instead (remote/store.py); sessions, callbacks and the keeper's rounds are the same.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from penstock.engines.group import Group
from penstock.engines.keeper import Bell, Keeper
from penstock.engines.kept import KeptSessions
from penstock.engines.line import Answer, Lines, Waiter, in_two, raised
from penstock.engines.refund import grants, refunds
from penstock.engines.scan import Scan
from penstock.engines.transaction import End
from penstock.engines.transactor import Transactor
from penstock.model import ops
from penstock.model.clock import Clock, ManualClock
from penstock.model.duration import SECOND
from penstock.model.errors import EngineUnavailable, PenstockError, UsageError
from penstock.model.state import Event
from penstock.model.task import Change, Record
from penstock.model.tube import TubeConfig

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")
FORK_PATIENCE = 1.0
"""Seconds that a fork waits for what is going on in other threads."""
Callback = Callable[[TubeConfig, Record, Event], None]
log = logging.getLogger("penstock")


class Configured(Protocol):
    """A tube, as far as a callback is told of it."""

    @property
    def config(self) -> TubeConfig: ...


class Committed(NamedTuple):
    """What a transaction did."""

    answers: list[Answer]
    touched: set[str]
    """Tubes in which something may have become possible for a waiter."""
    announced: Sequence[tuple[Configured, Change]]
    next_due: int | None
    ended: Collection[End] | None = None
    """Tasks whose end somebody may wait for; None: nobody knows."""


class Store(KeptSessions):
    """What all stores share: grouping, waiting, callbacks, keepalive."""

    lasting = False
    """True for a store that stays when its last queue is closed: a named one in memory."""
    poll_seconds: float | None = None
    """How often to look for changes of other processes while somebody waits here."""
    scanner = "penstock.engines.scan"
    """The module that reads for scan(); those of the engines load optional parts."""
    holdings = ""
    """The module that looks at who holds what."""
    prompt = False
    """True if asking blocks nobody: ask() sends, and the answer comes by itself."""

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(clock)
        self.name = name
        self.users = 0
        self.closed = False
        self._pid = os.getpid()
        self._group = Group(self._perform, self.give_back)
        self._mutex = self._group.mutex
        self._owner: int | None = None
        self._held = False
        self._lines = Lines()
        self._listeners: dict[str, Callback] = {}
        self._outbox: deque[tuple[Callback, TubeConfig, Record, Event]] = deque()
        self._announcing = threading.RLock()
        self._next_tick: int | None = 0
        self._keeper: Keeper | None = None

    # -- what an engine does -----------------------------------------------------------------------

    @abstractmethod
    def commit(self, requests: Sequence[ops.Op[Any]], strict: bool) -> Committed:
        """Perform ops in one transaction. A refused op is answered by its error and undoes nobody else's."""

    @abstractmethod
    def shut(self) -> None:
        """Give the place free."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transactor]:
        """A transaction that the caller ends."""

    def join(self, transaction: object) -> Transactor:
        """A transaction that the caller runs on a connection of its own."""
        raise UsageError(f"{self.name} cannot join {type(transaction).__name__}; pass what q.transaction() gave")

    def foreign_change(self) -> bool:
        """True when another process has changed the store since the last look."""
        return False

    def bell(self) -> Bell:
        """What wakes the thread that keeps time."""
        return Bell()

    def poll_pause(self, now: int) -> float | None:
        """Seconds until the next look for changes of other processes."""
        if self.poll_seconds is None:
            return None
        return self.poll_seconds if now - self._foreign_at < SECOND else 2 * self.poll_seconds

    # -- performing ops ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to keep time."""
        if isinstance(self.clock, ManualClock):
            self.clock.follow(self)
        else:
            self._keeper = Keeper(self, self.name, self.bell())

    def execute(self, op: ops.Op[R], strict: bool = True) -> R:
        """Perform one op; what it refuses is raised."""
        answers: list[Answer] = []
        try:
            answers = self.execute_many((op,), strict)
            result: R = raised(answers[0])
            return result
        except BaseException:
            if answers:
                self.give_back((op,), answers)
            raise

    def execute_many(self, requests: Sequence[ops.Op[Any]], strict: bool = True) -> list[Answer]:
        """Perform ops, together with those of other threads that came meanwhile."""
        if self.closed or self._owner is not None or self._pid != os.getpid():
            self.check_usable()
        answers: list[Answer] = []
        try:
            answers = self._group.perform(requests, strict)
            if self._outbox:
                self._announce()
            return answers
        except BaseException:
            if answers:
                self.give_back(requests, answers)
            raise

    def give_back(self, requests: Sequence[ops.Op[Any]], answers: Sequence[Answer]) -> None:
        """A signal has come: nobody has what these were granted."""
        if granted := grants(requests, answers):
            with suppress(PenstockError):
                self.execute_many(refunds(granted))

    def ask(self, requests: Sequence[ops.Op[Any]], then: Callable[[Callable[[], list[Answer]]], None]) -> None:
        """Where it is prompt: send ops and come back. `then` gets what tells the answers, when they are there."""
        raise UsageError(f"{self.name} performs ops at once; execute() them")

    def scan(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Read tasks or events in batches of Arrow."""
        self.check_usable()
        batches: Iterator[pa.RecordBatch] = import_module(self.scanner).batches(self, scan)
        return batches

    def _perform(self, requests: Sequence[ops.Op[Any]], strict: bool) -> list[Answer]:
        if self._lines.count:
            if self._next_tick is not None and self._next_tick <= self.clock.now():
                self._let_time_serve()
            if late := self._lines.late(requests):
                return in_two(requests, late, lambda some: self._perform_or_fail(some, strict))
        done: Committed | None = None
        try:
            done = self.commit(requests, strict)
            if done.next_due is not None or done.announced:
                self.note(done)
            if self._lines.count and done.touched:
                self._serve(done.touched, strict, done.ended)
            return done.answers
        except BaseException as error:
            if done is not None:  # of a signal: whom this concerns is told first
                self._group.late = error
                self._serve(done.touched, strict)
                return done.answers
            if len(requests) == 1 or not isinstance(error, Exception):
                raise
            return [self._alone(op, strict) for op in requests]

    def _alone(self, op: ops.Op[Any], strict: bool) -> Answer:
        """One op of a group that failed as a whole: its error is nobody else's."""
        try:
            return self._perform((op,), strict)[0]
        except Exception as error:
            return error

    def _let_time_serve(self) -> None:
        """What time has made ready is for those who wait, before anybody who comes now. Called with the lock."""
        self._next_tick = None
        done = self.commit((ops.Tick(),), False)
        self.note(done._replace(next_due=done.answers[0]))
        self._serve(self._lines.tubes(), False)

    def note(self, done: Committed) -> None:
        """After a commit: remember when to tick next and what to announce."""
        next_due = done.next_due
        if next_due is not None and (self._next_tick is None or next_due < self._next_tick):
            self._next_tick = next_due
            if self._keeper is not None and self._lines.count:
                self._keeper.poke()
        for tube, change in done.announced:
            callback = self._listeners.get(tube.config.name)
            if callback is not None:
                self._outbox.append((callback, tube.config, change.after, change.event))

    def _announce(self) -> None:
        with self._announcing:
            while self._outbox:
                callback, config, record, event = self._outbox.popleft()
                try:
                    callback(config, record, event)
                except Exception:
                    log.exception("the on_task_change callback of tube %r failed", config.name)

    @property
    def occupied(self) -> bool:
        """True while a thread performs something: another one that comes has to wait."""
        return self._mutex.locked()

    @property
    def usable(self) -> bool:
        return not self.closed and self._pid == os.getpid()

    def check_owner(self) -> None:
        """A thread inside its own transaction would wait for itself."""
        if self._owner is not None and self._owner == threading.get_ident():
            raise UsageError("this thread is inside q.transaction(): pass transaction= to every call until it ends")

    def check_usable(self) -> None:
        if self.closed:
            raise EngineUnavailable(f"{self.name} is closed; connect again")
        if self._pid != os.getpid():
            raise UsageError("this queue was opened before the process forked; connect() again in the child")
        self.check_owner()

    # -- waiting -----------------------------------------------------------------------------------

    def enlist(self, waiter: Waiter, strict: bool = True) -> None:
        """Try a waiter's op and, if that does not end the waiting, let it stand in line."""
        self.check_usable()
        with self._group.alone():
            before = self._lines.count
            self._lines.line_up((waiter,), self._perform((waiter.op,), strict), self.clock.now)
        if self._outbox:
            self._announce()
        if self._keeper is not None and not before:
            self._keeper.poke()  # it looks out for others only while somebody waits

    def perform_all(
        self, requests: Sequence[ops.Op[Any]], waiters: Sequence[Waiter], strict: bool = True
    ) -> list[Answer]:
        """Perform ops, and try waiters as enlist() does, in as few transactions as can be."""
        if not waiters:
            return self.execute_many(requests, strict)
        self.check_usable()
        with self._group.alone():
            # Who finds others in line is tried after them.
            before = self._lines.count
            fresh: list[Waiter] = []
            late: list[Waiter] = []
            for waiter in waiters:
                (late if self._lines.has(waiter.tube) else fresh).append(waiter)
            answers = self._perform_or_fail([*requests, *(waiter.op for waiter in fresh)], strict)
            self._lines.line_up(fresh, answers[len(requests) :], self.clock.now)
            if late:
                answered = self._perform_or_fail([waiter.op for waiter in late], strict)
                self._lines.line_up(late, answered, self.clock.now)
        if self._outbox:
            self._announce()
        if self._keeper is not None and self._lines.count and not before:
            self._keeper.poke()
        return answers[: len(requests)]

    def _perform_or_fail(self, requests: Sequence[ops.Op[Any]], strict: bool) -> list[Answer]:
        try:
            return self._perform(requests, strict)
        except Exception as error:
            return [error] * len(requests)

    def withdraw(self, waiter: Waiter) -> None:
        """Leave the line. After this `waiter.answer` is final."""
        with self._group.alone():
            self._lines.remove(waiter)
            waiter.give_up()

    def leave(self, waiter: Waiter) -> float:
        """Of a prompt store: begin to leave the line; answers how many seconds the answer may take to come."""
        raise UsageError(f"{self.name} lets a waiter go at once; withdraw() it")

    def wait(self, waiter: Waiter, seconds: float | None, strict: bool = True) -> Answer:
        """Stand in line until served or until the time is over."""
        waiter.prepare()
        try:
            self.enlist(waiter, strict)
            if not waiter.done:
                waiter.wait(None if self.clock.manual else seconds)
            self.withdraw(waiter)
        except BaseException:
            self.withdraw(waiter)
            self.give_back((waiter.op,), (waiter.answer,))
            raise
        return raised(waiter.answer)

    def _serve(self, tubes: Iterable[str], strict: bool, ended: Collection[End] | None = None) -> None:
        """Let waiters try again, after what has been committed. Called with the lock."""

        def attempt(requests: Sequence[ops.Op[Any]]) -> list[Answer]:
            done: Committed | None = None
            try:
                done = self.commit(requests, strict)
                self.note(done)
                return done.answers
            except BaseException as error:
                if done is None:
                    raise
                self._group.late = error  # of a signal: who was served is told first
                return done.answers

        try:
            for tube in [tube for tube in tubes if self._lines.has(tube)]:
                self._lines.serve(tube, attempt, ended)
        except Exception:
            # Whoever made the change has succeeded; those who wait are tried again at the next one.
            log.exception("waiting callers of %s could not be served", self.name)

    def serve_all(self) -> None:
        """Something may have changed anywhere."""
        with self._group.alone():
            if self._lines.count:
                self._serve(self._lines.tubes(), False)
        self._announce()

    def waiting(self, tube: str) -> int:
        """How many takers wait on a tube in this process."""
        return self._lines.takers(tube)

    @property
    def waiters(self) -> int:
        """How many callers wait for anything in this process."""
        return self._lines.count

    # -- callbacks ---------------------------------------------------------------------------------

    def listen(self, tube: str, callback: Callback | None) -> Callback | None:
        """Set the change callback of a tube; answers the one before."""
        old = self._listeners.pop(tube, None)
        if callback is not None:
            self._listeners[tube] = callback
        return old

    # -- time --------------------------------------------------------------------------------------

    def beat(self) -> float:
        """Keep sessions alive, do what is due, look for changes; answers seconds until the next time."""
        now = self.clock.now()
        pauses = [1.0, *self._keep_sessions(now)]
        if (self._next_tick is not None and self._next_tick <= now) or now - self._ticked_at >= SECOND:
            self.tick()
        if self._next_tick is not None:
            pauses.append((self._next_tick - now) / SECOND)
        if self._lines.count and self.poll_seconds is not None:
            if self.foreign_change():
                self.serve_all()
                self._foreign_at = now
            pauses.append(self.poll_pause(now) or 1.0)
        if self.users <= 0 and self.forsaken is not None:
            self.forsaken(self)
        return max(0.0005, min(pauses))

    _foreign_at = _ticked_at = 0
    forsaken: Callable[[Store], None] | None = None
    """What to do when the last queue on the store was dropped without being closed."""

    def tick(self) -> int | None:
        """Do what is due everywhere and serve whoever waited for it."""
        self._ticked_at = self.clock.now()
        self._next_tick = None
        then = self.execute(ops.Tick(), strict=False)
        self._next_tick = min((moment for moment in (self._next_tick, then) if moment is not None), default=None)
        return then

    def in_line(self) -> list[Waiter]:
        """Everybody who waits here."""
        return list(self._lines.all())

    def next_stop(self) -> int | None:
        """The first moment at which a caller that waits here gives up."""
        return min((w.deadline for w in self.in_line() if w.deadline is not None), default=None)

    def before_advance(self, moment: int) -> None:
        """A manual clock is about to move: sessions of open queues must not notice."""
        for session in self._kept_alive():
            self.execute(ops.KeepAlive(session, until=moment + session.ttl), strict=False)

    def after_advance(self) -> None:
        """A manual clock has moved."""
        if self.closed:
            return
        self._keep_alive(self._kept_alive())
        self.tick()
        self.serve_all()
        for waiter in self.in_line():
            if waiter.deadline is not None and waiter.deadline <= self.clock.now():
                self.withdraw(waiter)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop: nobody in this process uses the store any more."""
        self.closed = True
        if self._pid != os.getpid():
            return
        if self._keeper is not None:
            self._keeper.stop()
        if isinstance(self.clock, ManualClock):
            self.clock.unfollow(self)
        for waiter in self.in_line():
            self.withdraw(waiter)
        with self._group.alone():
            self.shut()

    # -- forks -------------------------------------------------------------------------------------

    def hold(self) -> None:
        """The process is about to fork: be between two transactions. Not waited for long, nor for oneself."""
        self._held = self._owner != threading.get_ident() and self._mutex.acquire(timeout=FORK_PATIENCE)

    def let_go(self) -> bool:
        """After a fork, on both sides; answers whether the store was between two transactions."""
        held, self._held = self._held, False
        if held and self._pid == os.getpid():
            self._group.resume()
        elif held:  # in the child: what waits is the parent's to do
            self._mutex.release()
        return held

    def disown(self) -> None:
        """In a child: let go of what was inherited from the parent without a trace."""

    @abstractmethod
    def abandon(self) -> Store | None:
        """Close as though the process had been killed; answers the store that goes on, if it has to be made now."""
