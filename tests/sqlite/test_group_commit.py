"""Many threads on one queue: their calls share commits, and each gets its own answer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Background
from tests.support import invariants
from tests.worker.bench import until

import penstock
from penstock import DuplicateKey, LeaseLost, PayloadTooLarge, TubeFull, TubeNotFound
from penstock.engines import open_store
from penstock.model import ops
from penstock.model.task import Draft, Placed
from penstock.testing import ManualClock

THREADS = 50
ROUNDS = 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def q(path: Path) -> Iterator[penstock.Queue]:
    # Nobody keeps time beside the tests, who would commit too.
    with penstock.connect(str(path), clock=ManualClock()) as queue:
        yield queue
        invariants.check(str(path))


class Commits:
    """Counts the transactions of a queue."""

    def __init__(self, q: penstock.Queue) -> None:
        self.number = 0
        with q.transaction() as tx:
            self._connection = tx.connection
        self._connection.set_exec_trace(self._trace)

    def _trace(self, cursor: Any, sql: str, values: Any) -> bool:
        self.number += sql == "COMMIT"
        return True


def together(q: penstock.Queue, calls: list[Callable[[], Any]]) -> list[Any]:
    """The answers of calls in a thread each, of which none is performed before all stand in line."""
    line = q._engine.store._group._pending
    with q.transaction():
        threads = [Background(call) for call in calls]
        until(lambda: len(line) == len(threads))
    return [thread.result() for thread in threads]


@pytest.mark.parametrize("kind", ["fifo", "utube", "standard"])
def test_calls_of_fifty_threads_that_meet_get_their_own_answers_in_one_commit(q, kind):
    jobs = q.create_tube("jobs", kind)
    commits = Commits(q)
    lanes = [None if kind == "fifo" else str(n) for n in range(THREADS)]
    put = together(q, [lambda n=n: jobs.put(n, lane=lanes[n]) for n in range(THREADS)])
    assert [(task.data, task.lane) for task in put] == list(enumerate(lanes))
    taken = together(q, [jobs.take] * THREADS)
    assert sorted(task.data for task in taken) == list(range(THREADS))
    acked = together(q, [task.ack for task in taken])
    assert [(task.id, task.reason) for task in acked] == [(task.id, "success") for task in taken]
    assert commits.number == 6, "each time the transaction that kept them out, and theirs"


@pytest.mark.parametrize("kind", ["fifo", "utube", "standard"])
def test_fifty_threads_that_come_as_they_like_get_their_own_answers(q, kind):
    jobs = q.create_tube("jobs", kind)
    start = threading.Barrier(THREADS)
    done: list[tuple[int, Any]] = []
    lanes = kind != "fifo"

    def work(n: int) -> None:
        start.wait()
        for i in range(ROUNDS):
            lane = f"{n}:{i}" if lanes else None
            task = jobs.put([n, i], lane=lane)
            assert task.data == [n, i] and task.lane == lane
            taken = jobs.take()
            assert taken is not None and taken.state == "taken"
            done.append((taken.id, taken.data))
            assert taken.ack().reason == "success"

    for thread in [Background(lambda n=n: work(n)) for n in range(THREADS)]:
        thread.result()
    assert sorted(data for _, data in done) == sorted([n, i] for n in range(THREADS) for i in range(ROUNDS))
    assert max(Counter(task_id for task_id, _ in done).values()) == 1
    statistics = jobs.statistics()
    assert statistics.tasks["total"] == 0 and statistics.tasks["done"] == THREADS * ROUNDS
    assert [statistics.calls[name] for name in ("put", "take", "ack")] == [THREADS * ROUNDS] * 3


def draft(text: str, key: str | None = None) -> Draft:
    return Draft(f'"{text}"', key=key)


def execute(q: penstock.Queue, *requests: ops.Op[Any]) -> list[Any]:
    return q._engine.execute_many(requests)


def test_a_refused_put_in_a_group_does_not_undo_its_neighbours(q):
    jobs = q.create_tube("jobs")
    jobs.put("there", key="k")
    answers = execute(
        q,
        ops.Put("jobs", (draft("a"),)),
        ops.Put("jobs", (draft("b", key="k"),)),
        ops.Put("jobs", (draft("c"), draft("d", key="k"))),
        ops.Put("none", (draft("e"),)),
        ops.Put("jobs", (draft("f"),)),
    )
    kinds = [
        type(answer).__name__ if isinstance(answer, Exception) else [type(a).__name__ for a in answer]
        for answer in answers
    ]
    assert kinds == [["Placed"], ["DuplicateKey"], ["Placed", "DuplicateKey"], "TubeNotFound", ["Placed"]]
    assert [task.data for task in jobs.tasks()] == ["there", "a", "c", "f"]
    placed = [a for answer in answers if isinstance(answer, list) for a in answer if isinstance(a, Placed)]
    assert [jobs.peek(p.record.id).data for p in placed] == ["a", "c", "f"]


def test_refusals_of_every_kind_in_a_group_stay_with_their_callers(q):
    jobs = q.create_tube("jobs", capacity=3, max_payload=100)
    jobs.put_many(["x", "y"])
    task = jobs.take()
    session = q._session
    lease = ops.Lease(task.id, task.token)
    answers = execute(
        q,
        ops.Put("jobs", (draft("z" * 200),)),
        ops.Ack("jobs", (ops.Finish(ops.Lease(task.id, 1)),), session),
        ops.Put("jobs", (draft("fits"),)),
        ops.Put("jobs", (draft("does not"),)),
        ops.GetTube("none"),
        ops.Ack("jobs", (ops.Finish(lease),), session),
        ops.Take("jobs", 1, session),
        ops.Take("jobs", 1, session),
        ops.Take("jobs", 1, session),
    )
    assert isinstance(answers[0][0], PayloadTooLarge)
    assert isinstance(answers[1][0], LeaseLost)
    assert isinstance(answers[2][0], Placed)
    assert isinstance(answers[3][0], TubeFull)
    assert isinstance(answers[4], TubeNotFound)
    assert not isinstance(answers[5][0], Exception)
    assert jobs.statistics().calls["ack"] == 1
    assert [len(answer) for answer in answers[6:]] == [1, 1, 0]
    assert jobs.statistics().tasks["taken"] == 2


def test_threads_whose_puts_meet_get_one_task_and_refusals(q):
    jobs = q.create_tube("jobs")
    start = threading.Barrier(20)

    def put(n: int) -> Any:
        start.wait()
        try:
            return jobs.put(n, key="one" if n % 2 else f"own{n}").data
        except DuplicateKey as error:
            return error

    answers = [thread.result() for thread in [Background(lambda n=n: put(n)) for n in range(20)]]
    assert sum(isinstance(answer, DuplicateKey) for answer in answers) == 9
    stored = [task.data for task in jobs.tasks()]
    assert sorted(stored) == sorted(answer for answer in answers if not isinstance(answer, DuplicateKey))


def test_takes_that_meet_never_share_a_task(q):
    jobs = q.create_tube("jobs", "fifo")
    jobs.put_many(range(30))
    answers = execute(q, *(ops.Take("jobs", n, q._session) for n in (10, 15, 10, 1)))
    assert [len(answer) for answer in answers] == [10, 15, 5, 0]
    records = [record for answer in answers for record in answer]
    assert [record.id for record in records] == list(range(1, 31))
    assert len({record.token for record in records}) == 30


def test_a_call_that_fails_inside_the_store_fails_all_of_its_group_and_nobody_else(path, q, monkeypatch):
    jobs = q.create_tube("jobs")
    store = open_store(str(path))
    assert store is not None
    monkeypatch.setattr("penstock.engines.sqlite.store.FAST", {ops.Put: lambda *args: 1 / 0})
    with pytest.raises(ZeroDivisionError):
        jobs.put("never")
    monkeypatch.undo()
    assert jobs.put("works").id == 1
    assert [task.data for task in jobs.tasks()] == ["works"]
