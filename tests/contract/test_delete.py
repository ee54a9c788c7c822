"""delete."""

from __future__ import annotations

import pytest
from tests.support.watching import Events, elapse

from penstock import LeaseLost, Reason, State, TaskNotFound


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs", history=True)


def in_state(jobs, state):
    jobs.put(1, delay=5 if state == "delayed" else None, key="k")
    if state == "buried":
        jobs.bury(1)
    if state in ("taken", "done"):
        task = jobs.take()
        if state == "done":
            task.ack(keep=True)


@pytest.mark.parametrize("state", ["ready", "taken", "delayed", "buried", "done"])
def test_a_task_can_be_deleted_in_any_state(jobs, state):  # case 224
    in_state(jobs, state)
    events = Events(jobs)
    task = jobs.delete(1)
    assert (task.state, task.reason, task.data, task.deadline) == (State.DONE, Reason.DELETED, 1, None)
    assert events == [("delete", State.DONE, Reason.DELETED)]
    with pytest.raises(TaskNotFound, match="1"):
        jobs.peek(1)
    assert (jobs.statistics().tasks["total"], jobs.statistics().tasks["done"]) == (0, 1)


def test_anybody_can_delete_what_another_holds(bench, jobs):  # case 54
    jobs.put(1)
    task = jobs.take()
    bench.connect().tube("jobs").delete(1)
    with pytest.raises(LeaseLost) as caught:
        task.ack()
    assert caught.value.now == "gone"


def test_a_missing_task_cannot_be_deleted(jobs):  # case 40
    jobs.put(1)
    jobs.delete(1)
    with pytest.raises(TaskNotFound, match="id 1"):
        jobs.delete(1)


def test_a_task_whose_life_is_over_cannot_be_deleted(jobs, clock):
    jobs.put(1, ttl=5)
    elapse(clock, 5)
    with pytest.raises(TaskNotFound):
        jobs.delete(1)
    assert jobs.statistics().calls["ttl"] == 1


def test_the_key_of_a_deleted_task_is_free(jobs):
    jobs.put(1, key="k")
    jobs.delete(1)
    assert jobs.put(2, key="k").outcome == "new"


def test_deleting_keeps_nothing_whatever_the_tube_keeps(q):
    jobs = q.create_tube("kept", keep=True, keep_failed=True)
    jobs.put(1)
    jobs.delete(1)
    assert jobs.tasks() == []
