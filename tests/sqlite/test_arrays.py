"""Many tasks by one statement, or by one each where SQLite knows no arrays: the same comes of it."""

from __future__ import annotations

import pytest

import penstock
from penstock.engines.sqlite import arrays
from penstock.model import ops
from penstock.testing import ManualClock

MANY = 5 * arrays.FEW


@pytest.fixture(params=["arrays", "rows"], autouse=True)
def way(request, monkeypatch):
    if request.param == "rows":
        monkeypatch.setattr(arrays, "KNOWN", False)
    return request.param


@pytest.fixture
def queue(tmp_path):
    with penstock.connect(tmp_path / "tasks.db", clock=ManualClock()) as queue:
        yield queue


def stored(tube):
    """The tasks as the store has them, by id."""
    return {task.id: task._record for task in tube.tasks(limit=1000)}


@pytest.mark.parametrize("kind", ["fifo", "standard", "limfifottl"])
@pytest.mark.parametrize("options", [{}, {"payload": "bytes"}, {"id": "time64"}], ids=str)
def test_what_is_answered_is_what_is_stored(queue, kind, options):
    more = {"capacity": MANY} if kind == "limfifottl" else {}
    tube = queue.create_tube("jobs", kind, **options, **more)
    data = [b"%d" % n if "payload" in options else {"n": n, "text": "ä\n\\"} for n in range(MANY)]
    put = tube.put_many(data)
    assert stored(tube) == {task.id: task._record for task in put}
    assert [tube.peek(task.id).data for task in put] == data
    taken = tube.take_many(MANY - 1)
    assert [task.data for task in taken] == data[:-1]
    assert stored(tube) == {task.id: task._record for task in (*taken, put[-1])}
    tube.ack_many(taken[1:])
    assert list(stored(tube)) == [taken[0].id, put[-1].id]
    assert (tube.statistics().tasks["done"], tube.statistics().tasks["total"]) == (MANY - 2, 2)


def test_tasks_that_differ_in_more_than_data(queue):
    tube = queue.create_tube("jobs", ttr=60)
    put = tube.put_many([penstock.Entry(n, pri=-n, ttr=60 + n % 2, delay=3 * (n % 3 == 2)) for n in range(MANY)])
    assert stored(tube) == {task.id: task._record for task in put}
    taken = tube.take_many(MANY)
    assert [task.data for task in taken] == [n for n in reversed(range(MANY)) if n % 3 != 2]
    assert {task.id: task._record for task in taken}.items() <= stored(tube).items()


def test_tokens_rise_in_the_order_of_the_line(queue):
    tube = queue.create_tube("jobs")
    tube.put_many([penstock.Entry(n, pri=n * 7 % MANY) for n in range(MANY)])
    taken = tube.take_many(MANY)
    assert [task._record.pri for task in taken] == list(range(MANY))
    tokens = [task._record.token for task in taken]
    assert tokens == list(range(tokens[0], tokens[0] + MANY))


def test_delayed_tasks_and_deadlines_come_due(queue):
    tube = queue.create_tube("jobs", ttr=60)
    clock = queue._engine.clock
    tube.put_many(range(MANY), delay=5)
    assert (tube.take_many(MANY), tube.statistics().tasks["delayed"]) == ([], MANY)
    clock.advance(5)
    assert len(tube.take_many(MANY)) == MANY
    clock.advance(60)
    assert [task.attempt for task in tube.take_many(MANY)] == [2] * MANY


def test_a_tube_that_has_no_room_for_all_takes_what_it_has_room_for(queue):
    tube = queue.create_tube("jobs", "limfifottl", capacity=MANY - 3)
    answers = tube.put_many(range(MANY), errors="return")
    assert [type(answer) is penstock.TubeFull for answer in answers] == [False] * (MANY - 3) + [True] * 3


@pytest.mark.parametrize("each", [1, 2 * arrays.FEW])
def test_takes_and_acks_of_several_sessions_at_once(queue, each):
    tube = queue.create_tube("jobs")
    tube.put_many(range(4 * each))
    sessions = [penstock.connect(queue._engine.name, clock=queue._engine.clock) for _ in range(3)]
    engine = queue._engine
    takes = [ops.Take("jobs", each, other._session) for other in sessions]
    granted = engine.execute_many(takes)
    assert [[int(record.data) for record in records] for records in granted] == [
        list(range(n * each, (n + 1) * each)) for n in range(3)
    ]
    assert {record.id: record for records in granted for record in records}.items() <= stored(tube).items()
    leases = [tuple(ops.Finish(ops.Lease(it.id, it.token)) for it in records) for records in granted]
    strangers = leases[1][:1]  # of another session
    acks = [
        ops.Ack("jobs", items, other._session)
        for items, other in zip((leases[0] + strangers, leases[1], leases[2]), sessions, strict=True)
    ]
    answers = engine.execute_many(acks)
    assert isinstance(answers[0][-1], penstock.LeaseLost)
    assert not [answer for part in answers for answer in part[:each] if isinstance(answer, Exception)]
    assert len(stored(tube)) == each
    for other in sessions:
        other.close()
