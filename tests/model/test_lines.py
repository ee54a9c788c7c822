"""Lines of waiters, by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.engines.line import Line, Lines, Taker, Waiter, Watcher
from penstock.model import ops
from penstock.model.session import Session

SESSION = Session("5a96d33d-47eb-4883-a40e-bfa08bbec609", "", 1)
MANY = 200


def takers() -> list[Waiter]:
    return [Taker(ops.Take("jobs", 1, SESSION, lane=f"lane {number}"), None) for number in range(MANY)]


def watchers() -> list[Waiter]:
    return [Watcher(ops.Watch("jobs", number, 0), None) for number in range(MANY)]


@pytest.mark.parametrize("waiters", [takers, watchers])
def test_who_leaves_is_not_counted_against_all_the_others(waiters, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, counted = Lines(), 0
    waiting = waiters()
    for waiter in waiting:
        lines.add(waiter)
    length = Line.__len__

    def count(line: Line) -> int:
        nonlocal counted
        counted += 1
        return length(line)

    monkeypatch.setattr(Line, "__len__", count)
    for waiter in waiting:
        lines.remove(waiter)
    assert counted <= 3 * MANY
    assert not lines.count and not lines.has("jobs")


def test_those_who_drain_a_tube_are_asked_for_at_once() -> None:
    """A task that appears meanwhile is for who came first, so only the end is asked for."""
    lines, asked = Lines(), list[ops.Take]()
    first = Taker(ops.Take("jobs", 1, SESSION), None)
    waiting = [Taker(ops.Take("jobs", 1, SESSION, lane=lane, drain=True), None) for lane in [None, "a", "b"] * MANY]
    for waiter in [first, *waiting]:
        lines.add(waiter)
    over = False

    def attempt(requests: Sequence[Any]) -> list[Any]:
        asked.extend(requests)
        return [None if over and op.drain else [] for op in requests]

    lines.serve("jobs", attempt)
    assert len(asked) <= 4, "the first of each line, and one for all who drain"
    assert [op.n for op in asked if op.drain and op.lane is None] == [0]
    asked.clear()
    lines.remove(first)
    lines.serve("jobs", attempt)
    assert [op.lane for op in asked] == ["a", "b", None], "the first of the line drains, and its answer is for all"
    lines.add(first)
    over = True
    lines.serve("jobs", attempt)
    assert all(waiter.done and waiter.answer is None for waiter in waiting) and not first.done
    assert lines.count == 1
