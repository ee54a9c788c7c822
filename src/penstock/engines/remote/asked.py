"""Ops that were sent to a server, and callers that wait there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from penstock.engines import outcomes
from penstock.engines.line import Answer, Waiter
from penstock.engines.remote.request import Request
from penstock.engines.remote.seen import Seen
from penstock.model import ops
from penstock.model.errors import EngineUnavailable, PenstockError, UsageError
from penstock.model.task import Record, TaskId
from penstock.wire import codec, talk

if TYPE_CHECKING:
    from penstock.engines.remote.store import RemoteStore


ENDING = 2.0
"""Seconds that the end of a session waits for a server: it comes by itself if nobody is there to hear of it."""


class Asked(Request):
    """A group of ops. Answers are decoded by whoever wants them, not by the thread that reads."""

    __slots__ = (
        "_answers",
        "_doubt",
        "_gate",
        "_kept",
        "_refused",
        "_said",
        "_store",
        "_then",
        "ops",
        "patience",
        "takes",
    )

    def __init__(
        self,
        store: RemoteStore,
        requests: Sequence[ops.Op[Any]],
        then: Callable[[Callable[[], list[Answer]]], None] | None = None,
    ) -> None:
        self.ops = requests
        self._kept: Sequence[int] = range(len(requests))
        """Which of the ops were asked for, or asked for again."""
        self._refused: dict[int, PenstockError] = {}
        super().__init__("do", self._encoded())
        self.patience = ENDING if requests and type(requests[0]) is ops.EndSession else None
        self.takes = any(type(op) is ops.Take for op in requests)
        self._store = store
        self._then = then
        self._gate: SimpleQueue[None] | None = None if then is not None else SimpleQueue()
        self._said: tuple[bool, bytes] | PenstockError | None = None
        self._answers: list[Answer] | None = None
        self._doubt = ""

    def _encoded(self) -> bytes:
        try:
            return codec.encode_ops(self.ops)
        except UsageError:
            # What cannot be sent fails alone.
            for index, op in enumerate(self.ops):
                try:
                    codec.encode_ops((op,))
                except UsageError as error:
                    self._refused[index] = error
            self._kept = [index for index in self._kept if index not in self._refused]
            return codec.encode_ops([self.ops[index] for index in self._kept])

    def answered(self, failed: bool, payload: bytes) -> None:
        if self.abandoned:
            self._give_back((failed, payload))
            return
        if self.takes:
            self._store.undigested.add(self)
        self._said = (failed, payload)
        self._tell()
        if self.abandoned:  # just now
            self.give_back()

    def give_back(self) -> None:
        """The caller has gone: what has come for it goes back. Doing so twice does no harm."""
        if isinstance(self._said, tuple):
            self._give_back(self._said)

    def _give_back(self, said: tuple[bool, bytes]) -> None:
        if self.takes:
            with contextlib.suppress(PenstockError):
                answers = self._decoded(said)
                self._store.granted(self.ops, answers)
                self._store.give_back(self.ops, answers)
            self._store.undigested.discard(self)

    def failed(self, error: PenstockError) -> None:
        self._said = error
        self._tell()

    def _tell(self) -> None:
        if self._then is not None:
            self._then(self.answers)
        else:
            assert self._gate is not None
            self._gate.put(None)

    def again(self, why: str) -> bytes | None:
        self._doubt = self._doubt or why
        self._kept = [index for index in self._kept if outcomes.is_repeatable(self.ops[index])]
        return codec.encode_ops([self.ops[index] for index in self._kept]) if self._kept else None

    def wait(self) -> list[Answer]:
        """Block until there are answers."""
        assert self._gate is not None
        self._gate.get()
        return self.answers()

    def digest(self) -> list[Answer]:
        """The answers as they were sent. Whoever comes first notes what was granted."""
        answers = self._answers
        if answers is None:
            assert self._said is not None
            answers = self._answers = self._decoded(self._said)
            if self.takes:
                self._store.granted(self.ops, answers)
                self._store.undigested.discard(self)
        return answers

    def _decoded(self, said: tuple[bool, bytes] | PenstockError) -> list[Answer]:
        if not isinstance(said, PenstockError) and said[0]:
            said = codec.decode_error(said[1])
        if isinstance(said, PenstockError):
            return [said] * len(self.ops)
        if len(self._kept) == len(self.ops):
            return codec.decode_answers(self.ops, said[1])
        answers: list[Answer] = [self._refused.get(i) or outcomes.unknown(self._doubt) for i in range(len(self.ops))]
        for index, answer in zip(
            self._kept, codec.decode_answers([self.ops[index] for index in self._kept], said[1]), strict=True
        ):
            answers[index] = answer
        return answers

    def answers(self) -> list[Answer]:
        """What the ops have answered, or the exceptions they have raised."""
        answers = self.digest()
        if self._doubt:
            store, now = self._store, self._store.clock.now()
            answers = [
                outcomes.second_answer(op, answer, store.peek, now, self._doubt)
                for op, answer in zip(self.ops, answers, strict=True)
            ]
            self._doubt = ""
            self._answers = answers
        return answers


class Parts:
    """Ops that are too many for one request: two of them, and one answer."""

    def __init__(
        self, store: RemoteStore, requests: Sequence[ops.Op[Any]], then: Callable[[Callable[[], list[Answer]]], None]
    ) -> None:
        self._then = then
        self._lock = threading.Lock()
        self._found: list[Callable[[], list[Answer]] | None] = [None, None]
        half = len(requests) // 2
        store.ask(requests[:half], lambda answers: self._add(0, answers))
        store.ask(requests[half:], lambda answers: self._add(1, answers))

    def _add(self, part: int, answers: Callable[[], list[Answer]]) -> None:
        with self._lock:
            self._found[part] = answers
            first, second = self._found
        if first is not None and second is not None:
            self._then(lambda: [*first(), *second()])


class Waiting(Request):
    """A caller that waits at the server. It goes on waiting there, or at the next one, until its time is over."""

    __slots__ = ("_store", "left", "over", "takes", "waiter")
    waits = True

    def __init__(self, store: RemoteStore, waiter: Waiter, over: threading.Event | None = None) -> None:
        self._store = store
        self.waiter = waiter
        self.left = False
        """True once the caller waits no longer."""
        self.takes = isinstance(waiter.op, ops.Take)
        self.over = over or threading.Event()
        limit = None if waiter.deadline is None else max(0, waiter.deadline - store.clock.now())
        super().__init__("wait", talk.encode_wait(waiter.op, limit, store.channel.arrived()))

    def answered(self, failed: bool, payload: bytes) -> None:
        answer: Answer
        try:
            answer = codec.decode_error(payload) if failed else codec.decode_answer(self.waiter.op, payload)
        except PenstockError as error:
            answer = error
        with self._store.ending:
            self._serve(answer)

    def _serve(self, answer: Answer) -> None:
        self._store.granted((self.waiter.op,), (answer,))
        if self.abandoned:
            self._store.give_back((self.waiter.op,), (answer,))
        elif not self.waiter.offer(answer):
            deadline = self.waiter.deadline
            if self.left or (deadline is not None and deadline <= self._store.clock.now()):
                self.waiter.give_up()
            else:  # the server goes, or the connection was lost: the time is not over
                self._store.wait_again(self)
                return
        self._end()

    def failed(self, error: PenstockError) -> None:
        with self._store.ending:
            self.waiter.offer(error)
            self._end()

    def again(self, why: str) -> bytes | None:
        return self.payload if outcomes.is_repeatable(self.waiter.op) else None

    def _end(self) -> None:
        self._store.waited(self)
        self.over.set()


def lost_leases(held: Sequence[ops.Held], asked: Sequence[Request], seen: Seen) -> list[ops.Held]:
    """Of what a session holds, that which was granted in an answer that never came.

    Tokens rise, and answers come in their order: what is above all that was ever seen in its tube was never seen.
    """
    tubes = {op.tube for request in asked for op in _takes(request)}
    return [lease for lease in held if lease.tube in tubes and seen.is_new(lease.tube, lease.token)]


def taking(asked: Sequence[Request]) -> set[str]:
    """The sessions that requests take for."""
    return {op.session.uuid for request in asked for op in _takes(request)}


def _takes(request: Request) -> list[ops.Take]:
    found = request.ops if isinstance(request, Asked) else [request.waiter.op] if isinstance(request, Waiting) else ()
    return [op for op in found if isinstance(op, ops.Take)]


def not_done(error: EngineUnavailable) -> EngineUnavailable:
    """The same error of a call that cannot have been done."""
    return EngineUnavailable(str(error), "not_done")


Peek = Callable[[str, TaskId], Record | None]
