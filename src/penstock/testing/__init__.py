"""For tests of code that uses Penstock: a clock that stands still, lost sessions, new runs."""

from __future__ import annotations

from typing import Any

from penstock.engines import open_store, release_store, replace_store
from penstock.model.clock import ManualClock
from penstock.model.errors import UsageError

__all__ = ["ManualClock", "lose", "new_run", "waiting"]


def lose(queue: Any) -> None:
    """Let the session of a queue die: nobody keeps it alive any more, as after a crash of its process.

    >>> import penstock
    >>> clock = ManualClock()
    >>> q = penstock.connect("memory:", clock=clock, session_ttl=30)
    >>> jobs = q.create_tube("jobs", "fifo")
    >>> task = jobs.put(1)
    >>> task = jobs.take()
    >>> lose(q); clock.advance(30)
    >>> jobs.statistics().tasks["ready"]
    1
    """
    queue._engine.lose(queue._session)


def new_run(url: str) -> None:
    """End the run of a store as though every process that has it open had died; the next connect begins one."""
    store = open_store(url)
    if store is None:
        raise UsageError(f"{url} is not open in this process")
    again = store.abandon()
    if again is None:
        release_store(store)
    else:
        replace_store(store, again)


def waiting(queue: Any) -> int:
    """How many callers of this process wait on the queue's store."""
    engine = getattr(queue._engine, "engine", queue._engine)
    count: int = engine.store.waiters
    return count
