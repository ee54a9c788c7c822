"""Callers that wait: for a task, for room in a full tube, for a task's end.

A waiter is an op that is tried again whenever its tube has changed, by whoever changed it. So waiters are
served in the order they came, nobody overtakes, and a waiter that gives up can be told exactly whether it
was served. Takers that want one lane stand before those that take anything.
"""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any

from penstock.model import ops
from penstock.model.errors import TubeFull
from penstock.model.state import State
from penstock.model.task import TaskId

Answer = Any
"""What an op answered, or the exception it raised."""
Attempt = Callable[[Sequence[ops.Op[Any]]], list[Answer]]
"""Performs the ops of some waiters, in their order."""
MOST = 64
"""How many waiters are tried at a time."""


class Waiter:
    """One caller that waits. Subclasses say when the waiting is over."""

    def __init__(self, op: ops.Op[Any], deadline: int | None) -> None:
        self.op = op
        self.deadline = deadline
        self.answer: Answer = None
        self.done = False
        self._event: threading.Event | None = None
        self._wake: Callable[[], None] | None = None

    tube: str
    place = 0
    """In which order waiters came."""

    def on_wake(self, wake: Callable[[], None]) -> None:
        """Use another way to wake the caller than a thread's event."""
        self._wake = wake

    def prepare(self) -> None:
        """A thread is going to wait."""
        self._event = threading.Event()
        self._wake = self._event.set

    def wait(self, seconds: float | None) -> None:
        """Block the thread; it has said so before somebody could answer."""
        assert self._event is not None
        self._event.wait(seconds)

    def offer(self, answer: Answer) -> bool:
        """Take an answer into account; True if the waiting is over."""
        if self.done:
            return True
        if isinstance(answer, Exception) or self.accepts(answer):
            self.resolve(answer)
        return self.done

    def accepts(self, answer: Answer) -> bool:
        raise AssertionError("a waiter knows what it waits for")

    def give_up(self) -> None:
        """Time is over, or the queue is closed."""
        if not self.done:
            self.resolve(self.empty())

    def empty(self) -> Answer:
        return None

    def resolve(self, answer: Answer) -> None:
        self.answer = answer
        self.done = True
        if self._wake is not None:
            self._wake()


class Taker(Waiter):
    """Waits for tasks; None once a drained tube has nothing left."""

    def __init__(self, op: ops.Take, deadline: int | None) -> None:
        super().__init__(op, deadline)
        self.tube = op.tube
        self.lane = op.lane
        self.drain = op.drain

    def accepts(self, answer: Answer) -> bool:
        return answer is None or bool(answer)

    def empty(self) -> Answer:
        return []


class Producer(Waiter):
    """Waits for room; keeps what was stored already and tries the rest again."""

    def __init__(self, op: ops.Put, deadline: int | None) -> None:
        super().__init__(op, deadline)
        self.tube = op.tube
        self._drafts = op.drafts
        self._results: list[Any] = [None] * len(op.drafts)
        self._open = list(range(len(op.drafts)))

    def accepts(self, answer: Answer) -> bool:
        for index, result in zip(self._open, answer, strict=True):
            self._results[index] = result
        self._open = [i for i in self._open if isinstance(self._results[i], TubeFull)]
        if self._open:
            self.op = ops.Put(self.tube, tuple(self._drafts[i] for i in self._open))
        return not self._open

    def resolve(self, answer: Answer) -> None:
        super().resolve(answer if isinstance(answer, Exception) else self._results)


class Watcher(Waiter):
    """Waits until a task has ended: DONE, BURIED or gone."""

    def __init__(self, op: ops.Watch, deadline: int | None) -> None:
        super().__init__(op, deadline)
        self.tube = op.tube
        self.id = op.id

    def accepts(self, answer: Answer) -> bool:
        self.last = answer
        return answer.state in (State.DONE, State.BURIED)


