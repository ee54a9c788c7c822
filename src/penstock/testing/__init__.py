"""For tests of code that uses Penstock: a clock that stands still, handlers run inline, lost sessions, new runs.

A plugin of pytest has the fixtures penstock_clock and penstock_queue; see docs/testing.md.
"""

from __future__ import annotations

from typing import Any

from penstock.engines import open_store, release_store, replace_store
from penstock.model import ops
from penstock.model.clock import ManualClock
from penstock.model.errors import UsageError
from penstock.testing.assertions import assert_not_put, assert_put
from penstock.testing.by_hand import RunByHand, run
from penstock.testing.draining import adrain, drain
from penstock.testing.running import inline
from penstock.testing.taking import Drained, Ran

__all__ = [
    "Drained",
    "ManualClock",
    "Ran",
    "RunByHand",
    "adrain",
    "assert_not_put",
    "assert_put",
    "drain",
    "empty",
    "inline",
    "lose",
    "new_run",
    "run",
    "waiting",
]


def empty(queue: Any) -> None:
    """Remove all tasks, schedules and events of a queue. Its tubes stay, with their options and lanes.

    >>> import penstock
    >>> q = penstock.connect("memory:")
    >>> jobs = q.create_tube("jobs")
    >>> task = jobs.put(1)
    >>> empty(q)
    >>> jobs.tasks()
    []
    """
    queue._engine.check_owner()
    engine = getattr(queue._engine, "engine", queue._engine)
    for config in engine.execute(ops.ListTubes()):
        engine.execute(ops.TruncateTube(config.name))
    engine.execute(ops.ForgetHistory(2**63 - 1))


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
