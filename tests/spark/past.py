"""The history of a queue, whole.

On a server whoever writes, in any database, hides newer events until he has ended, so that none is read before one that
is older. Processes of Spark write now and then, also after what they were started for.
"""

from __future__ import annotations

from typing import Any

from tests.worker.bench import until

from penstock.history import HistoryEvent

PATIENCE = 300.0
MOST = 100_000


def history(q: Any, number: int) -> list[HistoryEvent]:
    """All events, once there are so many. What was seen once stays in sight."""
    until(lambda: len(q.history(limit=number)) == number, PATIENCE)
    found: list[HistoryEvent] = q.history(limit=MOST)
    return found
