"""Whether anything is left to do: the end of one-shot mode."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from penstock.blocking import Queue
from penstock.model import ops
from penstock.model.errors import TubeNotFound
from penstock.model.state import State
from penstock.model.stats import Statistics

PAGE = 1000
Counts = dict[str, dict[str, int]]


def is_empty(queue: Queue, tubes: Sequence[str], horizon: int | None) -> bool:
    """Nothing is ready or taken, by whomever, and nothing delayed that is due within the horizon (None: ever).

    Tubes are not always looked into at one moment, and a task of one may put a task into another meanwhile. So there
    are two looks, and nothing may have happened between them.
    """
    first = _events_if_empty(queue, tubes, horizon)
    return first is not None and first == _events_if_empty(queue, tubes, horizon)


def _events_if_empty(queue: Queue, tubes: Sequence[str], horizon: int | None) -> Counts | None:
    """How often everything has happened in tubes that have nothing to do."""
    found = dict[str, Statistics]()
    for name in tubes:  # not all tubes at once: a login need not be one that may read the others
        with suppress(TubeNotFound):
            found |= queue._engine.execute(ops.GetStatistics(name))
    if any(tube.tasks["ready"] or tube.tasks["taken"] for tube in found.values()):
        return None
    delayed = [name for name, tube in found.items() if tube.tasks["delayed"]]
    if horizon is None and delayed:
        return None
    end = queue._engine.clock.now() + (horizon or 0)
    if any(_due(queue, name, end) for name in delayed):
        return None
    return {name: dict(tube.calls) for name, tube in found.items()}


def _due(queue: Queue, tube: str, end: int) -> bool:
    """Whether a delayed task becomes ready before a moment."""
    after = None
    while page := queue._engine.execute(ops.ListTasks(tube, State.DELAYED, PAGE, after)):
        if any(record.ready_at is not None and record.ready_at <= end for record in page):
            return True
        after = page[-1].id
    return False
