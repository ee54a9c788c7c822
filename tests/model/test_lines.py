"""Lines of waiters, by themselves."""

from __future__ import annotations

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
