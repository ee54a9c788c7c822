"""What must be true of a history, whatever was killed in its course.

A history is what callers saw: puts, grants and their ends, with the store's own clock and tokens. A call that
was begun and never answered may have happened or not; everything that was answered must hold.

Memory and SQLite run one call at a time, so the timestamps in the store give the order of calls. PostgreSQL runs calls
concurrently and stamps a call with the start of its transaction, which may be long before it gets its row locks. There
the checkers compare the machine's monotonic clock instead: a call that returned before another one began came first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TaskKey = tuple[str, int]
"""A task: its tube and its id."""


class Grant(NamedTuple):
    """One lease as its holder saw it."""

    task: TaskKey
    data: str
    lane: str | None
    token: int
    at: int
    began: int | None = None
    """When the take began, by the monotonic clock of the machine."""
    seen: int | None = None
    """When the take returned."""
    asked: str | None = None
    """The end that was begun: ack or release."""
    asked_at: int | None = None
    """When the ack or release began."""
    end: str | None = None
    """The end that was answered: acked, released or lost."""
    end_at: int | None = None


@dataclass
class History:
    """Everything that the callers of one store saw."""

    serial: bool = True
    """The store runs one call at a time, so its timestamps give their order."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(tube, data) of every put that was begun."""
    put: dict[TaskKey, str] = field(default_factory=dict)
    """Puts that were answered, with their data."""
    grants: dict[int, Grant] = field(default_factory=dict)
    """By token; a second grant of one token is kept in `repeated`."""
    repeated: list[int] = field(default_factory=list)

    def add(self, lines: Iterable[list[Any]]) -> None:
        """Take in what one caller said, in its order."""
        for what, tube, *rest in lines:
            getattr(self, f"_{what}")(tube, *rest)

    def _asked(self, tube: str, data: str) -> None:
        self.asked.append((tube, data))

    def _put(self, tube: str, task_id: int, data: str) -> None:
        self.put[tube, task_id] = data

    def _took(
        self,
        tube: str,
        task_id: int,
        data: str,
        lane: str | None,
        token: int,
        at: int,
        began: int | None = None,
        seen: int | None = None,
    ) -> None:
        if token in self.grants:
            self.repeated.append(token)
        self.grants[token] = Grant((tube, task_id), data, lane, token, at, began, seen)

    def _ending(self, tube: str, token: int, verb: str, at: int | None = None) -> None:
        self.grants[token] = self.grants[token]._replace(asked=verb, asked_at=at)

    def _ended(self, tube: str, token: int, end: str, at: int | None) -> None:
        self.grants[token] = self.grants[token]._replace(end=end, end_at=at)

    def in_order(self) -> list[Grant]:
        return [self.grants[token] for token in sorted(self.grants)]


def check_no_loss(history: History, left: set[TaskKey]) -> None:
    """Every put that was answered is still there, or somebody asked to ack it."""
    finished = {grant.task for grant in history.grants.values() if grant.asked == "ack"}
    lost = set(history.put) - left - finished
    assert not lost, f"lost: {sorted(lost)[:5]} of {len(lost)}"


def check_no_return(history: History, left: set[TaskKey]) -> None:
    """A task whose ack was answered is gone for good."""
    acked = {grant.task: grant.token for grant in history.grants.values() if grant.end == "acked"}
    back = left & set(acked)
    assert not back, f"acked and still there: {sorted(back)[:5]}"
    again = [g for g in history.grants.values() if g.task in acked and g.token > acked[g.task]]
    assert not again, f"acked and granted again: {again[:5]}"


def check_no_phantom(history: History, left: dict[TaskKey, str]) -> None:
    """Only tasks that were asked for, each once, with the data they were put with."""
    asked = Counter(history.asked)
    seen: dict[TaskKey, set[str]] = defaultdict(set)
    for task, data in [
        *history.put.items(),
        *left.items(),
        *((g.task, g.data) for g in history.grants.values()),
    ]:
        seen[task].add(data)
    changed = {task: texts for task, texts in seen.items() if len(texts) > 1}
    assert not changed, f"data changed: {list(changed.items())[:5]}"
    found = Counter((task[0], next(iter(texts))) for task, texts in seen.items())
    extra = found - asked
    assert not extra, f"never asked for, or stored twice: {list(extra)[:5]}"


def check_tokens(history: History) -> None:
    """No token twice, and later grants have higher ones."""
    assert not history.repeated, f"granted twice: {history.repeated[:5]}"
    by_task: dict[TaskKey, Grant] = {}
    for grant in history.in_order():
        before = by_task.get(grant.task)
        assert before is None or _rise(history, before, grant), f"tokens do not rise with time: {before}, {grant}"
        by_task[grant.task] = grant


def _rise(history: History, before: Grant, grant: Grant) -> bool:
    """Whether a grant can have come after the one with a lower token."""
    if history.serial and before.at > grant.at:
        return False
    return grant.seen is None or before.began is None or before.began <= grant.seen


def check_one_lease(history: History) -> None:
    """No lease ends well after the next one of its task began."""
    by_task: dict[TaskKey, Grant] = {}
    for grant in history.in_order():
        before = by_task.get(grant.task)
        if before is not None:
            _check_over(history, before, grant)
        by_task[grant.task] = grant


def _check_over(history: History, before: Grant, grant: Grant) -> None:
    if before.end not in ("acked", "released"):
        return
    assert not history.serial or (before.end_at or 0) <= grant.at, f"held twice at once: {before}, {grant}"
    late = grant.seen is not None and before.asked_at is not None and before.asked_at > grant.seen
    assert not late, f"held twice at once, and ended by the first: {before}, {grant}"


def check_lanes(history: History) -> None:
    """In a lane of concurrency 1 a lease begins only after the one before has ended."""
    by_lane: dict[tuple[str, str], Grant] = {}
    for grant in history.in_order():
        if grant.lane is None:
            continue
        lane = (grant.task[0], grant.lane)
        before = by_lane.get(lane)
        if before is not None:
            assert _rise(history, before, grant), f"tokens of a lane do not rise with time: {before}, {grant}"
            _check_over(history, before, grant)
        by_lane[lane] = grant


def check_fifo(history: History) -> None:
    """In a lane of concurrency 1 tasks are finished in the order of their ids."""
    last: dict[tuple[str, str], Grant] = {}
    for grant in history.in_order():
        if grant.lane is None or grant.end != "acked":
            continue
        lane = (grant.task[0], grant.lane)
        before = last.get(lane)
        assert before is None or before.task[1] < grant.task[1], f"overtaken: {before}, {grant}"
        last[lane] = grant


def check(history: History, left: dict[TaskKey, str]) -> None:
    """All of it. `left` is what the store holds at the end."""
    check_no_loss(history, set(left))
    check_no_return(history, set(left))
    check_no_phantom(history, left)
    check_tokens(history)
    check_one_lease(history)
    check_lanes(history)
    check_fifo(history)
