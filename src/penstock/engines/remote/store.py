"""A store that a server works on: ops go there, answers come back.

One per process and server, shared by all its queues. Threads do not wait for each other: what each asks for is sent at
once, and its answer wakes it. Waiting happens at the server.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from penstock.engines.line import Answer, Waiter, raised
from penstock.engines.refund import Grant, grants, refunds
from penstock.engines.remote.asked import Asked, Parts, Waiting, lost_leases, not_done, taking
from penstock.engines.remote.channel import Channel, too_long
from penstock.engines.remote.clock import ServerClock
from penstock.engines.remote.link import Link
from penstock.engines.remote.place import Place
from penstock.engines.remote.request import Call, Note, Request
from penstock.engines.remote.seen import Seen
from penstock.engines.store import FORK_PATIENCE, Callback, Committed, Store
from penstock.engines.transactor import Transactor
from penstock.model import ops
from penstock.model.clock import Clock
from penstock.model.duration import SECOND
from penstock.model.errors import EngineUnavailable, PenstockError, TaskNotFound, TubeNotFound, UsageError
from penstock.model.session import DEFAULT_TTL
from penstock.model.task import Record, TaskId
from penstock.wire import codec, talk

R = TypeVar("R")
MARGIN = 1024
"""Bytes of a request that are not its payload."""
GRACE = 1.0
"""Seconds that a server may be late with the end of a wait."""


class RemoteStore(Store):
    """A queue behind a server."""

    prompt = True
    holdings = "penstock.engines.remote.holdings"

    def __init__(self, place: Place, clock: Clock | None) -> None:
        super().__init__(place.name, clock or ServerClock())
        self.place = place
        self.undigested: set[Asked] = set()
        """Answers with grants that nobody has looked at yet."""
        self._seen = Seen()
        self._waits: dict[Waiter, Waiting] = {}
        self.ending = threading.RLock()
        """Held by whoever decides what comes of a wait."""
        self._local = threading.local()
        self.channel = Channel(place, self._told, self._settle, self._patience)
        welcome = self.channel.open()
        self.writable = welcome.writable
        self._longest = self.channel.longest = welcome.frame - MARGIN
        if isinstance(self.clock, ServerClock):
            self.clock.set(welcome.moment)
        self.start()

    def _patience(self) -> float:
        """Seconds that a call waits for a server: as long as its session would live."""
        ttls = [session.ttl for session in list(self._sessions.values())]
        return min(max(ttls, default=DEFAULT_TTL), 600 * SECOND) / SECOND

    # -- performing ops ----------------------------------------------------------------------------

    def execute_many(self, requests: Sequence[ops.Op[Any]], strict: bool = True) -> list[Answer]:
        if self.closed or self._pid != os.getpid() or getattr(self._local, "inside", False):
            self.check_usable()
        self.show_life()
        asked = Asked(self, requests)
        if len(asked.payload) > self._longest:
            return self._in_parts(requests, len(asked.payload))
        try:
            self.channel.ask(asked)
            answers = asked.wait()
            if self._outbox:
                self._announce()
        except BaseException:  # of a signal
            self.channel.abandon(asked)
            asked.give_back()
            raise
        return answers

    def ask(self, requests: Sequence[ops.Op[Any]], then: Callable[[Callable[[], list[Answer]]], None]) -> None:
        if self.closed or self._pid != os.getpid() or getattr(self._local, "inside", False):
            self.check_usable()
        self.show_life()
        asked = Asked(self, requests, then)
        if len(asked.payload) <= self._longest:
            self.channel.ask(asked)
        elif len(requests) == 1:
            then(lambda: self._in_parts(requests, len(asked.payload)))
        else:
            Parts(self, requests, then)

    def _in_parts(self, requests: Sequence[ops.Op[Any]], size: int) -> list[Answer]:
        """Ops that are too long to be sent together; one that is too long by itself is refused."""
        if len(requests) == 1:
            return [too_long(size, self._longest)]
        half = len(requests) // 2
        return [*self.execute_many(requests[:half]), *self.execute_many(requests[half:])]

    def commit(self, requests: Sequence[ops.Op[Any]], strict: bool) -> Committed:
        return Committed(self.execute_many(requests, strict), set(), (), None)

    def show_life(self) -> None:
        """Where the keeper is late, because the process stood still: whoever calls is alive."""
        if not self._alive_at or not self.writable:
            return
        now = self.clock.now()
        late = [
            session
            for session in list(self._sessions.values())
            if now - self._alive_at.get(session.uuid, now) > session.ttl // 2
        ]
        if late:
            self._alive_at.update((session.uuid, now) for session in late)
            self.channel.ask(Note("alive", codec.pack([(session.uuid, session.ttl) for session in late])))

    def peek(self, tube: str, task: TaskId) -> Record | None:
        """A task as it is now."""
        try:
            return self.execute(ops.Peek(tube, task))
        except (TaskNotFound, TubeNotFound):
            return None

    def granted(self, requests: Sequence[ops.Op[Any]], answers: Sequence[Answer]) -> None:
        """Note the tokens of what was granted."""
        for op, answer in zip(requests, answers, strict=True):
            if type(op) is ops.Take and isinstance(answer, list) and answer:
                self._seen.note(op.tube, max([record.token for record in answer]))

    def give_back(self, requests: Sequence[ops.Op[Any]], answers: Sequence[Answer]) -> None:
        if granted := grants(requests, answers):
            with contextlib.suppress(EngineUnavailable):
                self.ask(refunds(granted), lambda answers: None)

    # -- after a connection was lost -----------------------------------------------------------------

    def _settle(self, link: Link, doubtful: list[Request]) -> None:
        """A new connection, to a server that may not know what it was asked: find what was granted unheard of."""
        for tube in list(self._listeners):
            self.channel.exchange(link, "listen", codec.pack(tube))
        if not doubtful:
            return
        for asked in list(self.undigested):
            asked.digest()
        sessions = [session for session in list(self._sessions.values()) if session.uuid in taking(doubtful)]
        for session in sessions:
            here = len(self._keeping.get(session.uuid, ()))
            [held] = self._over(link, [ops.ListLeases(session, max(1, here))])
            if isinstance(held, PenstockError):
                raise held
            lost = lost_leases(held, doubtful, self._seen)
            if lost:
                self._over(link, refunds(Grant(it.tube, session, (ops.Lease(it.id, it.token),)) for it in lost))

    def _over(self, link: Link, requests: Sequence[ops.Op[Any]]) -> list[Answer]:
        return codec.decode_answers(requests, self.channel.exchange(link, "do", codec.encode_ops(requests)))

    # -- waiting -----------------------------------------------------------------------------------

    def enlist(self, waiter: Waiter, strict: bool = True) -> None:
        self.check_usable()
        waiting = self._waits[waiter] = Waiting(self, waiter)
        try:
            self.channel.ask(waiting)
        except BaseException:
            self._waits.pop(waiter, None)
            raise

    def wait_again(self, waiting: Waiting) -> None:
        """The time of a caller is not over, but the server has let it go."""
        again = self._waits[waiting.waiter] = Waiting(self, waiting.waiter, waiting.over)
        try:
            self.channel.ask(again)
        except EngineUnavailable as error:
            again.failed(error)

    def waited(self, waiting: Waiting) -> None:
        """A caller has its answer."""
        self._waits.pop(waiting.waiter, None)

    def withdraw(self, waiter: Waiter) -> None:
        waiting = self._waits.get(waiter)
        if waiter.done or waiting is None:
            return
        waiting.over.wait(self.leave(waiter))
        with self.ending:
            waiting = self._waits.get(waiter)
            if not waiter.done and waiting is not None:
                # What it is granted after all goes back.
                waiting.abandoned = True
                waiter.offer(EngineUnavailable(f"{self.name} does not answer; nothing was taken"))

    def leave(self, waiter: Waiter) -> float:
        with self.ending:
            waiting = self._waits.get(waiter)
            if waiter.done or waiting is None:
                return 0.0
            waiting.left = True
            if self.closed or self.channel.forget(waiting):
                waiting.abandoned = True
                self._waits.pop(waiter, None)
                waiter.give_up()
                return 0.0
        with contextlib.suppress(EngineUnavailable):
            self.channel.ask(Note("leave", codec.pack(waiting.number)))
        return self._patience() if self.channel.connected else 0.0

    def _drop(self, waiter: Waiter) -> None:
        """A caller was interrupted by a signal: it hears of nothing, and what it was granted goes back."""
        with self.ending:
            waiting = self._waits.get(waiter)
            if not waiter.done and waiting is not None:
                waiting.abandoned = True
        if waiter.done:
            self.give_back((waiter.op,), (waiter.answer,))
        elif waiting is not None:
            self.leave(waiter)
            self._waits.pop(waiter, None)
            waiter.give_up()

    def wait(self, waiter: Waiter, seconds: float | None, strict: bool = True) -> Answer:
        waiter.prepare()
        try:
            self.enlist(waiter, strict)
            if not waiter.done:
                waiter.wait(None if self.clock.manual or seconds is None else seconds + GRACE)
            self.withdraw(waiter)
            if self._outbox:
                self._announce()
        except BaseException:
            self._drop(waiter)
            raise
        return raised(waiter.answer)

    @property
    def waiters(self) -> int:
        asked = [waiting for waiting in list(self._waits.values()) if waiting.link is not None]
        if asked:
            self.execute(ops.GetMoment())  # by now they stand in line
        return sum(1 for waiting in asked if waiting.waiter in self._waits)

    def waiting(self, tube: str) -> int:
        return sum(1 for waiter in list(self._waits) if waiter.tube == tube and isinstance(waiter.op, ops.Take))

    # -- callbacks ---------------------------------------------------------------------------------

    def listen(self, tube: str, callback: Callback | None) -> Callback | None:
        old = super().listen(tube, callback)
        if (old is None) != (callback is None) and self.usable:
            try:
                self.channel.call("unlisten" if callback is None else "listen", codec.pack(tube), repeatable=True)
            except PenstockError:
                if callback is not None:
                    super().listen(tube, old)
                    raise
        return old

    def _told(self, change: Any) -> None:
        callback = self._listeners.get(change.config.name)
        if callback is None:
            return
        if getattr(callback, "hops", False):  # it only wakes a loop, so it may run in the thread that reads
            callback(change.config, change.record, change.event)
            return
        self._outbox.append((callback, change.config, change.record, change.event))
        if self._keeper is not None:
            self._keeper.poke()

    # -- time --------------------------------------------------------------------------------------

    def beat(self) -> float:
        """Keep sessions alive and tell of changes; what is due is the server's business."""
        self._announce()
        pauses = [1.0, *self._keep_sessions(self.clock.now())]
        if self.users <= 0 and self.forsaken is not None:
            self.forsaken(self)
        return max(0.0005, min(pauses))

    def in_line(self) -> list[Waiter]:
        return list(self._waits)

    def after_advance(self) -> None:
        if self.closed:
            return
        self._keep_alive(self._kept_alive())
        self.tick()
        self._announce()

    # -- transactions ------------------------------------------------------------------------------

    def check_owner(self) -> None:
        if getattr(self._local, "inside", False):
            raise UsageError("this thread is inside q.transaction(): pass transaction= to every call until it ends")

    @contextmanager
    def transaction(self) -> Iterator[Transactor]:
        self.check_usable()
        begin = Call("begin", codec.pack(None))
        self.channel.ask(begin)
        try:
            begin.result()
        except EngineUnavailable as error:
            raise not_done(error) from None
        except BaseException:
            self.channel.drop(begin)
            if begin.link is not None:  # of a signal: it may begin for nobody, and would keep others out
                with contextlib.suppress(EngineUnavailable):
                    self.channel.ask(Note("rollback", codec.pack(begin.number), begin.link))
            raise
        transactor = RemoteTransactor(self, begin)
        self._local.inside = True
        try:
            yield transactor
        except BaseException:
            transactor.ended = True
            with contextlib.suppress(PenstockError):
                transactor.end("rollback")
            raise
        finally:
            self._local.inside = False
        transactor.ended = True
        transactor.end("commit")
        self._announce()

    def join(self, transaction: object) -> Transactor:
        raise UsageError(
            f"{self.name} is a server, and a {type(transaction).__name__} is a connection to something else: only what "
            "q.transaction() gave can be passed here"
        )

    # -- the end -----------------------------------------------------------------------------------

    def shut(self) -> None:
        self.channel.close()

    def hold(self) -> None:
        self._held = self.channel.hold(FORK_PATIENCE)

    def let_go(self) -> bool:
        held, self._held = self._held, False
        if held:
            self.channel.let_go()
        return held

    def disown(self) -> None:
        self.channel.disown()

    def abandon(self) -> None:
        """Close as though the process had been killed: the server hears nothing but the end of the connection."""
        self.close()


class RemoteTransactor(Transactor):
    """A transaction that the server runs, on the connection that began it."""

    def __init__(self, store: RemoteStore, begin: Call) -> None:
        self.store: RemoteStore = store
        self._number = begin.number
        self._link = begin.link

    def execute(self, op: ops.Op[R]) -> R:
        self.store.show_life()
        try:
            payload = self.store.channel.call("in", talk.encode_in(self._number, op), self._link)
        except EngineUnavailable as error:
            raise not_done(error) from None
        answer: R = raised(codec.decode_answer(op, payload))
        return answer

    def end(self, how: str) -> None:
        """Commit or roll back."""
        self.store.channel.call(how, codec.pack(self._number), self._link)
