"""The queue behind a server: what all connections ask for in one turn of the loop is performed together.

As long as that is quick it is done in the loop itself: a hop to a thread and back costs more than a small
transaction. What may take its time (every commit is synced, the store is elsewhere, somebody else holds it) is
done in a thread of its own, and what is asked for meanwhile forms the next group. Waiting needs no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.engines import Engine
from penstock.engines.line import Answer, Waiter
from penstock.model import ops
from penstock.model.errors import EngineUnavailable
from penstock.server.configs import Configs
from penstock.server.settings import Limits
from penstock.server.tally import Tally

R = TypeVar("R")
Then = Callable[[Answer], None]
"""Called in the loop with what an op answered, or with the exception it raised."""
log = logging.getLogger("penstock.server")
SLOW = 0.1
"""Seconds: after a turn that took longer the next one is done in the thread."""


PULSE, STALLED = 0.1, 0.3
"""Seconds: how often it is looked whether the process has stood still, and for how long that was."""
MANY = 1000
LONG: dict[type[ops.Op[Any]], Callable[[Any], bool]] = {
    ops.Kick: lambda op: op.n is None or op.n > MANY,
    **dict.fromkeys((ops.ListTasks, ops.ReadHistory, ops.ListLanes), lambda op: op.limit > MANY),
    **dict.fromkeys(
        (
            *(ops.Load, ops.Stage, ops.Promote, ops.Discard, ops.AdoptTable, ops.ForgetHistory, ops.MarkHistory),
            *(ops.AlterTube, ops.TruncateTube, ops.DropTube, ops.ReleaseAll, ops.AddRetries),
        ),
        lambda op: True,
    ),
}
"""Ops that may take long, and when: the loop must not wait for them, and who can lets nobody else wait either."""
BATCHES: dict[type[ops.Op[Any]], Callable[[Any], bool]] = {
    ops.Put: lambda op: len(op.drafts) > MANY,
    ops.Take: lambda op: op.n > MANY,
    ops.Ack: lambda op: len(op.items) > MANY,
}
HEAVY = {**LONG, **BATCHES}
"""The loop must not wait for these."""
ALTERING = frozenset({ops.CreateTube, ops.AlterTube, ops.PauseTube, ops.DropTube, ops.AdoptTable})
"""Ops after which configurations of tubes are not what they were."""


def is_long(op: ops.Op[Any]) -> bool:
    """Whether an op may take so long that it is better done beside the others."""
    takes_long = LONG.get(type(op))
    return takes_long is not None and takes_long(op)


class Wait:
    """A caller that waits, on behalf of a connection."""

    __slots__ = ("_core", "_then", "_timer", "left", "until", "waiter")

    def __init__(self, core: Core, waiter: Waiter, until: float | None, then: Then) -> None:
        self.waiter = waiter
        self.until = until
        self.left = False
        self._core = core
        self._then: Then | None = then
        self._timer: asyncio.TimerHandle | None = None
        waiter.on_wake(self._wake)

    def leave(self) -> None:
        """Wait no longer; the answer comes as ever, with what was granted by now."""
        self.left = True
        self._core.later(self._core.engine.withdraw, self.waiter)

    def lined_up(self) -> None:
        """It has been tried. Called in the loop."""
        if self.until is not None and self._then is not None and not self.waiter.done and not self.left:
            self._timer = self._core.loop.call_at(self.until, self.leave)

    def _wake(self) -> None:
        self._core.woken(self)

    def deliver(self) -> None:
        """Hand the answer over. Called in the loop."""
        then, self._then = self._then, None
        if then is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._core.waiting -= 1
        self._core.engine.forget(self.waiter)
        then(self.waiter.answer)


class Turn:
    """What is asked for in one turn of the loop."""

    __slots__ = ("altering", "answers", "calls", "fences", "heavy", "requests", "thens", "waits")

    def __init__(self) -> None:
        self.requests: list[ops.Op[Any]] = []
        self.thens: list[Then] = []
        self.fences: list[int] = []
        """Requests from such a place on are performed after those before it; the others in any order."""
        self.waits: list[Wait] = []
        self.calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        """What is to be called behind the ops."""
        self.answers: list[Answer] = []
        self.heavy = False
        """True if it may take long."""
        self.altering = False
        """True if a tube may be another one after it."""

    def perform(self, engine: Engine) -> None:
        """Do it all. What fails is an answer."""
        waiters = [wait.waiter for wait in self.waits if not wait.left]
        start = 0
        for end in self.fences:
            self._perform(engine, self.requests[start:end], ())
            start = end
        self._perform(engine, self.requests[start:] if start else self.requests, waiters)
        for call, args in self.calls:
            try:
                call(*args)
            except Exception:
                log.exception("%r failed", call)

    def _perform(self, engine: Engine, asked: list[ops.Op[Any]], waiters: Sequence[Waiter]) -> None:
        try:
            if waiters:
                self.answers += engine.perform_all(asked, waiters)
            elif asked:
                self.answers += engine.execute_many(asked)
        except Exception as error:
            self.answers += [error] * len(asked)
            for waiter in waiters:
                waiter.offer(error)


class Core:
    """Performs ops for a loop. Everything but `soon` and `woken` is called in the loop."""

    def __init__(
        self, engine: Engine, loop: asyncio.AbstractEventLoop, threaded: bool = False, limits: Limits | None = None
    ) -> None:
        self.engine = engine
        self.loop = loop
        self.tally = Tally()
        self.configs = Configs()
        self.waiting = 0
        """How many callers wait."""
        self.limits = limits or Limits()
        self.after: list[Callable[[], object]] = []
        """Called when all answers of a turn have been given."""
        self._threaded = threaded
        self._cautious = False
        self.turn = Turn()
        """What is asked for now."""
        self._busy = False
        """True while a turn is planned or on its way."""
        self._performing: int | None = None
        """The thread that performs a turn."""
        self._woken: deque[Wait] = deque()
        self._before: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        """What has to be called before the answers of a turn are given."""
        self._turns: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._pulse_at = time.monotonic()
        self._stalled_at = self._pulse_at - STALLED
        self._beating = loop.call_later(PULSE, self._pulse)
        self._thread = threading.Thread(target=self._work, name="penstock server", daemon=True)
        self._thread.start()

    def ask(self, op: ops.Op[R], then: Callable[[R | BaseException], None]) -> None:
        """Perform an op with the others of this turn of the loop."""
        self._weigh(op)
        self.ask_one(op, then)

    def _weigh(self, op: ops.Op[Any]) -> None:
        kind = type(op)
        if kind in HEAVY and HEAVY[kind](op):
            self.turn.heavy = True
        if kind in ALTERING:
            self.turn.altering = True

    def ask_one(self, op: ops.Op[R], then: Callable[[R | BaseException], None]) -> None:
        """The same for an op about one task, which never takes long and changes no tube."""
        turn = self.turn
        turn.requests.append(op)
        turn.thens.append(then)
        if not self._busy:
            self._plan()

    def ask_all(self, requests: Sequence[ops.Op[Any]], then: Callable[[list[Answer]], None]) -> None:
        """Perform ops together; `then` gets all their answers, in their order."""
        answers: list[Answer] = []
        add = answers.append

        def last(answer: Answer) -> None:
            add(answer)
            then(answers)

        turn = self.turn
        turn.requests += requests
        turn.thens += [add] * (len(requests) - 1)
        turn.thens.append(last)
        for op in requests:
            self._weigh(op)
        if not self._busy:
            self._plan()

    def fence(self) -> None:
        """What is asked for from now on in this turn is performed after what was asked for by now."""
        asked = len(self.turn.requests)
        if asked and self.turn.fences[-1:] != [asked]:
            self.turn.fences.append(asked)

    async def execute(self, op: ops.Op[R]) -> R:
        """Perform an op; what it refuses is raised."""
        future: asyncio.Future[R] = self.loop.create_future()

        def then(answer: R | BaseException) -> None:
            if future.done():
                return
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.ask(op, then)
        return await future

    def wait(self, waiter: Waiter, seconds: float | None, then: Then) -> Wait:
        """Let a waiter stand in line; `then` gets its answer, once."""
        self.tally.waits[type(waiter.op)] += 1
        timed = seconds is not None and not self.engine.clock.manual
        self._weigh(waiter.op)
        waiting = Wait(self, waiter, self.loop.time() + (seconds or 0.0) if timed else None, then)
        self.waiting += 1
        if self.waiting > self.limits.waiting:
            waiting.left = True
            waiter.resolve(EngineUnavailable(f"{self.limits.waiting} callers wait here already; try again later"))
            return waiting
        self.turn.waits.append(waiting)
        if not self._busy:
            self._plan()
        return waiting

    def later(self, call: Callable[..., object], *args: Any) -> None:
        """Call something where ops are performed, after all that was asked for by now."""
        self.turn.calls.append((call, args))
        if not self._busy:
            self._plan()

    def soon(self, call: Callable[..., object], *args: Any) -> None:
        """Call something in the loop, from any thread; before the answers of the turn that is being performed."""
        if self._performing == threading.get_ident():
            self._before.append((call, args))
            return
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            self.loop.call_soon_threadsafe(call, *args)

    def woken(self, wait: Wait) -> None:
        """A waiter has its answer. Called in any thread, maybe with the store's lock."""
        self._woken.append(wait)
        # Whoever performs a turn looks for those who were woken after it has said that it is done.
        if self._performing is None:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._deliver_woken)

    def _plan(self) -> None:
        self._busy = True
        self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        turn, self.turn = self.turn, Turn()
        if turn.requests:
            self.tally.group(turn.requests)
        if self._threaded or self._cautious or turn.heavy or self._has_stalled() or self.engine.occupied:
            self._turns.put(turn)
            return
        self._perform(turn)
        self._deliver(turn)

    def _pulse(self) -> None:
        now = time.monotonic()
        if now - self._pulse_at > STALLED:
            self._stalled_at = now
        self._pulse_at = now
        self.configs.age(now)
        self._beating = self.loop.call_later(PULSE, self._pulse)

    def _has_stalled(self) -> bool:
        """Whether the process has just stood still.

        Who asked before that may be gone by now. Answers from the thread come when the loop has seen that.
        """
        now = time.monotonic()
        return now - self._pulse_at > STALLED or now - self._stalled_at < STALLED

    def _perform(self, turn: Turn) -> None:
        self._performing = threading.get_ident()
        start = time.monotonic()
        try:
            turn.perform(self.engine)
        finally:
            self._performing = None
            self._cautious = time.monotonic() - start > SLOW

    def _deliver(self, turn: Turn) -> None:
        """Give the answers of a turn, and plan the next one."""
        following = self.turn
        if following.requests or following.waits or following.calls:
            self.loop.call_soon(self._begin)
        else:
            self._busy = False
        if self._before:
            before, self._before = self._before, []
            for call, args in before:
                self._guard(call, *args)
        if turn.altering:
            self.configs.forget()
        for then, answer in zip(turn.thens, turn.answers, strict=True):
            try:
                then(answer)
            except Exception:
                log.exception("an answer could not be given")
        for wait in turn.waits:
            wait.lined_up()
        if self._woken:
            self._deliver_woken()
        for call in self.after:
            call()

    def _deliver_woken(self) -> None:
        while self._woken:
            self._guard(self._woken.popleft().deliver)

    @staticmethod
    def _guard(call: Callable[..., object], *args: Any) -> None:
        try:
            call(*args)
        except Exception:
            log.exception("%r failed", call)

    def _work(self) -> None:
        while (turn := self._turns.get()) is not None:
            self._perform(turn)
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._deliver, turn)

    async def close(self) -> None:
        """Perform what was asked for and stop. The engine stays open."""
        while self._busy:
            with contextlib.suppress(Exception):
                await self.execute(ops.GetState())
        self._beating.cancel()
        self._turns.put(None)
        await self.loop.run_in_executor(None, self._thread.join)
