"""xqueue's take, ack, release, bury and kick as ordinary tubes have them. (conformance 2.K, 2.L)"""

from __future__ import annotations

import pytest

from penstock import LeaseLost, NotOwner, NotTaken, State, TaskNotFound, UsageError


def test_take_without_arguments_does_not_wait(q):  # case 192
    assert q.create_tube("jobs").take() is None


def test_an_option_of_a_missing_feature_is_refused_by_take(q):  # case 194
    jobs = q.create_tube("jobs", "fifo")
    jobs.put(1)
    for option in ({"ttr": 1}, {"lane": "a"}):
        with pytest.raises(UsageError, match="needs the feature"):
            jobs.take(**option)
    with pytest.raises(UsageError, match="lane must be text"):
        q.create_tube("lanes").take(lane=["a"])
    assert jobs.statistics().tasks["ready"] == 1


def test_after_the_default_ttr_the_task_is_ready_and_its_holder_is_told(q, clock):  # case 196
    jobs = q.create_tube("jobs", ttr=0.25)
    jobs.put(1)
    task = jobs.take()
    clock.advance(0.25)
    assert jobs.peek(1).state == State.READY
    with pytest.raises(NotTaken):
        jobs.ack(1)
    with pytest.raises(LeaseLost):
        task.ack()


def test_a_kept_task_stays_and_is_not_given_out_again(q, clock):  # case 199  # case 200
    jobs = q.create_tube("jobs", keep=True, ttr=5)
    jobs.put(1)
    jobs.take().ack()
    clock.advance(1e6)
    assert jobs.peek(1).state == State.DONE
    assert jobs.take() is None
    assert jobs.statistics().tasks["kept"] == 1


def test_a_task_kept_for_a_while_goes_after_it(q, clock):  # case 201
    jobs = q.create_tube("jobs", keep=5)
    jobs.put(1)
    jobs.take().ack()
    clock.advance(4.999999)
    assert jobs.peek(1).state == State.DONE
    clock.advance(0.000001)
    with pytest.raises(TaskNotFound):
        jobs.peek(1)


def test_ack_says_how_long_to_keep(q, clock):  # case 202
    jobs = q.create_tube("jobs", keep=True)
    jobs.put(1)
    jobs.take().ack(keep=0.5)
    assert (jobs.peek(1).state, jobs.take()) == (State.DONE, None)
    clock.advance(0.5)
    with pytest.raises(TaskNotFound):
        jobs.peek(1)


def test_no_timer_of_the_lease_touches_a_buried_task(q, clock):  # case 216
    jobs = q.create_tube("jobs", ttr=5)
    jobs.put(1)
    jobs.take().bury()
    clock.advance(1e6)
    assert jobs.peek(1).state == State.BURIED
    assert jobs.statistics().calls["ttr"] == 0


@pytest.mark.parametrize("verb", ["ack", "release", "bury", "fail"])
def test_who_does_not_hold_a_task_is_told_why(bench, verb):  # case 213
    mine, other = bench.connect(), bench.connect()
    jobs = mine.create_tube("jobs")
    with pytest.raises(TaskNotFound):
        getattr(jobs, verb)(9)
    jobs.put(1)
    if verb != "bury":  # anybody may bury a task that nobody holds
        with pytest.raises(NotTaken):
            getattr(jobs, verb)(1)
    other.tube("jobs").take()
    with pytest.raises(NotOwner) as caught:
        getattr(jobs, verb)(1)
    assert caught.value.owner
    assert jobs.peek(1).state == State.TAKEN


def test_kick_counts_where_ids_are_numbers(q):  # case 223
    jobs = q.create_tube("jobs")
    for _ in range(3):
        jobs.bury(jobs.put(1).id)
    assert jobs.kick(2) == 2
    assert [task.id for task in jobs.tasks("ready")] == [1, 2]


@pytest.mark.parametrize("mode", ["auto", "time64", "uuid"])
def test_the_id_of_a_task_is_all_a_verb_needs(q, mode):  # case 225
    jobs = q.create_tube("jobs", id=mode)
    task = jobs.put("x")
    assert jobs.peek(task.id).data == "x"
    assert jobs.ack(jobs.take().id).id == task.id
    for wrong in (None, 1.5, b"x", {}, ""):
        with pytest.raises(UsageError, match="id must be"):
            jobs.peek(wrong)


@pytest.mark.parametrize("seconds", ["5", -1, None, float("nan")])
def test_touch_needs_seconds(q, seconds):  # case 228
    jobs = q.create_tube("jobs")
    jobs.put(1, ttr=5)
    task = jobs.take()
    with pytest.raises(UsageError, match="seconds"):
        task.touch(seconds)
    assert jobs.peek(1).deadline == task.deadline


def test_truncate_leaves_no_task_no_lease_and_no_lane(q):  # case 249
    jobs = q.create_tube("jobs", "utube")
    jobs.put_many(range(4), lane="a")
    task = jobs.take()
    assert jobs.truncate() == 4
    assert jobs.statistics().tasks == {
        "ready": 0, "taken": 0, "delayed": 0, "buried": 0, "kept": 0, "done": 0, "total": 0,
    }  # fmt: skip
    assert jobs.lanes() == []
    with pytest.raises(LeaseLost):
        task.ack()
    assert jobs.put(5, lane="a").id == 5
    assert jobs.take().id == 5


def test_what_a_lost_run_held_is_ready_before_anything_is_given_out(bench):  # case 251
    q = bench.connect()
    q.create_tube("jobs", "fifo").put_many(range(3))
    q.tube("jobs").take_many(2)
    jobs = bench.new_run().tube("jobs")
    assert jobs.statistics().tasks["taken"] == 0
    assert [task.data for task in jobs.take_many(9)] == [0, 1, 2]


def test_more_tasks_than_one_pass_handles_all_wake(q, clock):  # case 255
    jobs = q.create_tube("jobs")
    jobs.put_many(range(1500), delay=5)
    clock.advance(5)
    assert jobs.statistics().tasks["ready"] == 1500
    assert jobs.statistics().calls["delay"] == 1500
    assert jobs.take().data == 0


def test_a_delayed_task_is_served_by_whoever_opens_the_store_next(bench, clock):  # case 256
    bench.connect().create_tube("jobs").put("later", delay=5)
    jobs = bench.new_run().tube("jobs")
    assert jobs.take() is None
    clock.advance(5)
    assert jobs.take().data == "later"
