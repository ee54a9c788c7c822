"""ack: who may finish a task, and what is left of it."""

from __future__ import annotations

import os
import socket

import pytest
from tests.support.watching import at, refused

from penstock import LeaseLost, NotOwner, NotTaken, Reason, State, TaskNotFound, UsageError


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


@pytest.fixture
def other(bench, jobs):
    """The same tube, seen by another session."""
    return bench.connect().tube("jobs")


def by_task(jobs, task):
    return task.ack()


def by_id(jobs, task):
    return jobs.ack(task.id)


@pytest.mark.parametrize("ack", [by_task, by_id])
def test_an_acked_task_is_done_and_gone(jobs, clock, ack):  # case 36
    jobs.put("x")
    task = ack(jobs, jobs.take())
    assert (task.state, task.state.letter, task.reason) == (State.DONE, "-", Reason.SUCCESS)
    assert (task.data, task.done_at, task.deadline) == ("x", at(clock), None)
    with pytest.raises(TaskNotFound, match="id 1"):
        jobs.peek(1)


def waiting_task(jobs, state):
    jobs.put(1, delay=5 if state == "delayed" else None)
    if state == "buried":
        jobs.bury(1)
    return jobs.peek(1)


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
@pytest.mark.parametrize("verb", ["ack", "release", "fail"])
def test_a_task_nobody_holds_cannot_be_finished(jobs, state, verb):  # case 37
    before = waiting_task(jobs, state)
    with pytest.raises(NotTaken, match=f"task 1 is {state}"):
        getattr(jobs, verb)(1)
    after = jobs.peek(1)
    assert (after.state, after.attempt, after.expires_at) == (before.state, 0, before.expires_at)


@pytest.mark.parametrize("verb", ["ack", "release", "fail", "bury"])
def test_another_session_is_told_who_holds_the_task(jobs, other, verb):  # cases 45, 213, 348
    jobs.put(1)
    task = jobs.take()
    owner = f"{socket.gethostname()}:{os.getpid()}"
    with pytest.raises(NotOwner, match="held by") as caught:
        getattr(other, verb)(1)
    assert (caught.value.owner, owner in str(caught.value)) == (owner, True)
    assert task.ack().state == State.DONE


def test_the_owner_is_named_without_his_uuid(q, jobs, other):
    jobs.put(1)
    jobs.take()
    with pytest.raises(NotOwner) as caught:
        other.ack(1)
    assert q.identify() not in str(caught.value) + caught.value.owner


@pytest.mark.parametrize("verb", ["ack", "release", "bury", "fail", "peek", "delete"])
def test_a_missing_task_is_not_found_by_its_id(jobs, verb):  # cases 40, 213
    with pytest.raises(TaskNotFound, match="77"):
        getattr(jobs, verb)(77)


def test_the_task_object_of_another_session_has_no_right(jobs, other):
    jobs.put(1)
    jobs.take()
    with pytest.raises(NotOwner):
        other.peek(1).ack()
    assert jobs.ack(1).state == State.DONE


def test_a_finished_task_object_gives_the_same_answer_again(jobs):
    jobs.put(1)
    task = jobs.take()
    first = task.ack(result=7)
    again = task.ack(result=8)
    assert (first.id, again.state, again.result) == (1, State.DONE, 7)
    assert jobs.statistics().calls["ack"] == 1


@pytest.mark.parametrize("verb", ["ack", "release", "bury", "fail", "touch"])
def test_a_task_object_ends_its_lease_once(jobs, verb):
    jobs.put(1)
    task = jobs.take()
    if verb == "release":
        task.bury()
    else:
        task.release()
    with pytest.raises(LeaseLost):
        getattr(task, verb)(*([1] if verb == "touch" else []))
    assert jobs.statistics().calls["ack"] == jobs.statistics().calls["touch"] == 0


def test_a_result_is_readable_while_the_task_is_kept(jobs, clock):
    jobs.put(1)
    jobs.take().ack(result={"pages": [1, 2]}, keep=10)
    assert jobs.peek(1).result == {"pages": [1, 2]}
    assert jobs.peek(1).purge_at == at(clock, 10)
    clock.advance(10)
    with pytest.raises(TaskNotFound):
        jobs.peek(1)


