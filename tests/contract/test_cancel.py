"""cancel: a task that nobody needs any more, also one that runs."""

from __future__ import annotations

import pytest

from penstock import LeaseLost, State, TaskNotFound, UsageError, WrongState
from penstock.testing import lose


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs", keep_failed=True, history=True)


def events(q, id=1):
    return [row.event for row in q.history() if row.task_id == id]


def end_of(tube, id=1):
    task = tube.peek(id)
    return task.state, task.reason


def test_cancel_by_key_ends_that_task_and_no_other(jobs):  # case 301
    jobs.put("x", key="k")
    jobs.put("y", key="other")
    assert jobs.cancel(key="k").reason == "cancelled"
    assert end_of(jobs) == (State.DONE, "cancelled")
    assert jobs.take().key == "other"


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
def test_a_task_nobody_holds_is_done_at_once(jobs, q, state):
    jobs.put("x")
    jobs.switch(1, state, delay=60 if state == "delayed" else None)
    assert jobs.cancel(1).state == State.DONE
    assert events(q)[-1] == "cancel"
    assert jobs.statistics().tasks["done"] == 1


def test_cancel_of_a_key_that_is_not_there_changes_nothing(jobs, q):  # case 303
    jobs.put("x", key="k")
    assert jobs.cancel(key="unknown") is None
    assert jobs.cancel(key="") is None
    jobs.cancel(key="k")
    assert jobs.cancel(key="k") is None
    assert events(q) == ["put", "cancel"]


def test_cancel_of_an_id_that_is_not_there_is_an_error(jobs):
    with pytest.raises(TaskNotFound):
        jobs.cancel(7)


def test_cancel_of_a_task_that_has_ended_is_an_error(jobs):
    jobs.put("x")
    jobs.take().ack(keep=True)
    with pytest.raises(WrongState):
        jobs.cancel(1)


def test_cancel_needs_an_id_or_a_key(jobs):
    jobs.put("x", key="k")
    with pytest.raises(UsageError):
        jobs.cancel()
    with pytest.raises(UsageError):
        jobs.cancel(1, key="k")
    assert end_of(jobs) == (State.READY, None)


def test_the_key_of_a_cancelled_task_is_free(jobs):
    jobs.put("x", key="k")
    jobs.cancel(key="k")
    assert jobs.put("y", key="k").outcome == "new"


def test_a_task_that_runs_is_asked_and_goes_on(jobs, q):
    jobs.put("x")
    task = jobs.take()
    asked = jobs.cancel(1)
    assert (asked.state, asked.cancel_asked) == (State.TAKEN, True)
    assert events(q) == ["put", "take"]
    assert task.ack().reason == "success"


def test_the_holder_is_told_at_the_next_keepalive(bench, jobs, clock):
    jobs.put("x")
    jobs.put("y")
    task, other = bench.connect(session_ttl=30).tube("jobs").take_many(2)
    jobs.cancel(1)
    assert task.cancel_asked is False
    clock.advance(10)
    assert (task.cancel_asked, other.cancel_asked) == (True, False)


def test_touch_tells_the_holder_too(jobs):
    jobs.put("x", ttr=60)
    task = jobs.take()
    jobs.cancel(1)
    assert task.touch(5).cancel_asked is True


def test_a_cancelled_task_that_is_acked_has_succeeded(jobs, q):
    jobs.put("x")
    task = jobs.take()
    jobs.cancel(1)
    task.ack(keep=True)
    assert end_of(jobs) == (State.DONE, "success")
    assert events(q) == ["put", "take", "ack"]


@pytest.mark.parametrize(
    ("end", "event"),
    [
        (lambda jobs, task, clock: task.release(), "release"),
        (lambda jobs, task, clock: task.release(delay=60), "release"),
        (lambda jobs, task, clock: task.fail("x"), "fail"),
        (lambda jobs, task, clock: task.fail("x", delay=9), "fail"),
        (lambda jobs, task, clock: task.fail("x", abort=True), "fail"),
        (lambda jobs, task, clock: task.bury(), "bury"),
        (lambda jobs, task, clock: jobs.snatch(1), "release"),
        (lambda jobs, task, clock: jobs.release_all(), "release"),
        (lambda jobs, task, clock: clock.advance(20), "ttr"),
    ],
    ids=["release", "release later", "fail", "fail later", "abort", "bury", "snatch", "release_all", "ttr"],
)
@pytest.mark.parametrize("options", [{}, {"ttl": 5}, {"max_attempts": 1}], ids=["plain", "expired", "exhausted"])
def test_every_other_end_of_an_asked_task_cancels_it(jobs, q, clock, end, event, options):
    jobs.put("x", ttr=20, **options)
    task = jobs.take()
    jobs.cancel(1)
    clock.advance(6)
    end(jobs, task, clock)
    assert end_of(jobs) == (State.DONE, "cancelled")
    assert events(q) == ["put", "take", event, "cancel"]
    assert jobs.statistics().tasks["kept"] == 1
    if event != "ttr":
        assert jobs.statistics().calls["ttl"] == 0


def test_the_end_of_the_session_cancels_an_asked_task(bench, jobs, q, clock):
    jobs.put_many(list("ab"), max_attempts=1)
    lost, closed = bench.connect(session_ttl=5), bench.connect()
    task = lost.tube("jobs").take()
    closed.tube("jobs").take()
    jobs.cancel(1)
    jobs.cancel(2)
    lose(lost)
    clock.advance(5)
    closed.close()
    for id in (1, 2):
        assert end_of(jobs, id) == (State.DONE, "cancelled")
        assert events(q, id) == ["put", "take", "release", "cancel"]
    with pytest.raises(LeaseLost):
        task.ack()


def test_a_repeating_task_that_was_asked_and_acked_goes_on(jobs):
    jobs.put("x", repeat=60)
    task = jobs.take()
    jobs.cancel(1)
    again = task.ack()
    assert (again.state, again.cancel_asked) == (State.DELAYED, False)


def test_a_cancelled_task_that_is_restarted_runs_without_the_old_wish(jobs):
    jobs.put("x")
    task = jobs.take()
    jobs.cancel(1)
    task.release()
    assert jobs.restart(1).cancel_asked is False
    assert jobs.take().release().state == State.READY


def test_a_cancelled_task_is_kept_as_failures_are(q):
    tube = q.create_tube("other", keep=True, keep_failed=False)
    tube.put("x")
    tube.cancel(1)
    with pytest.raises(TaskNotFound):
        tube.peek(1)
