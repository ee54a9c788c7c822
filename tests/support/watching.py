"""What tests look at: the events of a tube, their moments, and time that nobody has noticed yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import UsageError
from penstock.model.duration import SECOND
from penstock.testing import ManualClock


class Events(list[tuple[str, str, str | None]]):
    """(event, state, reason) of each change, oldest first."""

    def __init__(self, tube: Any) -> None:
        super().__init__()
        tube.on_task_change(self.add)

    def add(self, task: Any, event: str) -> None:
        self.append((event, task.state, task.reason))

    @property
    def names(self) -> list[str]:
        return [event for event, _, _ in self]


def at(clock: ManualClock, seconds: float = 0) -> datetime:
    """The moment so many seconds from now, as tasks show it."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock.now() + round(seconds * SECOND))


def elapse(clock: ManualClock, seconds: float) -> None:
    """Time passes, and nobody has ticked yet. Shorter than a session's life."""
    clock._now += round(seconds * SECOND)


def moments(q: Any, start: datetime) -> list[tuple[str, float]]:
    """(event, seconds since start) of tubes with history."""
    return [(event.event, (event.at - start).total_seconds()) for event in q.history()]


def refused(value: object, call: Callable[[], Any]) -> None:
    """The call is refused by a UsageError whose text has the value."""
    with pytest.raises(UsageError) as caught:
        call()
    assert repr(value).lower() in str(caught.value).lower()
