"""The part of a worker that puts periodic tasks.

A schedule is a delayed task of the tube SCHEDULES. Whoever takes it puts the tasks that are due and gives it back,
delayed until the next fire, in one transaction: if its lease was lost meanwhile nothing is put, so a fire is put
once over all processes.
"""

from __future__ import annotations

import logging
from typing import Any

from penstock import calls, payload
from penstock.blocking import Queue, Task
from penstock.handlers import Definition
from penstock.model import ops
from penstock.model.duration import At
from penstock.model.errors import DuplicateKey, LeaseLost, PenstockError, TubeNotFound
from penstock.model.tube import KINDS, Kind
from penstock.outcomes import Abort, Release
from penstock.schedules import SCHEDULES, Fires, Schedule, due
from penstock.worker.errand import errand
from penstock.worker.run import Run

log = logging.getLogger("penstock.worker")
APART = 4
"""How many schedules a worker fires at a time, whether or not it has slots free."""
AGAIN = 1.0
"""Seconds after which a fire that the store did not take is tried again."""


class Scheduler:
    """Puts what is due."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.handler: Definition[Any, Any] = Definition(queue, SCHEDULES, self.fire)

    async def fire(self, data: Any, run: Run) -> None:
        """Put the tasks of a schedule that is due, and set it to its next moment."""
        try:
            schedule = Schedule.from_data(data)
            fires = due(schedule, max(run.task._record.taken_at or 0, schedule.next))
        except Exception as error:
            raise Abort(f"this is no schedule that can be understood: {error}") from error
        try:
            await errand(self._commit, schedule, fires, run.task)
            run.task._ended = "release"
        except LeaseLost:  # it was changed, removed, or given to another worker: the fire is theirs
            run.task._ended = "release"
        except Exception as error:
            log.error("schedule %r could not be fired, trying again: %s", schedule.name, error)
            raise Release(AGAIN) from error

    def _commit(self, schedule: Schedule, fires: Fires, task: Task) -> None:
        put = self._put(schedule, fires.moments)
        release = ops.Release(
            *(SCHEDULES, task._lease(), task._tube._session, At(fires.next)),
            # Of those that are due the one that has waited longest comes first, so none starves.
            pri=fires.next,
            data=payload.encode(schedule._replace(next=fires.next).to_data()),
            refund=True,
        )
        with self._queue._engine.transaction() as tx:
            tx.execute(release)
            for answer in [] if put is None else tx.execute(put):
                if isinstance(answer, PenstockError) and not isinstance(answer, DuplicateKey):
                    log.error("schedule %r could not put its task: %s", schedule.name, answer)

    def _put(self, schedule: Schedule, moments: list[int]) -> ops.Put | None:
        if not moments:
            log.info("schedule %r has missed a fire and skips it", schedule.name)
            return None
        try:
            config = self._queue._engine.execute(ops.GetTube(schedule.tube))
            kind = self._queue._kinds.get(config.kind) or KINDS.get(config.kind) or Kind()
            drafts = [calls.put_draft(config, kind, schedule.data, **schedule.options) for _ in moments]
        except PenstockError as error:
            hint = "; it will be put once the tube is there" if isinstance(error, TubeNotFound) else ""
            log.error("schedule %r cannot put into tube %r: %s%s", schedule.name, schedule.tube, error, hint)
            return None
        return ops.Put(schedule.tube, tuple(drafts))
