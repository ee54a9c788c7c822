"""run(): what a handler is told about its task, for tests that call the handler themselves."""

from __future__ import annotations

import contextvars
import time
from typing import Any

from penstock.blocking import connect
from penstock.handlers import DEFAULTS, Definition
from penstock.model.clock import ManualClock
from penstock.model.duration import SECOND, Seconds, length
from penstock.model.errors import UsageError
from penstock.model.task import TaskId
from penstock.model.tube import check_count
from penstock.worker.run import Run, _current


class RunByHand(Run):
    """A Run without a worker. `with run() as r:` is also what current_run() finds meanwhile."""

    __slots__ = ("_before",)

    def __enter__(self) -> RunByHand:
        self._before: contextvars.Token[Run | None] = _current.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.reset(self._before)


def run(
    data: Any = None,
    *,
    tube: str = "tests",
    id: TaskId | None = None,
    attempt: int = 1,
    max_attempts: int | None = DEFAULTS["max_attempts"],
    time_left: Seconds | None = None,
    lane: str | None = None,
    key: str | None = None,
) -> RunByHand:
    """A Run for a handler that is called by hand. Its task is a real one, in a queue in memory of its own.

    data, tube, id, lane, key: of the task
    attempt, max_attempts: which attempt it is, of how many; None is for ever
    time_left: seconds until the attempt's limit; None without one

    >>> def handler(data, run):
    ...     return "the last one" if run.last_attempt else "more to come"
    >>> handler("x", run=run(attempt=3, max_attempts=3))
    'the last one'
    >>> told = run()
    >>> told.tell("cancelled")
    >>> told.cancelled
    True
    """
    check_count(attempt, "attempt")
    if max_attempts is not None and attempt > check_count(max_attempts, "max_attempts"):
        raise UsageError(f"there is no attempt {attempt} of {max_attempts}: give a higher max_attempts=")
    left = length(time_left, "time_left")
    queue = connect("memory:", clock=ManualClock())
    made = queue.create_tube(tube, id="auto" if id is None else "required", max_attempts=max_attempts)
    given = {} if id is None else {"id": id}
    # The store takes no limit of 0 seconds; its clock stands still, so that the lease outlives any.
    task = made.put(data, lane=lane, key=key, ttr=None if left is None else max(left, 1000) / SECOND, **given)  # type: ignore[arg-type]
    task = made.take_many(1)[0]
    for _ in range(attempt - 1):
        task.release()
        task = made.take_many(1)[0]
    deadline = None if left is None else time.monotonic() + left / SECOND
    return RunByHand(task, Definition(queue, tube, lambda data: None), deadline)
