"""A connection that calls functions of a queue: what all of them need, whichever API they belong to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from penstock.engines.line import Producer, Taker, raised
from penstock.engines.refund import grants
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.errors import EngineUnavailable, UsageError
from penstock.model.session import Session
from penstock.model.task import Record, TaskId
from penstock.model.tube import TubeConfig
from penstock.server.auth import EVERYTHING
from penstock.server.book import give_back
from penstock.server.core import Core, Turn
from penstock.server.peer import Peer
from penstock.server.refusal import refusal
from penstock.server.sessions import Sessions
from penstock.wire.iproto import IprotoError

Args = Sequence[Any]
Reply = Callable[[list[Any] | IprotoError], None]
"""Gets the return values of a function, or why it was refused; called once, at once or later."""
MAX_LEASES = 1000
"""Leases remembered per connection; the others are looked up when they are needed."""
MAX_REMEMBERED = 16 * 1024
"""Leases of longer data are not remembered: many connections would hold much of it."""


class Route(NamedTuple):
    """What the name of a function leads to."""

    function: str
    tube: str
    run: Callable[[Route, Args, Reply], None]


class Held(NamedTuple):
    """A task that was taken through this connection."""

    token: int
    data: Any


class Caller:
    """Performs ops for one connection; calls that need several steps let those behind them wait."""

    def __init__(self, core: Core, sessions: Sessions, peer: Peer) -> None:
        self.core = core
        self.sessions = sessions
        self.peer = peer
        self.configs = core.configs
        self.leases: dict[tuple[str, TaskId], Held] = {}
        self.holds = 0
        """How many calls have another step before them; what comes behind them waits."""
        self._behind: deque[tuple[Route, Args, Reply]] = deque()
        self._turn: Turn | None = None
        """The turn of the loop in which something was called last."""
        self._route: Route | None = None
        """And what that was."""

    # -- calls and their order ---------------------------------------------------------------------

    def run(self, route: Route, args: Args, then: Reply) -> None:
        """Call a function; what it raises is its answer."""
        turn = self.core.turn
        if turn is not self._turn:
            self._turn = turn
        elif route is not self._route:
            self.core.fence()  # what a client asks for in a row is performed in this order
        self._route = route
        if self.holds:
            self._behind.append((route, args, then))
            return
        try:
            route.run(route, args, then)
        except Exception as error:
            self.refuse(route, then, error)

    def refuse(self, route: Route, then: Reply, error: BaseException) -> None:
        """Answer with an error."""
        then(refusal(error, route.function, self.peer.login.name))

    def hold(self) -> None:
        """Let what comes from now on wait: another step of this call must come before it."""
        self.holds += 1

    def go_on(self) -> None:
        """The call that held up the others has asked for its last step."""
        self.holds -= 1
        if self._behind and not self.holds:
            self.core.fence()
        while self._behind and not self.holds:
            self.run(*self._behind.popleft())

    def attempt(self, op: ops.Op[Any], route: Route, then: Reply, done: Callable[[Any], None]) -> None:
        """Perform an op; `done` gets what it answers or raises, asks for more or answers the call."""
        self.holds += 1
        self.core.ask(op, partial(self._attempted, route, then, done))

    def _attempted(self, route: Route, then: Reply, done: Callable[[Any], None], answer: Any) -> None:
        try:
            done(answer)
        except Exception as error:
            self.refuse(route, then, error)
        self.go_on()

    def with_config(self, route: Route, args: Args, then: Reply) -> TubeConfig | None:
        """The tube's configuration; None if it has to be asked for, and then the call is made again by itself."""
        config = self.configs.known.get(route.tube)
        if config is not None:
            return config

        asked = self.configs.changes

        def found(answer: Any) -> None:
            self.configs.add(raised(answer), asked)
            route.run(route, args, then)

        get = ops.GetTube(route.tube)
        self.peer.check(get, True)
        self.attempt(get, route, then, found)
        return None

    def session(self) -> Session:
        """Whose tasks are taken here; it begins with the first call that needs one."""
        if self.peer.closed:
            raise UsageError("the connection is closed")
        return self.sessions.begin(self.peer)

    def ask(self, op: ops.Op[Any], route: Route, then: Reply, done: Callable[[Any], list[Any]]) -> None:
        """Perform the only or last op of a call; `done` makes return values of its answer."""
        self.peer.check(op, facade=True)
        self.core.ask(op, partial(self._finish, route, then, done))

    def _finish(self, route: Route, then: Reply, done: Callable[[Any], list[Any]], answer: Any) -> None:
        try:
            values = done(raised(answer))
        except Exception as error:
            self.refuse(route, then, error)
        else:
            then(values)

    # -- taking ------------------------------------------------------------------------------------

    def take(self, route: Route, timeout: int | None, then: Callable[[Any], None]) -> None:
        """Take one task; `then` gets the record, None, or an error."""
        peer = self.peer
        op = ops.Take(route.tube, 1, peer.session if peer.session is not None and not peer.closed else self.session())
        if peer.login is not EVERYTHING:
            peer.check(op, facade=True)
        peer.takes()
        self.core.ask_one(op, partial(self._taken, op, timeout, then))

    def _taken(self, op: ops.Take, timeout: int | None, then: Callable[[Any], None], answer: Any) -> None:
        if type(answer) is list and answer and not self.peer.closed:
            try:
                then(answer[0])
            finally:
                self.peer.took()
        elif type(answer) is list and not answer and timeout != 0 and not self.peer.closed:
            deadline = None if timeout is None else self.core.engine.clock.now() + timeout
            self._wait(Taker(op, deadline), timeout, partial(self._granted, op, then))
        else:
            self._granted(op, then, answer)

    def _granted(self, op: ops.Take, then: Callable[[Any], None], answer: Any) -> None:
        try:
            if type(answer) is not list:
                then(answer)
            elif not answer:
                then(None)
            elif self.peer.closed:
                give_back(self.core, grants((op,), (answer,)))
            else:
                then(answer[0])
        finally:
            self.peer.took()

    def wait_for_room(self, op: ops.Put, timeout: int, then: Callable[[Any], None]) -> None:
        """Put when there is room."""
        deadline = self.core.engine.clock.now() + timeout
        self._wait(Producer(op, deadline), timeout, then)

    def _wait(self, waiter: Taker | Producer, timeout: int | None, then: Callable[[Any], None]) -> None:
        def done(answer: Any) -> None:
            self.peer.waits.discard(waiting)
            then(answer)

        if len(self.peer.waits) >= self.core.limits.waiting_each:
            then(EngineUnavailable(f"{len(self.peer.waits)} calls of this connection wait already; use fewer"))
            return
        seconds = None if timeout is None else timeout / SECOND
        waiting = self.core.wait(waiter, seconds, done)
        self.peer.waits.add(waiting)

    # -- leases ------------------------------------------------------------------------------------

    def remember(self, tube: str, record: Record, data: Any) -> None:
        """A task was taken: its end needs the token, and answers the data."""
        leases = self.leases
        if len(record.data) > MAX_REMEMBERED:
            return
        if len(leases) >= MAX_LEASES:
            del leases[next(iter(leases))]
        leases[(tube, record.id)] = tuple.__new__(Held, (record.token or 0, data))
