"""bury."""

from __future__ import annotations

import pytest
from tests.support.watching import Events

from penstock import NotOwner, Reason, State, TaskNotFound, WrongState


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


def test_anybody_can_bury_a_task_that_waits(bench, jobs):  # case 44
    jobs.put(1)
    buried = bench.connect().tube("jobs").bury(1)
    assert (buried.state, buried.reason) == (State.BURIED, Reason.ASKED)
    assert jobs.take() is None


def test_the_holder_can_bury(jobs):  # case 214
    jobs.put_many([1, 2])
    task = jobs.take().bury("strange")
    assert (task.state, task.reason, task.error, task.deadline) == (State.BURIED, Reason.ASKED, "strange", None)
    assert jobs.take().data == 2


def test_a_task_that_another_session_holds_cannot_be_buried(bench, jobs):  # case 45
    jobs.put(1)
    task = jobs.take()
    with pytest.raises(NotOwner):
        bench.connect().tube("jobs").bury(1)
    assert task.ack().state == State.DONE


def test_burying_twice_changes_nothing(jobs):  # cases 46, 137
    jobs.put(1)
    jobs.bury(1, "first")
    events = Events(jobs)
    again = jobs.bury(1, "second")
    assert (again.id, again.state, again.error) == (1, State.BURIED, "first")
    assert events == []
    assert jobs.statistics().calls["bury"] == 1


def test_a_task_buried_by_failure_stays_so(jobs):
    jobs.put(1)
    jobs.take().fail("no")
    assert jobs.bury(1).reason == Reason.NO_ATTEMPTS


def test_a_delayed_task_buried_and_kicked_is_ready_at_once(jobs):  # case 47
    jobs.put(1, delay=100)
    assert jobs.bury(1).state == State.BURIED
    assert jobs.kick() == 1
    assert jobs.take().data == 1


def test_a_kept_task_cannot_be_buried(jobs):
    jobs.put(1)
    jobs.take().ack(keep=True)
    with pytest.raises(WrongState, match="done"):
        jobs.bury(1)


def test_a_buried_task_is_not_touched_by_the_ttr_of_its_last_run(jobs, clock):  # cases 70, 216
    jobs.put(1, ttr=0.2, ttl=1)
    jobs.take().bury()
    events = Events(jobs)
    clock.advance(0.4)
    assert (jobs.peek(1).state, events) == (State.BURIED, [])
    clock.advance(0.6)
    with pytest.raises(TaskNotFound):
        jobs.peek(1)
    assert events.names == ["ttl"]


def test_a_buried_task_without_ttl_stays_for_ever(jobs, clock):  # case 71
    jobs.put(1, ttr=1)
    jobs.take().bury()
    clock.advance(50 * 365 * 24 * 3600)
    assert jobs.peek(1).state == State.BURIED


@pytest.mark.parametrize("end", ["fail", "abort", "lost"])
def test_a_task_buried_by_failure_outlives_its_ttl(jobs, clock, end):
    jobs.put(1, ttl=10, ttr=5, max_attempts=1)
    task = jobs.take()
    if end == "lost":
        clock.advance(5)
    else:
        task.fail("no", abort=end == "abort")
    clock.advance(100)
    assert jobs.peek(1).state == State.BURIED


def test_an_exception_is_kept_as_text(jobs):
    jobs.put(1)
    assert jobs.take().bury(ValueError("boom")).error == "ValueError: boom"
