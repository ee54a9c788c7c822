"""peek, tasks: looking without changing."""

from __future__ import annotations

import pytest
from tests.support.watching import Events, elapse, refused

from penstock import State, TaskNotFound


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


def test_a_taken_task_is_shown_so_and_stays_so(bench, jobs):  # case 57
    jobs.put("x")
    task = jobs.take()
    events = Events(jobs)
    seen = bench.connect().tube("jobs").peek(1)
    assert (seen.state, seen.state.letter, seen.data, seen.attempt) == (State.TAKEN, "t", "x", 1)
    assert events == []
    assert task.ack().state == State.DONE


def test_a_missing_task_is_not_found(jobs):  # case 40
    for id in (0, -1, 77, (1 << 63) - 1, "x"):
        with pytest.raises(TaskNotFound, match=f"{id!r}"):
            jobs.peek(id)


def test_peek_sees_what_time_has_done(jobs, clock):  # case 59
    jobs.put("delayed", delay=5)
    jobs.put("mortal", ttl=5)
    jobs.put("leased", ttr=5, pri=-1)
    assert jobs.take().data == "leased"
    elapse(clock, 5)
    assert jobs.peek(1).state == State.READY
    with pytest.raises(TaskNotFound):
        jobs.peek(2)
    assert jobs.peek(3).state == State.READY


def test_tasks_come_in_pages_by_age(jobs):
    jobs.put_many(range(5))
    jobs.bury(2)
    assert [task.data for task in jobs.tasks(limit=2)] == [0, 1]
    assert [task.data for task in jobs.tasks(limit=2, after=2)] == [2, 3]
    assert [task.data for task in jobs.tasks(after=5)] == []
    assert [task.data for task in jobs.tasks("ready")] == [0, 2, 3, 4]
    assert [task.data for task in jobs.tasks(State.BURIED)] == [1]


@pytest.mark.parametrize(("option", "value"), [("state", "lost"), ("limit", 0), ("limit", 1.5), ("after", 1.5)])
def test_bad_options_are_refused(jobs, option, value):
    refused(value, lambda: jobs.tasks(**{option: value}))


def test_a_task_hides_its_data_from_logs(jobs):
    assert "secret" not in repr(jobs.put("secret"))
