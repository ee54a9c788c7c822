"""Callers that wait for the end of a task are tried when that has ended, not at every change of its tube."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.bench import until

import penstock
from penstock import State
from penstock.model import ops
from penstock.testing import ManualClock

NUMBER = 100


@pytest.fixture(params=["memory:", "file"])
def q(request: Any, tmp_path: Path) -> Iterator[Any]:
    url = request.param if request.param != "file" else tmp_path / "tasks.db"
    # Nobody keeps time beside the test: what is asked for is asked for by a change.
    with penstock.connect(url, durability="relaxed", clock=ManualClock()) as queue:
        yield queue


class Watching:
    """Threads that wait for the ends of tasks, and how often the store was asked on their behalf."""

    def __init__(self, q: Any, jobs: Any, ids: list[int]) -> None:
        self.ended: dict[int, Any] = {}
        self.asked = 0
        store = q._engine.store
        commit = store.commit

        def counted(requests: Any, strict: bool) -> Any:
            self.asked += sum(1 for op in requests if type(op) is ops.Watch)
            return commit(requests, strict)

        store.commit = counted
        self._threads = [threading.Thread(target=self._wait, args=(jobs, id), daemon=True) for id in ids]
        for thread in self._threads:
            thread.start()
        until(lambda: store.waiters == len(ids))
        self.asked = 0

    def _wait(self, jobs: Any, id: int) -> None:
        try:
            self.ended[id] = jobs.wait(id, 30).state
        except penstock.PenstockError as error:
            self.ended[id] = type(error)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(90)


def test_other_changes_of_the_tube_cost_nothing(q: Any) -> None:
    jobs = q.create_tube("jobs")
    ids = [task.id for task in jobs.put_many(range(NUMBER))]
    watching = Watching(q, jobs, ids)
    for number in range(20):
        jobs.put(number)
    task = jobs.take()
    task.touch(5)
    task.release()
    assert watching.asked == 0
    jobs.take().ack()
    until(lambda: len(watching.ended) == 1)
    assert watching.asked == 1 and watching.ended == {ids[0]: State.DONE}
    jobs.truncate()
    watching.join()
    assert len(watching.ended) == NUMBER


ENDS: dict[str, Callable[[Any, int], Any]] = {
    "ack": lambda jobs, id: jobs.take().ack(),
    "bury": lambda jobs, id: jobs.bury(id),
    "fail": lambda jobs, id: jobs.take().fail("no", abort=True),
    "delete": lambda jobs, id: jobs.delete(id),
    "cancel": lambda jobs, id: jobs.cancel(id),
    "ttl": lambda jobs, id: jobs._engine.clock.advance(60),
    "truncate": lambda jobs, id: jobs.truncate(),
    "drop": lambda jobs, id: jobs.drop(),
    "switch": lambda jobs, id: jobs.switch(id, State.BURIED),
}


@pytest.mark.parametrize("how", ENDS)
def test_every_end_is_told(q: Any, how: str) -> None:
    jobs = q.create_tube("jobs")
    id = jobs.put(1, ttl=20 if how == "ttl" else None).id
    watching = Watching(q, jobs, [id] * 3)
    ENDS[how](jobs, id)
    watching.join()
    assert watching.ended[id] in (State.DONE, State.BURIED, penstock.TaskNotFound, penstock.TubeNotFound)


def test_what_ends_in_a_transaction_is_told(q: Any) -> None:
    jobs = q.create_tube("jobs")
    id = jobs.put(1).id
    task = jobs.take()
    watching = Watching(q, jobs, [id])
    with q.transaction() as tx:
        task.ack(transaction=tx)
    watching.join()
    assert watching.ended == {id: State.DONE}
