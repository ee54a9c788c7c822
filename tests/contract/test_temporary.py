"""Temporary tubes: the definition stays, the tasks go with the run."""

from __future__ import annotations

import pytest

from penstock import DuplicateKey, State, TubeNotFound
from penstock.testing import lose


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs", "utubettl", temporary=True, max_attempts=3)


def test_a_temporary_tube_is_empty_in_the_next_run(bench, jobs):  # case 17
    jobs.put_many(list("abc"))
    jobs.take()
    jobs.bury(2)
    again = bench.new_run()
    tube = again.tube("jobs")
    assert (tube.kind, tube.options["max_attempts"], tube.options["temporary"]) == ("utubettl", 3, True)
    assert tube.tasks() == []
    statistics = tube.statistics()
    assert set(statistics.tasks.values()) | set(statistics.calls.values()) == {0}
    assert tube.put("d").outcome == "new"
    assert tube.take().data == "d"


def test_a_tube_beside_a_temporary_one_keeps_its_tasks(bench, q, jobs):
    q.create_tube("lasting").put("x")
    jobs.put("y")
    again = bench.new_run()
    assert again.tube("lasting").take().data == "x"
    assert again.tube("jobs").take() is None


def test_ids_of_a_temporary_tube_are_never_given_twice(bench, jobs):
    last = [task.id for task in jobs.put_many(list("abc"))][-1]
    for _ in range(2):
        task = bench.new_run().tube("jobs").put("x")
        assert task.id > last
        last = task.id


def test_a_temporary_tube_does_all_that_others_do(bench, q, clock, waiter):
    tube = q.create_tube("jobs", temporary=True, retry=5, keep=5, lane_concurrency=1, capacity=9)
    tube.put("a", lane="l", key="k", ttr=3)
    tube.put("b", lane="l", delay=2)
    with pytest.raises(DuplicateKey):
        tube.put("c", key="k")
    other = bench.connect().tube("jobs")
    task = other.take()
    assert tube.take() is None
    clock.advance(3)
    take = waiter(q, lambda: tube.take(timeout=60, lane="l"))
    again = take.result()
    assert (again.id, again.attempt) == (task.id, 2)
    assert again.fail("x").state == State.DELAYED
    assert tube.take().ack(result="ok").id == 2
    assert tube.result(2) == "ok"
    assert tube.statistics().calls["put"] == 2
    clock.advance(5)
    assert [found.id for found in tube.tasks()] == [1]


def test_sessions_hold_tasks_of_temporary_and_other_tubes_alike(bench, q, jobs, clock):
    lasting = q.create_tube("lasting")
    lasting.put("x")
    jobs.put("y")
    other = bench.connect(session_ttl=5)
    other.tube("lasting").take()
    other.tube("jobs").take()
    lose(other)
    clock.advance(5)
    assert (lasting.peek(1).state, jobs.peek(1).state) == (State.READY, State.READY)


def test_settings_of_lanes_of_a_temporary_tube(jobs):
    jobs.lane("a").configure(concurrency=2)
    jobs.put_many(list("xyz"), lane="a")
    assert len(jobs.take_many(3)) == 2


def test_a_temporary_tube_can_be_altered_truncated_and_dropped(bench, q, jobs):
    jobs.alter(ttl=60)
    jobs.put("x")
    assert jobs.truncate() == 1
    assert bench.connect().tube("jobs").put("y").ttl == 60
    jobs.drop()
    with pytest.raises(TubeNotFound):
        q.tube("jobs")
    assert bench.new_run().tubes() == []


def test_a_temporary_tube_can_be_dropped_and_made_again(q, jobs):
    jobs.put("x")
    jobs.drop()
    again = q.create_tube("jobs", temporary=True)
    assert again.tasks() == []
    assert again.put("y").id == 1


def test_events_of_a_temporary_tube(jobs):
    seen = []
    jobs.on_task_change(lambda task, event: seen.append(event))
    jobs.put("x")
    jobs.take().ack()
    assert seen == ["put", "take", "ack"]
