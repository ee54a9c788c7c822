"""Whether anything is left to do: the end of one-shot mode."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.blocking import Queue
from penstock.model import ops
from penstock.model.state import State

PAGE = 1000


def is_empty(queue: Queue, tubes: Sequence[str], horizon: int | None) -> bool:
    """Nothing is ready or taken, by whomever, and nothing delayed that is due within the horizon (None: ever)."""
    statistics = queue.statistics()
    counts = [statistics[name].tasks for name in tubes if name in statistics]
    if any(tasks["ready"] or tasks["taken"] for tasks in counts):
        return False
    delayed = [name for name in tubes if name in statistics and statistics[name].tasks["delayed"]]
    if horizon is None:
        return not delayed
    end = queue._engine.clock.now() + horizon
    return not any(_due(queue, name, end) for name in delayed)


def _due(queue: Queue, tube: str, end: int) -> bool:
    """Whether a delayed task becomes ready before a moment."""
    after = None
    while page := queue._engine.execute(ops.ListTasks(tube, State.DELAYED, PAGE, after)):
        if any(record.ready_at is not None and record.ready_at <= end for record in page):
            return True
        after = page[-1].id
    return False
