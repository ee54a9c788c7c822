"""The library's own clients: a remote engine talks to a link, whatever the transport.

A request has a number, a kind and a payload of wire/codec.py; it is answered once, under its number, and a number that
comes again gets its first answer. Number 0 is a push: something that nobody asked for. Numbers below 0 are not
remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from penstock.engines.holdings import lookout_of
from penstock.engines.line import Producer, Taker, Waiter, Watcher
from penstock.engines.refund import grants
from penstock.engines.store import Store
from penstock.model import ops
from penstock.model.duration import FOREVER, SECOND
from penstock.model.errors import AccessDenied, EngineUnavailable, PenstockError, UsageError
from penstock.model.session import Session
from penstock.model.task import Record
from penstock.server.auth import EVERYTHING
from penstock.server.book import NAME, Book, Client, Sent, give_back
from penstock.server.core import ALTERING, LONG, Wait, is_long, log
from penstock.server.peer import Peer
from penstock.server.roles import BY_ID, DISCARD, LISTEN, TRANSACT, tube_of
from penstock.server.settings import MIB, Limits
from penstock.server.transaction import Transactions
from penstock.wire import codec, talk

Send = Callable[[int, bool, bytes], None]
WAITERS: dict[type[ops.Op[Any]], Callable[[Any, int | None], Waiter]] = {
    ops.Take: Taker,
    ops.Put: Producer,
    ops.Watch: Watcher,
}
SESSIONS = 1000
"""Sessions that one engine may have."""
GRANTED = 16 * MIB
"""Bytes of data that one take is answered, beside the first task."""
NUMBERS = 1 << 62
OF_SESSIONS: frozenset[type[ops.Op[Any]]] = frozenset((ops.OpenSession, ops.Identify, ops.KeepAlive, ops.EndSession))
IN_SESSION = frozenset(op for op in ops.ALL if "session" in {field.name for field in fields(op)})  # type: ignore[arg-type]
DONE = codec.pack(None)


class Link:
    """One connection of a remote engine. Everything is called in the loop."""

    def __init__(self, book: Book, peer: Peer, send: Send, cut: Callable[[], object], limits: Limits) -> None:
        """cut ends the connection: its engine has another one by now."""
        self._core = book.core
        self._peer = peer
        self._send = send
        self.cut = cut
        self._limits = limits
        self._book = book
        self._client: Client | None = None
        self._name = ""
        self._waits: dict[int, Wait] = {}
        """Those that came over this connection."""
        self._transactions = Transactions(book.core, limits.transaction_seconds)
        self._last = 0
        self._session: Session | None = None
        """The last one whose length was found right."""
        self._gone = False
        self._deaf = False
        """True once nothing that is sent can arrive."""
        self.leaving = False
        """True once the engine was asked to go elsewhere."""

    def receive(self, number: int, seen: int, kind: str, payload: bytes) -> None:
        """A request has come."""
        if self._gone:
            return
        client = self._client
        try:
            if kind == "hello":
                self._send(number, False, self._hello(payload))
                return
            handle = KINDS.get(kind)
            if not (0 <= seen <= NUMBERS and -NUMBERS <= number <= NUMBERS):
                raise UsageError(f"requests are numbered up to {NUMBERS}, got {number} and {seen}")
            if client is None or handle is None:
                raise UsageError("say hello first" if client is None else f"there is no request {kind!r}")
        except PenstockError as error:
            self._send(number, True, codec.encode_error(error))
            return
        client.arrived(seen)
        if number > 0:
            self._last = max(self._last, number)
            if self._is_known(client, number):
                return
            client.pending.add(number)
        try:
            handle(self, number, payload)
        except Exception as error:
            self._fail(number, error)

    def _is_known(self, client: Client, number: int) -> bool:
        """Whether a request has come before; then it has been answered again, or will be answered."""
        sent = client.answer(number)
        if sent is not None and sent.payload is not None:
            self._send(number, sent.failed, sent.payload)
            return True
        if sent is not None:
            client.redo(number)
            give_back(self._core, sent.grants)
            if sent.pure:
                self._core.fence()
                return False
        elif number in client.pending:
            return True
        elif number > client.dropped:
            return False
        forgotten = EngineUnavailable("the server has forgotten the answer; it may have been done", "unknown")
        self._send(number, True, codec.encode_error(forgotten))
        return True

    def push(self, payload: bytes) -> None:
        """Say something that nobody asked for."""
        self._send(0, False, payload)

    def bye(self, deaf: bool = False) -> None:
        """Ask the engine to go elsewhere: what was received is answered here. deaf: what comes from now on is not."""
        self.leaving = True
        self.push(talk.encode_bye(self._last if deaf else None))
        for wait in list(self._waits.values()):
            wait.leave()

    @property
    def busy(self) -> bool:
        """True while a transaction is open, whose next request has not come yet."""
        return bool(self._transactions)

    def end(self) -> None:
        """The client has closed its side: it hears nothing any more."""
        self._deaf = True

    def lost(self) -> None:
        """The connection is closed: what waits takes nothing, what is open is undone."""
        if self._gone:
            return
        self._gone = self._deaf = True
        for number in self._transactions.undo():
            self._forget(number)
        for wait in list(self._waits.values()):
            wait.leave()
        if self._client is not None:
            self._book.lost(self._name, self._client, self)

    # -- answers -----------------------------------------------------------------------------------

    def _answer(self, number: int, payload: bytes) -> None:
        self._tell(number, Sent(False, payload))

    def _tell(self, number: int, sent: Sent) -> None:
        assert self._client is not None and sent.payload is not None
        if number > 0:
            self._client.remember(number, sent)
        link = self._hearer(number)
        if link is not None:
            link._send(number, sent.failed, sent.payload)

    def _hearer(self, number: int) -> Link | None:
        """The connection that an answer goes to: the engine may have connected anew, or be gone."""
        assert self._client is not None
        link = self._client.link if number > 0 else self
        return None if link is None or link._deaf else link

    def _answer_all(
        self, number: int, requests: Sequence[ops.Op[Any]], answers: list[Any], payload: bytes | None = None
    ) -> None:
        """Answer ops. What was granted to nobody is given back, and such a request counts as not done."""
        if ops.Take not in map(type, requests):
            self._tell(number, Sent(False, payload or codec.encode_answers(requests, answers)))
            return
        for index, op in enumerate(requests):
            if type(op) is ops.Take and (fewer := self._fewer(op, answers[index])) is not None:
                answers[index], payload = fewer, None
        granted = grants(requests, answers)
        pure = bool(granted) and all(type(op) is ops.Take for op in requests)
        if granted and self._hearer(number) is None:
            give_back(self._core, granted)
            if pure:
                self._forget(number)
                return
            answers = [[] if type(op) is ops.Take else answer for op, answer in zip(requests, answers, strict=True)]
            granted, payload = [], None
        self._tell(number, Sent(False, payload or codec.encode_answers(requests, answers), granted, pure))

    def _fewer(self, op: ops.Take, answer: Any) -> list[Record] | None:
        """What one take is answered if it was granted too much for one answer: the rest comes back. [rule 15]"""
        if type(answer) is not list or len(answer) < 2:
            return None
        if sum([len(record.data) for record in answer]) <= GRANTED:
            return None
        size = 0
        for index, record in enumerate(answer):
            size += len(record.data)
            if size > GRANTED and index:
                give_back(self._core, grants((op,), (answer[index:],)))
                return answer[:index]
        return None

    def _forget(self, number: int) -> None:
        assert self._client is not None
        self._client.pending.discard(number)

    def _fail(self, number: int, error: BaseException) -> None:
        if not isinstance(error, PenstockError):
            log.error("a request of %s failed", self._peer.address, exc_info=error)
        self._tell(number, Sent(True, codec.encode_error(error)))

    # -- kinds of requests -------------------------------------------------------------------------

    def _hello(self, payload: bytes) -> bytes:
        hello = talk.decode_hello(payload)
        if hello.version != codec.VERSION:
            raise UsageError(
                f"this server speaks version {codec.VERSION} of the protocol, the client {hello.version}: "
                "use the same release of penstock on both sides"
            )
        if len(hello.client) > NAME or self._name not in ("", hello.client):
            raise UsageError(f"a connection is of one client, whose name has up to {NAME} characters")
        engine = self._core.engine
        self._name = hello.client
        self._client, known = self._book.greet(hello.client, hello.incarnation, self)
        return codec.pack(
            talk.Welcome(
                *(codec.VERSION, self._book.incarnation, engine.name, engine.writable),
                *(known, engine.clock.now(), self._limits.frame),
            )
        )

    def _do(self, number: int, payload: bytes) -> None:
        requests = codec.decode_ops(payload)
        if not requests:
            self._answer(number, codec.encode_answers((), ()))
            return
        try:
            plain = all(map(self._admit, requests))
        except PenstockError:
            plain = False
        if not plain:
            self._do_some(number, requests)
        elif not LONG.keys().isdisjoint(map(type, requests)) and any(map(is_long, requests)):
            self._aside(number, lambda: self._done_aside(number, requests, self._core.engine.execute_many(requests)))
        else:
            self._core.ask_all(requests, partial(self._did, number, requests))

    def _did(self, number: int, requests: Sequence[ops.Op[Any]], answers: list[Any]) -> None:
        self._note_sessions(requests, answers)
        self._answer_all(number, requests, answers)

    def _done_aside(self, number: int, requests: Sequence[ops.Op[Any]], answers: list[Any]) -> Callable[[], None]:
        """Pack the answers, which may be long, in the thread that has them."""
        payload = codec.encode_answers(requests, answers)

        def then() -> None:
            if not ALTERING.isdisjoint(map(type, requests)):
                self._core.configs.forget()
            self._note_sessions(requests, answers)
            self._answer_all(number, requests, answers, payload)

        return then

    def _admit(self, op: Any) -> bool:
        """Refuse what may not be done; answers False for what the store has to be asked about first."""
        kind: Any = type(op)
        if self._peer.login is not EVERYTHING:
            self._peer.check(op)
        if kind in IN_SESSION:
            if op.session != self._session:  # most are of the same one
                self._limits.check_session(op.session.ttl)
                self._session = op.session
            if kind in OF_SESSIONS:
                self._look_at_session(op)
            return kind not in BY_ID or not self._peer.login.needs_lease(op)
        return kind is not ops.Discard or self._peer.login.may(DISCARD, None)

    def _look_at_session(self, op: Any) -> None:
        """Sessions that this engine is known to have live from now on, even if a transaction keeps all waiting."""
        assert self._client is not None
        mine, clock = self._client.sessions, self._core.engine.clock
        if type(op) is ops.KeepAlive:
            if op.until is not None and not clock.manual:
                self._limits.check_session(op.until - clock.now())
            if op.session.uuid in mine:
                self._core.engine.store.hear(op.session.uuid, op.session.ttl)
        elif type(op) is ops.OpenSession and len(mine) >= SESSIONS and op.session.uuid not in mine:
            raise EngineUnavailable(f"this client has {SESSIONS} sessions: the server's limit")

    def _note_sessions(self, requests: Sequence[ops.Op[Any]], answers: Sequence[Any]) -> None:
        if OF_SESSIONS.isdisjoint(map(type, requests)):
            return
        for op, answer in zip(requests, answers, strict=True):
            kind: Any = type(op)
            if kind not in OF_SESSIONS or isinstance(answer, BaseException) or self._client is None:
                continue
            uuid = op.uuid if kind is ops.Identify else op.session.uuid  # type: ignore[attr-defined]
            if kind is ops.EndSession:
                self._client.sessions.pop(uuid, None)
            elif len(self._client.sessions) < SESSIONS:
                self._client.sessions[uuid] = None

    def _do_some(self, number: int, requests: list[ops.Op[Any]]) -> None:
        """Some may not be done."""
        answers: list[Any] = [None] * len(requests)
        allowed = []
        for index, op in enumerate(requests):
            try:
                self._admit(op)
                allowed.append(index)
            except PenstockError as error:
                answers[index] = error

        def work() -> Callable[[], None]:
            for index in list(allowed):
                try:
                    requests[index] = self._narrowed(requests[index])
                except AccessDenied as error:
                    answers[index] = error
                    allowed.remove(index)
            done = self._core.engine.execute_many([requests[index] for index in allowed]) if allowed else []
            for index, answer in zip(allowed, done, strict=True):
                answers[index] = answer
            return self._done_aside(number, requests, answers)

        self._aside(number, work)

    def _narrowed(self, op: Any) -> Any:
        """An op as the login may do it, which the store has to be asked for. Called in a thread of its own."""
        engine, login = self._core.engine, self._peer.login
        if type(op) is ops.Discard:  # by who may put where the job stages for
            for staged in engine.execute(ops.ListStaged()):
                if staged.job == op.job:
                    login.require(DISCARD, staged.tube)
        return login.with_lease(op, engine.execute(ops.ListLeases(op.session))) if login.needs_lease(op) else op

    def _aside(self, number: int, work: Callable[[], Callable[[], None]]) -> None:
        """Do what takes long beside what everybody else asks for; it answers what to do in the loop then."""

        def run() -> None:
            try:
                then = work()
            except Exception as error:
                self._core.soon(self._fail, number, error)
            else:
                self._core.soon(then)

        self._book.aside.submit(run)

    def _wait(self, number: int, payload: bytes) -> None:
        sent = talk.decode_wait(payload)
        assert self._client is not None
        self._client.arrived(0, sent.arrived)
        op, kind = sent.op, WAITERS.get(type(sent.op))
        if kind is None:
            raise UsageError(f"{type(op).__name__} does not wait")
        self._admit(op)
        if (waiting := len(self._peer.waits)) >= self._limits.waiting_each:
            raise EngineUnavailable(f"{waiting} calls of this connection wait already, which is the server's limit")
        limit = None if sent.limit is None or sent.limit >= FOREVER else max(0, sent.limit)
        deadline = None if limit is None else self._core.engine.clock.now() + limit
        waiter = kind(op, deadline)
        seconds = None if limit is None else limit / SECOND
        wait = self._core.wait(waiter, seconds, partial(self._waited, number, op, waiter))
        self._waits[number] = self._client.waits[number] = wait
        self._peer.waits.add(wait)

    def _waited(self, number: int, op: Any, waiter: Waiter, answer: Any) -> None:
        assert self._client is not None
        wait = self._waits.pop(number, None)
        self._client.waits.pop(number, None)
        if wait is not None:
            self._peer.waits.discard(wait)
        if answer is None and isinstance(waiter, Watcher):
            answer = getattr(waiter, "last", None)
        if self._book.is_heard(waiter.tube):
            # Callbacks are told in the other thread after this; what they are told has to arrive before.
            self._core.later(self._core.soon, self._tell_waited, number, op, answer)
        else:
            self._tell_waited(number, op, answer)

    def _tell_waited(self, number: int, op: Any, answer: Any) -> None:
        if type(op) is ops.Take:
            answer = self._fewer(op, answer) or answer
        granted = grants((op,), (answer,))
        if granted and self._hearer(number) is None:
            give_back(self._core, granted)
            self._forget(number)
            return
        self._tell(number, Sent(False, codec.encode_answer(op, answer), granted, bool(granted), waited=True))

    def _leave(self, number: int, payload: bytes) -> None:
        assert self._client is not None
        wait = self._client.waits.get(talk.decode_number(payload))
        if wait is not None:
            wait.leave()
        self._answer(number, DONE)

    def _listen(self, number: int, payload: bytes) -> None:
        tube = talk.decode_text(payload)
        self._peer.login.require(LISTEN, tube)
        self._book.listen(tube, self)
        self._answer(number, DONE)

    def _unlisten(self, number: int, payload: bytes) -> None:
        self._book.unlisten(talk.decode_text(payload), self)
        self._answer(number, DONE)

    def _alive(self, number: int, payload: bytes) -> None:
        assert self._client is not None
        for uuid, ttl in talk.decode_alive(payload)[:SESSIONS]:
            if uuid in self._client.sessions:
                self._core.engine.store.hear(uuid, min(ttl, int(self._limits.session_seconds * SECOND)))
        self._answer(number, DONE)

    def _look(self, number: int, payload: bytes) -> None:
        asked = talk.decode_look(payload)
        self._peer.check(ops.GetStatistics(asked.tube))
        self._aside(number, lambda: partial(self._answer, number, _look_once(self._core.engine.store, asked)))

    # -- transactions ------------------------------------------------------------------------------

    def _begin(self, number: int, payload: bytes) -> None:
        self._peer.login.require(TRANSACT, None)
        self._transactions.begin(number, partial(self._transacted, number))

    def _transacted(self, number: int, answer: Any) -> None:
        self._core.configs.forget()
        if isinstance(answer, BaseException):
            self._fail(number, answer)
        else:
            self._answer(number, DONE)

    def _in(self, number: int, payload: bytes) -> None:
        transaction, op = talk.decode_in(payload)
        if not self._admit(op):
            self._peer.login.require(BY_ID.get(type(op), DISCARD), tube_of(op))

        def then(answer: Any) -> None:
            self._core.soon(self._answer, number, codec.encode_answer(op, answer))

        self._transactions[transaction].perform(op, then)

    def _commit(self, number: int, payload: bytes) -> None:
        transaction = self._transactions[talk.decode_number(payload)]
        transaction.commit(lambda answer: self._core.soon(self._transacted, number, answer))

    def _rollback(self, number: int, payload: bytes) -> None:
        begun = talk.decode_number(payload)
        transaction = self._transactions.get(begun)
        if transaction is None:
            if self._transactions.drop(begun):
                self._fail(begun, EngineUnavailable("the transaction was given up before it began", "not_done"))
            self._answer(number, DONE)
        else:
            transaction.undo(lambda answer: self._core.soon(self._transacted, number, answer))


def _look_once(store: Store, asked: talk.Look) -> bytes:
    """What a person who watches from afar is shown."""
    lookout = lookout_of(store)
    try:
        if asked.tube is not None:
            return codec.pack(lookout.lanes(asked.tube, asked.first, asked.limit))
        return codec.pack((lookout.sessions(), lookout.holdings()))
    finally:
        lookout.close()


KINDS: dict[str, Callable[[Link, int, bytes], None]] = {
    "do": Link._do,
    "wait": Link._wait,
    "leave": Link._leave,
    "listen": Link._listen,
    "unlisten": Link._unlisten,
    "alive": Link._alive,
    "look": Link._look,
    "begin": Link._begin,
    "in": Link._in,
    "commit": Link._commit,
    "rollback": Link._rollback,
}
