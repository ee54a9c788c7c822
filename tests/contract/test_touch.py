"""touch: more time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.watching import Events, at, refused

from penstock import LeaseLost, NotOwner, State, TaskNotFound, UsageError

YEARS = 365 * 24 * 3600


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


@pytest.fixture
def task(jobs):
    """A taken task with 10 seconds to run and 100 to live."""
    jobs.put(1, ttl=100, ttr=10)
    return jobs.take()


@pytest.mark.parametrize("seconds", [5, 5.0, timedelta(seconds=5)])
def test_touch_moves_the_deadline_and_the_end_of_life(task, clock, seconds):  # case 78
    task.touch(seconds)
    assert (task.deadline, task.expires_at, task.ttr) == (at(clock, 15), at(clock, 105), 10)


def test_touch_does_not_change_the_ttr_of_later_runs(jobs, task, clock):  # case 78
    task.touch(5)
    task.release()
    assert jobs.take().deadline == at(clock, 10)


def test_touch_adds_up(task, clock):
    task.touch(5)
    clock.advance(12)
    task.touch(5)
    assert task.deadline == at(clock, 8)


def test_touching_before_every_deadline_keeps_the_lease(jobs, clock):  # case 226
    jobs.put(1, ttr=0.25)
    task = jobs.take()
    for _ in range(4):
        clock.advance(0.249)
        task.touch(0.25)
    assert task.ack().state == State.DONE


def test_touch_by_nothing_only_checks(jobs, task, clock):  # case 79
    events = Events(jobs)
    task.touch(0)
    assert (task.deadline, task.expires_at, events) == (at(clock, 10), at(clock, 100), [])
    jobs.snatch(1)
    with pytest.raises(LeaseLost):
        task.touch(0)


@pytest.mark.parametrize("seconds", [-1, float("nan"), "5", None, True])
def test_a_bad_time_is_refused(jobs, task, clock, seconds):  # cases 80, 228
    refused(seconds, lambda: task.touch(seconds))
    refused(seconds, lambda: jobs.touch(1, seconds))
    assert jobs.peek(1).deadline == at(clock, 10)


@pytest.mark.parametrize("seconds", [0, 5])
def test_only_the_holder_can_touch(bench, task, seconds):  # cases 81, 82, 231
    with pytest.raises(NotOwner):
        bench.connect().tube("jobs").touch(1, seconds)


def test_a_missing_task_cannot_be_touched(jobs):  # case 231
    with pytest.raises(TaskNotFound, match="77"):
        jobs.touch(77, 5)


@pytest.mark.parametrize("kind", ["fifo", "utube"])
def test_a_kind_without_ttr_has_no_touch(q, kind):  # case 83
    jobs = q.create_tube("plain", kind)
    jobs.put(1)
    task = jobs.take()
    for call in (lambda: task.touch(1), lambda: jobs.touch(1, 1)):
        with pytest.raises(UsageError, match="'touch'"):
            call()


@pytest.mark.parametrize("seconds", [200 * YEARS, float("inf"), 100 * YEARS])
def test_a_touch_for_ever_takes_every_end_away(jobs, task, clock, seconds):  # case 84
    task.touch(seconds)
    assert (task.deadline, task.expires_at) == (None, None)
    clock.advance(1000)
    assert task.ack().state == State.DONE


def test_one_touch_counts_once(jobs, task):  # case 85
    events = Events(jobs)
    task.touch(5)
    assert jobs.statistics().calls["touch"] == 1
    assert events == [("touch", State.TAKEN, None)]


def test_a_ready_task_lives_longer(jobs, clock):  # case 227
    jobs.put(1, ttl=5)
    for _ in range(3):
        clock.advance(4)
        jobs.touch(1, 4)
    clock.advance(4.999999)
    assert jobs.peek(1).state == State.READY
    clock.advance(0.000001)
    with pytest.raises(TaskNotFound):
        jobs.peek(1)


def test_a_task_with_no_end_gets_none_by_touch(jobs, clock):  # case 229
    jobs.put(1)
    events = Events(jobs)
    assert jobs.touch(1, 5).state == State.READY
    task = jobs.take()
    task.touch(5)
    assert (task.deadline, task.expires_at) == (None, None)
    assert (events.names, jobs.statistics().calls["touch"]) == (["take"], 0)
    clock.advance(1000)
    assert task.ack().state == State.DONE


@pytest.mark.parametrize("state", ["delayed", "buried", "done"])
def test_a_task_at_rest_is_left_alone(jobs, clock, state):  # case 230
    jobs.put(1, ttl=100, delay=9 if state == "delayed" else None)
    if state == "buried":
        jobs.bury(1)
    elif state == "done":
        jobs.take().ack(keep=True)
    before, events = jobs.peek(1), Events(jobs)
    after = jobs.touch(1, 5)
    assert (after.state, after.expires_at) == (state, before.expires_at)
    assert events == []


def test_touch_moves_whichever_end_there_is(jobs, clock):  # case 229
    jobs.put(1, ttr=10)
    assert jobs.take().touch(5).deadline == at(clock, 15)
    jobs.put(2, ttl=10)
    assert jobs.take().touch(5).expires_at == at(clock, 15)
    assert jobs.statistics().calls["touch"] == 2


def test_touch_by_id_is_for_the_holder(jobs, task, clock):
    assert jobs.touch(1, 5).deadline == at(clock, 15)