class Line:
    """Waiters in the order they came; any of them can leave without the others being looked at."""

    def __init__(self) -> None:
        self._waiters: OrderedDict[Waiter, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, waiter: Waiter) -> bool:
        return waiter in self._waiters

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._waiters)

    def add(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None

    def remove(self, waiter: Waiter) -> bool:
        """False if it was not there."""
        if waiter not in self._waiters:
            return False
        del self._waiters[waiter]
        return True

    def first(self, number: int) -> list[Waiter]:
        return list(islice(self._waiters, number))


class Takers:
    """Takers of one tube: those that want one lane by lane, and those that take anything."""

    def __init__(self) -> None:
        self.any = Line()
        self.draining = Line()
        """Those of all these that want to know when nothing is left."""
        self.lanes: dict[str, Line] = {}

    def __len__(self) -> int:
        return len(self.any) + sum(len(line) for line in self.lanes.values())

    def __bool__(self) -> bool:
        return bool(self.any or self.lanes)  # who leaves asks this, and need not be counted against all the others

    def __iter__(self) -> Iterator[Waiter]:
        for line in self.lanes.values():
            yield from line
        yield from self.any

    def add(self, taker: Taker) -> None:
        if taker.drain:
            self.draining.add(taker)
        if taker.lane is None:
            self.any.add(taker)
        else:
            self.lanes.setdefault(taker.lane, Line()).add(taker)

    def remove(self, taker: Taker) -> bool:
        self.draining.remove(taker)
        if taker.lane is None:
            return self.any.remove(taker)
        line = self.lanes.get(taker.lane)
        if line is None or not line.remove(taker):
            return False
        if not line:
            del self.lanes[taker.lane]
        return True


class Watchers:
    """Those who wait for the end of a task, of one tube, by the task."""

    def __init__(self) -> None:
        self._lines: dict[TaskId, Line] = {}

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[Waiter]:
        for line in self._lines.values():
            yield from line

    def add(self, watcher: Watcher) -> None:
        self._lines.setdefault(watcher.id, Line()).add(watcher)

    def remove(self, watcher: Watcher) -> bool:
        line = self._lines.get(watcher.id)
        if line is None or not line.remove(watcher):
            return False
        if not line:
            del self._lines[watcher.id]
        return True

    def of(self, tube: str, ended: Collection[Any] | None) -> list[Waiter]:
        """Those whose task may have ended; None, or an id that is None: any may have."""
        if ended is None or (tube, None) in ended:
            return list(self)
        return [waiter for name, id in ended if name == tube for waiter in self._lines.get(id, ())]


class Lines:
    """All waiters of a store in this process, by tube."""

    def __init__(self) -> None:
        self._producers: dict[str, Line] = {}
        self._takers: dict[str, Takers] = {}
        self._watchers: dict[str, Watchers] = {}
        self.watched = self._watchers.keys()
        """Tubes in which somebody waits for the end of a task."""
        self.count = 0
        self._came = 0

    def add(self, waiter: Waiter) -> None:
        self._came += 1
        waiter.place = self._came
        if isinstance(waiter, Taker):
            self._takers.setdefault(waiter.tube, Takers()).add(waiter)
        elif isinstance(waiter, Watcher):
            self._watchers.setdefault(waiter.tube, Watchers()).add(waiter)
        else:
            self._producers.setdefault(waiter.tube, Line()).add(waiter)
        self.count += 1

    def line_up(self, waiters: Sequence[Waiter], answers: Sequence[Answer], now: Callable[[], int]) -> None:
        """Those that have been tried and were not served stand in line."""
        for waiter, answer in zip(waiters, answers, strict=True):
            if waiter.offer(answer):
                continue
            if waiter.deadline is not None and waiter.deadline <= now():
                waiter.give_up()
            else:
                self.add(waiter)

    def remove(self, waiter: Waiter) -> None:
        lines: Any = self._takers
        if not isinstance(waiter, Taker):
            lines = self._producers if isinstance(waiter, Producer) else self._watchers
        line = lines.get(waiter.tube)
        if line is not None and line.remove(waiter):
            self.count -= 1
            if not line:
                del lines[waiter.tube]

    def takers(self, tube: str) -> int:
        return len(self._takers.get(tube, ()))

    def others(self, tube: str) -> int:
        """How many wait for anything but a task."""
        return len(self._producers.get(tube, ())) + len(self._watchers.get(tube, ()))

    def tubes(self) -> set[str]:
        return {*self._producers, *self._takers, *self._watchers}

    def has(self, tube: str) -> bool:
        """Whether anybody waits on a tube."""
        return tube in self._takers or tube in self._producers or tube in self._watchers

    def late(self, requests: Sequence[ops.Op[Any]]) -> set[int]:
        """Which of some ops are takes that would overtake who waits, should one of the others make a task ready."""
        if len(requests) == 1:
            return set()
        found = {i for i, op in enumerate(requests) if type(op) is ops.Take and op.tube in self._takers}
        return found if len(found) < len(requests) else set()

    def all(self) -> Iterator[Waiter]:
        lines: tuple[Mapping[str, Iterable[Waiter]], ...] = (self._producers, self._takers, self._watchers)
        for line in lines:
            for waiters in list(line.values()):
                yield from list(waiters)

    def serve(self, tube: str, attempt: Attempt, ended: Collection[Any] | None = None) -> None:
        """Try the waiters of a tube in their order: producers, takers, and watchers of tasks that have ended.

        Who comes after one that is refused is not looked at: thousands that wait cost no more than one.
        """
        if tube in self._producers:
            self._serve(self._producers[tube], attempt, 1)
        takers = self._takers.get(tube)
        if takers is not None:
            if takers.lanes:
                self._serve_lanes(takers.lanes, attempt)
            self._serve(takers.any, attempt, MOST)
            first = takers.any.first(1)
            # Who was refused and would have been told that nothing is left need not be asked about that again.
            if takers.draining and not (first and first[0] in takers.draining):
                self._drain(takers.draining, attempt)
        if tube in self._watchers:
            watchers = self._watchers[tube].of(tube, ended)
            for start in range(0, len(watchers), MOST):
                self._try(watchers[start : start + MOST], attempt)

    def _serve(self, line: Line, attempt: Attempt, most: int) -> bool:
        """Serve a line until somebody is refused; then answers False. More and more are tried at a time."""
        number = 1
        while line:
            waiters = line.first(number) if number == 1 else _alike(line.first(number))
            if not self._try(waiters, attempt):
                return False
            number = min(2 * number, most)
        return True

    def _serve_lanes(self, lanes: dict[str, Line], attempt: Attempt) -> None:
        """Each lane until somebody is refused, in the order the takers came."""
        first = [(next(iter(line)).place, lane) for lane, line in lanes.items()]
        heapq.heapify(first)
        while first:
            _, lane = heapq.heappop(first)
            line = lanes[lane]
            taker = next(iter(line))
            if self._try((taker,), attempt) and lane in lanes:
                heapq.heappush(first, (next(iter(line)).place, lane))

    def _drain(self, line: Line, attempt: Attempt) -> None:
        """Tell all who drain a tube if nothing is left in it. None of them takes: that is for the first of its line."""
        while line:
            (first,) = line.first(1)
            (answer,) = attempt((replace(first.op, n=0),))  # type: ignore[type-var]
            if isinstance(answer, Exception):
                self._offer(first, answer)
                continue
            if answer is None:
                self._tell(list(line), None)
            return

    def _tell(self, waiters: Sequence[Waiter], answer: Answer) -> None:
        try:
            for waiter in waiters:
                self._offer(waiter, answer)
        except BaseException:  # of a signal in this thread: the others are told too
            self._tell(waiters, answer)
            raise

    def _try(self, waiters: Sequence[Waiter], attempt: Attempt) -> bool:
        """Try waiters once; answers whether all of them were served."""
        tried = [waiter.op for waiter in waiters]
        answers = attempt(tried)
        try:
            served = [self._offer(waiter, answer) for waiter, answer in zip(waiters, answers, strict=True)]
            return all(served)
        except BaseException:  # of a signal in this thread: the others are told what they got
            for waiter, op, answer in zip(waiters, tried, answers, strict=True):
                if waiter.done or waiter.op is op:
                    self._offer(waiter, answer)
            raise

    def _offer(self, waiter: Waiter, answer: Answer) -> bool:
        served = waiter.offer(answer)
        if served:
            self.remove(waiter)
        return served


def in_two(requests: Sequence[ops.Op[Any]], late: set[int], perform: Attempt) -> list[Answer]:
    """Perform ops, those that are late after the others and after whoever waits."""
    early = iter(perform([op for i, op in enumerate(requests) if i not in late]))
    after = iter(perform([op for i, op in enumerate(requests) if i in late]))
    return [next(after) if i in late else next(early) for i in range(len(requests))]


def _alike(waiters: list[Waiter]) -> list[Waiter]:
    """The first takers that ask for the same time: a store may perform these as one."""
    ttr = getattr(waiters[0].op, "ttr", None)
    return list(takewhile(lambda waiter: getattr(waiter.op, "ttr", None) == ttr, waiters))


def one_by_one(
    store: Any, requests: Sequence[ops.Op[Any]], waiters: Sequence[Waiter], strict: bool = True
) -> list[Answer]:
    """A store's perform_all() where each that has to wait needs a call of its own."""
    try:
        answers: list[Answer] = store.execute_many([*requests, *(waiter.op for waiter in waiters)], strict)
    except Exception as error:
        answers = [error] * (len(requests) + len(waiters))
    for waiter, answer in zip(waiters, answers[len(requests) :], strict=True):
        if waiter.offer(answer):
            continue
        try:
            store.enlist(waiter, strict)
        except Exception as error:
            waiter.resolve(error)
    return answers[: len(requests)]


def raised(answer: Answer) -> Answer:
    """The answer, or the exception that it is."""
    if isinstance(answer, BaseException):
        raise answer
    return answer


__all__ = ["Answer", "Lines", "Producer", "Taker", "Waiter", "Watcher", "in_two", "one_by_one", "raised"]