@pytest.mark.parametrize("keep", [True, 5])
def test_a_kept_task_is_not_taken_again(q, keep):  # cases 199, 200
    jobs = q.create_tube("kept", keep=keep)
    jobs.put(1)
    jobs.take().ack()
    assert jobs.take() is None
    assert jobs.peek(1).state == State.DONE
    assert jobs.statistics().tasks["kept"] == 1


def test_ack_overrides_what_the_tube_keeps(q):
    jobs = q.create_tube("kept", keep=True)
    jobs.put(1)
    jobs.take().ack(keep=False)
    with pytest.raises(TaskNotFound):
        jobs.peek(1)


@pytest.mark.parametrize("keep", [-1, "yes", float("nan")])
def test_a_bad_keep_is_refused_and_the_lease_stays(jobs, keep):
    jobs.put(1)
    task = jobs.take()
    refused(keep, lambda: task.ack(keep=keep))
    assert task.ack().state == State.DONE


@pytest.mark.parametrize("result", [float("nan"), {1}, (1, 2), b"x", 1 << 64])
def test_a_result_that_is_no_data_is_refused_and_the_lease_stays(jobs, result):
    jobs.put(1)
    task = jobs.take()
    with pytest.raises(UsageError, match="data"):
        task.ack(result=result)
    assert jobs.peek(1).state == State.TAKEN


def test_ack_wants_no_columns_on_a_tube_that_is_no_table(jobs):
    jobs.put(1)
    task = jobs.take()
    with pytest.raises(UsageError, match="adopted"):
        task.ack(update={"a": 1})
    assert jobs.peek(1).state == State.TAKEN


# -- stale leases --------------------------------------------------------------------------------------


def gone(jobs, other):
    jobs.delete(1)


def waiting(jobs, other):
    jobs.snatch(1)


def buried(jobs, other):
    jobs.snatch(1)
    jobs.bury(1)


def taken(jobs, other):
    jobs.snatch(1)
    assert other.take().id == 1


def taken_here(jobs, other):
    jobs.snatch(1)
    assert jobs.take().id == 1


def finished(jobs, other):
    jobs.snatch(1)
    other.take().ack(keep=True)


AFTERS = [
    (gone, "gone"),
    (waiting, "waiting"),
    (buried, "waiting"),
    (taken, "taken"),
    (taken_here, "taken"),
    (finished, "finished"),
]
VERBS = {
    "ack": lambda task: task.ack(),
    "release": lambda task: task.release(),
    "bury": lambda task: task.bury(),
    "fail": lambda task: task.fail("no"),
    "abort": lambda task: task.fail("no", abort=True),
    "touch": lambda task: task.touch(5),
    "check": lambda task: task.touch(0),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("after", "now"), AFTERS)
def test_a_stale_task_object_is_told_what_became_of_the_task(jobs, other, verb, after, now):  # cases 54, 336
    jobs.put(1, ttr=60)
    task = jobs.take()
    after(jobs, other)
    calls = jobs.statistics().calls
    with pytest.raises(LeaseLost) as caught:
        VERBS[verb](task)
    assert caught.value.now == now
    assert jobs.statistics().calls == calls


@pytest.mark.parametrize("verb", VERBS)
def test_a_lease_is_over_at_its_deadline(jobs, clock, verb):
    jobs.put(1, ttr=5)
    task = jobs.take()
    clock.advance(5)
    with pytest.raises(LeaseLost) as caught:
        VERBS[verb](task)
    assert (caught.value.now, jobs.peek(1).state) == ("waiting", State.READY)


@pytest.mark.parametrize("verb", VERBS)
def test_a_lease_is_good_until_its_deadline(jobs, clock, verb):
    jobs.put(1, ttr=5)
    task = jobs.take()
    clock.advance(4.999999)
    assert VERBS[verb](task).id == 1
