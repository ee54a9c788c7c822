"""Attempts and what happens after a failure."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from penstock import Exponential, LeaseLost, State, UsageError


def delays(tube, clock, failures):
    """Fail a task again and again; how many seconds it waits after each failure."""
    found = []
    for _ in range(failures):
        task = tube.take()
        now = clock.now()
        task.fail("no route")
        wait = (task.ready_at - task.created_at).total_seconds() - (now - start_of(task)) / 1e6
        found.append(round(wait, 6))
        clock.advance(wait)
    return found


def start_of(task):
    return round(task.created_at.timestamp() * 1e6)


def end_of(task):
    return task.state, task.reason


def test_the_attempt_counts_when_the_task_is_taken(q):  # case 284
    jobs = q.create_tube("jobs", max_attempts=3)
    assert jobs.put("x").attempt == 0
    task = jobs.take()
    assert (task.attempt, jobs.peek(1).attempt, task.max_attempts) == (1, 1, 3)


def test_a_task_that_always_fails_is_tried_as_often_as_it_may(q):  # case 270
    jobs = q.create_tube("jobs", max_attempts=3)
    jobs.put("x")
    runs = 0
    while task := jobs.take():
        runs += 1
        task.fail("no route")
    assert runs == 3
    assert end_of(jobs.peek(1)) == (State.BURIED, "no_attempts")


def test_without_attempts_retry_or_delay_the_first_failure_buries(q):  # case 273
    jobs = q.create_tube("jobs", "fifo")
    jobs.put("x")
    assert end_of(jobs.take().fail("no route")) == (State.BURIED, "no_attempts")


def test_with_attempts_and_no_retry_a_failed_task_is_ready_at_once(q):
    jobs = q.create_tube("jobs", "fifo", max_attempts=2)
    jobs.put("x")
    assert end_of(jobs.take().fail("no route")) == (State.READY, None)
    assert jobs.take().attempt == 2


def test_with_retry_and_no_limit_a_task_is_tried_for_ever(q, clock):  # case 316
    jobs = q.create_tube("jobs", retry=1)
    jobs.put("x")
    assert delays(jobs, clock, 50) == [1.0] * 50
    assert jobs.peek(1).attempt == 50


def test_a_constant_delay_follows_every_failure(q, clock):  # case 274
    jobs = q.create_tube("jobs", retry=10)
    jobs.put("x")
    task = jobs.take().fail("no route")
    assert task.state == State.DELAYED
    assert task.ready_at - task.created_at == timedelta(seconds=10)
    clock.advance(9.999999)
    assert jobs.take() is None
    clock.advance(0.000001)
    assert jobs.take().attempt == 2


def test_progressive_delays_end_with_the_last(q, clock):  # cases 275, 276
    jobs = q.create_tube("jobs", retry=[60, 300], max_attempts=4)
    jobs.put("x")
    assert delays(jobs, clock, 3) == [60, 300, 300]
    assert end_of(jobs.take().fail("no route")) == (State.BURIED, "no_attempts")


def test_exponential_delays_grow_up_to_their_maximum(q, clock):
    jobs = q.create_tube("jobs", retry=Exponential(base=1, factor=2, max=10))
    jobs.put("x")
    assert delays(jobs, clock, 6) == [1, 2, 4, 8, 10, 10]


def test_exponential_delays_grow_from_one_second_to_an_hour_unless_told_otherwise(q, clock):
    jobs = q.create_tube("jobs", retry=Exponential())
    jobs.put("x")
    assert delays(jobs, clock, 14) == [2**n for n in range(12)] + [3600, 3600]


def test_exponential_delays_of_very_many_failures_do_not_overflow(q):
    assert Exponential(factor=10, max=60).seconds(100_000) == 60


def test_jitter_spreads_delays_to_both_sides(q):
    jobs = q.create_tube("jobs", retry=Exponential(base=100, jitter=0.5))
    jobs.put_many(range(40))
    tasks = [task.fail("no route") for task in jobs.take_many(40)]
    waits = [(task.ready_at - task.created_at).total_seconds() for task in tasks]
    assert all(50 <= wait <= 150 for wait in waits)
    assert min(waits) < 100 < max(waits)


def test_the_retry_policy_is_there_in_the_next_run(bench, q, clock):
    q.create_tube("jobs", retry=Exponential(base=3, factor=3, max=20)).put("x")
    jobs = bench.new_run().tube("jobs")
    assert delays(jobs, clock, 3) == [3, 9, 20]


@pytest.mark.parametrize("retry", [-1, "x", [], [1, -1], [1, "x"], float("nan"), {"base": 1}])
def test_a_retry_that_is_no_policy_is_refused(q, retry):
    with pytest.raises(UsageError, match="retry"):
        q.create_tube("jobs", retry=retry)


@pytest.mark.parametrize("options", [{"jitter": 2}, {"jitter": -0.1}, {"base": -1}, {"max": None}, {"factor": "x"}])
def test_an_exponential_that_makes_no_sense_is_refused(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        Exponential(**options)


def test_a_kind_without_delays_has_no_retry_delay(q):
    with pytest.raises(UsageError, match="retry"):
        q.create_tube("jobs", "fifo", retry=5)
    jobs = q.create_tube("jobs", "fifo", max_attempts=3)
    jobs.put("x")
    task = jobs.take()
    with pytest.raises(UsageError, match="delay"):
        task.fail("no route", delay=5)
    assert task.fail("no route").state == State.READY


def test_the_caller_may_choose_the_delay(q, clock):  # case 334
    jobs = q.create_tube("jobs", retry=100)
    jobs.put("x")
    assert jobs.take().fail("no route", delay=0).state == State.READY
    task = jobs.take().fail("no route", delay=7)
    assert task.ready_at - task.created_at == timedelta(seconds=7)
    clock.advance(7)
    moment = task.created_at + timedelta(seconds=20)
    assert jobs.take().fail("no route", delay=moment).ready_at == moment


def test_a_delay_alone_is_enough_for_another_attempt(q):
    jobs = q.create_tube("jobs")
    jobs.put("x")
    assert jobs.take().fail("no route", delay=5).state == State.DELAYED


def test_a_delay_does_not_make_up_for_missing_attempts(q):
    jobs = q.create_tube("jobs", max_attempts=1)
    jobs.put("x")
    assert end_of(jobs.take().fail("no route", delay=5)) == (State.BURIED, "no_attempts")


def test_release_and_kick_do_not_use_up_delays(q, clock):
    jobs = q.create_tube("jobs", retry=[1, 2, 3])
    jobs.put("x")
    assert delays(jobs, clock, 1) == [1]
    jobs.take().release()
    jobs.take().bury()
    jobs.kick()
    assert delays(jobs, clock, 2) == [2, 3]


def test_abort_buries_whatever_attempts_are_left(q):  # case 271
    jobs = q.create_tube("jobs", max_attempts=9, retry=1)
    jobs.put_many(list("ab"))
    task = jobs.take().fail("bad address", abort=True)
    assert end_of(task) == (State.BURIED, "aborted")
    assert jobs.peek(1).error == "bad address"
    assert end_of(jobs.take().fail(None, abort="unknown_handler")) == (State.BURIED, "unknown_handler")


def test_an_abort_reason_that_is_none_is_refused(q):
    jobs = q.create_tube("jobs")
    jobs.put("x")
    task = jobs.take()
    with pytest.raises(UsageError, match="abort"):
        task.fail("x", abort="asked")
    assert jobs.peek(1).state == State.TAKEN


def test_errors_are_remembered_in_their_order(q):  # case 277
    jobs = q.create_tube("jobs", max_attempts=3, retry=0)
    jobs.put("x")
    jobs.take().fail("first")
    jobs.take().fail(ValueError("second"))
    task = jobs.peek(1)
    assert task.errors[0] == "first"
    assert "ValueError: second" in task.errors[1]
    assert task.error == task.errors[-1]
    jobs.take().ack(keep=True)
    assert len(jobs.peek(1).errors) == 2


def test_only_the_last_errors_are_remembered(q):
    jobs = q.create_tube("jobs", retry=0)
    jobs.put("x")
    for n in range(25):
        jobs.take().fail(f"error {n}")
    assert jobs.peek(1).errors == [f"error {n}" for n in range(5, 25)]


def test_the_last_attempt_knows_that_it_is(q):  # case 279
    jobs = q.create_tube("jobs", max_attempts=3)
    jobs.put("x")
    seen = []
    while task := jobs.take():
        seen.append(task.last_attempt)
        task.fail("no route")
    assert seen == [False, False, True]
    jobs.put("y", max_attempts=1)
    assert jobs.take().last_attempt is True
    endless = q.create_tube("endless")
    endless.put("x")
    assert endless.take().last_attempt is False


def test_a_task_may_have_its_own_number_of_attempts(q):  # case 267
    jobs = q.create_tube("jobs", max_attempts=5)
    assert jobs.put("x", max_attempts=1).max_attempts == 1
    assert jobs.put("y", pri=1).max_attempts == 5
    assert end_of(jobs.take().fail("x")) == (State.BURIED, "no_attempts")


@pytest.mark.parametrize("number", [0, -1, 1.5, "3", True])
def test_a_number_of_attempts_that_is_none_is_refused(q, number):
    with pytest.raises(UsageError, match="max_attempts"):
        q.create_tube("jobs", max_attempts=number)
    jobs = q.create_tube("jobs")
    with pytest.raises(UsageError, match="max_attempts"):
        jobs.put("x", max_attempts=number)


def test_release_keeps_the_count_and_refund_takes_it_back(q):  # case 311
    jobs = q.create_tube("jobs", max_attempts=2)
    jobs.put("x")
    assert jobs.take().release().attempt == 1
    assert jobs.take().release(refund=True).attempt == 1
    task = jobs.take()
    assert task.attempt == 2
    assert task.release().state == State.READY, "release never buries"
    assert jobs.take().attempt == 3


def test_a_lost_attempt_gives_the_task_back_until_there_are_none_left(q, clock):  # cases 288, 332
    jobs = q.create_tube("jobs", max_attempts=2, ttr=5, retry=60)
    jobs.put("x")
    jobs.take()
    clock.advance(5)
    assert end_of(jobs.peek(1)) == (State.READY, None)
    jobs.take()
    clock.advance(5)
    assert end_of(jobs.peek(1)) == (State.BURIED, "lost")
    assert jobs.statistics().calls["ttr"] == 2


def test_a_lost_repeating_task_comes_again(q, clock):  # case 289
    jobs = q.create_tube("jobs", ttr=5)
    jobs.put("x", repeat=60)
    jobs.take()
    clock.advance(5)
    assert jobs.take().attempt == 2


def test_an_exhausted_task_that_is_kicked_gets_one_more_run(q, clock):
    jobs = q.create_tube("jobs", max_attempts=2, retry=[5])
    jobs.put("x")
    clock.advance(0)
    first = jobs.take()
    clock.advance(1)
    failed = first.fail("no route")
    assert failed.ready_at - failed.created_at == timedelta(seconds=6)
    clock.advance(5)
    second = jobs.take()
    clock.advance(1)
    assert end_of(second.fail("no route")) == (State.BURIED, "no_attempts")
    jobs.kick()
    third = jobs.take()
    assert third.attempt == 3
    assert end_of(third.fail("no route")) == (State.BURIED, "no_attempts")
    assert jobs.add_retries(2) == 1
    assert jobs.peek(1).max_attempts == 5


def test_a_late_answer_is_rejected_while_another_attempt_runs(bench, q, clock):  # cases 290, 335, 336
    jobs = q.create_tube("jobs", ttr=5)
    jobs.put("x")
    late = jobs.take()
    clock.advance(5)
    other = bench.connect().tube("jobs").take()
    with pytest.raises(LeaseLost) as error:
        late.ack()
    assert error.value.now == "taken"
    with pytest.raises(LeaseLost):
        late.touch(5)
    assert other.ack().reason == "success"
    with pytest.raises(LeaseLost) as error:
        late.fail("x")
    assert error.value.now == "gone"


def test_a_finished_task_never_comes_again(q, clock):  # cases 315, 333
    jobs = q.create_tube("jobs", ttr=5, retry=1)
    jobs.put({"n": 1})
    task = jobs.take()
    assert task.data == {"n": 1}
    task.ack()
    clock.advance(1000)
    assert jobs.take() is None


def test_leases_that_are_over_leave_nothing_behind(q, clock):  # cases 35, 338
    jobs = q.create_tube("jobs", ttr=5)
    jobs.put_many(range(5))
    jobs.take_many(5)
    clock.advance(5)
    assert [(task.state, task.deadline, task.token) for task in jobs.tasks()] == [(State.READY, None, None)] * 5


def test_a_retry_that_comes_too_late_for_the_ttl_expires(q, clock):
    jobs = q.create_tube("jobs", retry=10, keep_failed=True)
    jobs.put("x", ttl=5)
    task = jobs.take().fail("no route")
    assert task.state == State.DELAYED
    clock.advance(5)
    task = jobs.peek(1)
    assert end_of(task) == (State.DONE, "expired")
    assert task.done_at - task.created_at == timedelta(seconds=5)


def test_two_sessions_share_the_work_and_each_task_runs_once(bench, q):  # cases 260, 286
    ids = [task.id for task in q.create_tube("jobs").put_many(range(100))]
    tubes = [bench.connect().tube("jobs") for _ in range(2)]
    done = []
    while tasks := [task for tube in tubes for task in tube.take_many(3)]:
        done += [task.ack().id for task in tasks]
    assert done == ids


def test_a_tube_is_limited_over_all_sessions(bench, q):  # case 287, its part without workers
    q.create_tube("jobs", concurrency=1).put_many(range(3))
    first, second = (bench.connect().tube("jobs") for _ in range(2))
    task = first.take()
    assert second.take() is None
    task.fail("x")
    assert second.take().data == 1
    assert first.take_many(5) == []


def test_a_waiting_taker_gets_a_delayed_task_when_it_is_due_and_not_later(q, clock, waiter):  # cases 266, 346
    jobs = q.create_tube("jobs")
    jobs.put("x", delay=5)
    take = waiter(q, lambda: jobs.take(timeout=60))
    clock.advance(4.999999)
    assert take.running
    clock.advance(0.000001)
    assert take.result().data == "x"


def test_delayed_tasks_that_are_due_come_by_priority_and_age(q, clock):  # case 285, native form
    jobs = q.create_tube("jobs")
    jobs.put("late", delay=3)
    jobs.put("early", delay=1)
    jobs.put("urgent", delay=5, pri=-1)
    clock.advance(5)
    assert [task.data for task in jobs.take_many(3)] == ["urgent", "late", "early"]


# -- ttl derived from attempts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "ttl"),
    [
        ({"ttr": 3, "max_attempts": 3, "retry": 1}, 11),  # case 293
        ({"ttr": 7, "max_attempts": 1}, 7),  # case 295
        ({"ttr": 10, "max_attempts": 4, "retry": [60, 300]}, 700),
        ({"ttr": 1, "max_attempts": 4, "retry": Exponential(base=2, max=5, jitter=1)}, 15),
    ],
)
def test_a_derived_ttl_is_long_enough_for_every_attempt(q, options, ttl):
    jobs = q.create_tube("jobs", ttl="derived", **options)
    task = jobs.put("x", delay=100)
    assert task.ttl == ttl
    assert task.expires_at - task.ready_at == timedelta(seconds=ttl)


def test_a_derived_ttl_goes_by_the_options_of_the_task(q):
    jobs = q.create_tube("jobs", ttr=3, max_attempts=3, retry=1)
    assert jobs.put("x", ttl="derived").ttl == 11
    assert jobs.put("x", ttl="derived", ttr=5, max_attempts=2).ttl == 11
    assert jobs.put("x").ttl is None


def test_a_derived_ttl_needs_ttr_and_attempts(q):
    for options in ({}, {"ttr": 5}, {"max_attempts": 3}):
        with pytest.raises(UsageError, match="derived"):
            q.create_tube("jobs", ttl="derived", **options)
    jobs = q.create_tube("jobs", ttr=5)
    with pytest.raises(UsageError, match="derived"):
        jobs.put("x", ttl="derived")
    jobs.alter(max_attempts=2, ttl="derived")
    assert jobs.put("x").ttl == 10
    with pytest.raises(UsageError, match="derived"):
        jobs.alter(max_attempts=None)


def test_delay_and_ttl_add_up(q, clock):  # cases 296, 297, 300, 319
    jobs = q.create_tube("jobs", keep_failed=True)
    jobs.put("x", delay=100, ttl=50)
    clock.advance(99.999999)
    assert jobs.take() is None
    clock.advance(50)
    assert jobs.peek(1).state == State.READY
    clock.advance(0.000001)
    assert jobs.take() is None
    assert end_of(jobs.peek(1)) == (State.DONE, "expired")


# -- repeating tasks -------------------------------------------------------------------------------------


def test_a_repeating_task_waits_for_its_next_turn_after_each_ack(q, clock):  # case 280
    jobs = q.create_tube("jobs", max_attempts=2, keep=True)
    jobs.put("x", repeat=60)
    for _ in range(3):
        task = jobs.take().ack(result="ok")
        assert (task.state, task.attempt) == (State.DELAYED, 0)
        clock.advance(59.999999)
        assert jobs.take() is None
        clock.advance(0.000001)
    assert jobs.statistics().tasks["done"] == 0


def test_a_repeating_task_that_fails_waits_for_the_retry_delay(q):  # case 282
    jobs = q.create_tube("jobs", retry=7)
    jobs.put("x", repeat=60)
    task = jobs.take().fail("no route")
    assert task.ready_at - task.created_at == timedelta(seconds=7)


def test_a_repeating_task_does_not_expire(q, clock):  # case 299
    jobs = q.create_tube("jobs", ttl=5)
    assert jobs.put("x", repeat=60).expires_at is None
    clock.advance(1000)
    assert jobs.take().ack().state == State.DELAYED


def test_a_repeating_task_ends_when_it_is_cancelled_or_deleted(q):
    jobs = q.create_tube("jobs")
    jobs.put("x", repeat=60)
    jobs.put("y", repeat=60)
    assert jobs.take().ack().state == State.DELAYED
    assert jobs.cancel(1).reason == "cancelled"
    assert jobs.delete(2).reason == "deleted"
    assert jobs.statistics().tasks["total"] == 0


@pytest.mark.parametrize("repeat", [0, -1, "x", float("nan")])
def test_a_repeat_that_is_no_time_is_refused(q, repeat):
    with pytest.raises(UsageError, match="repeat"):
        q.create_tube("jobs").put("x", repeat=repeat)


# -- with task -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("no route"), SystemExit(3)])
def test_an_exception_inside_with_fails_the_task_and_goes_on(q, error):  # case 278, its part without workers
    jobs = q.create_tube("jobs", retry=5)
    jobs.put("x")
    with pytest.raises(type(error)), jobs.take():
        raise error
    task = jobs.peek(1)
    assert (task.state, task.attempt) == (State.DELAYED, 1)
    assert type(error).__name__ in task.error
    assert "test_retry.py" in task.error, "the trace tells where"


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interrupt_inside_with_gives_the_task_back_as_if_it_had_not_been_tried(q, error):
    jobs = q.create_tube("jobs", retry=5)
    jobs.put("x")
    with pytest.raises(error), jobs.take():
        raise error
    task = jobs.peek(1)
    assert (task.state, task.attempt, task.error) == (State.READY, 0, None)


def test_with_leaves_a_task_alone_that_was_ended_inside(q):
    jobs = q.create_tube("jobs")
    jobs.put("x")
    with jobs.take() as task:
        task.bury("look at this")
    assert end_of(jobs.peek(1)) == (State.BURIED, "asked")


def test_with_acks_a_task_at_the_end(q):
    jobs = q.create_tube("jobs", keep=True)
    jobs.put("x")
    with jobs.take():
        assert jobs.peek(1).state == State.TAKEN
    assert end_of(jobs.peek(1)) == (State.DONE, "success")
