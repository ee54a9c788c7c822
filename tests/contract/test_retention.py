"""What is kept of tasks that ended, and how they come back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import DuplicateKey, LeaseLost, NotTaken, State, TaskNotFound, UsageError, WrongState


def end_of(task):
    return task.state, task.reason


def is_gone(tube, id=1):
    try:
        tube.peek(id)
    except TaskNotFound:
        return True
    return False


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs", keep=True)


# -- keep ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fifo", "utube", "standard"])
def test_nothing_is_kept_unless_asked_for(q, kind):  # case 36
    tube = q.create_tube("jobs", kind)
    tube.put("x")
    assert end_of(tube.take().ack()) == (State.DONE, "success")
    assert is_gone(tube)


@pytest.mark.parametrize("kind", ["fifo", "utube", "standard"])
def test_a_kept_task_stays_and_is_not_takeable(q, clock, kind):  # cases 199, 200
    tube = q.create_tube("jobs", kind, keep=True)
    tube.put("x")
    tube.take().ack(result="ok")
    clock.advance(1_000_000)
    task = tube.peek(1)
    assert (task.state, task.reason, task.result, task.purge_at) == (State.DONE, "success", "ok", None)
    assert tube.take() is None


def test_a_task_may_be_kept_for_a_time(q, clock):  # cases 201, 309
    tube = q.create_tube("jobs", keep=timedelta(days=7), keep_failed=True)
    tube.put("x", ttr=5)
    tube.put("y", ttl=1)
    task = tube.take().ack()
    assert task.purge_at - task.done_at == timedelta(days=7)
    clock.advance(timedelta(days=7) - timedelta(microseconds=1))
    assert not is_gone(tube, 1)
    clock.advance(timedelta(microseconds=1))
    assert is_gone(tube, 1)
    assert end_of(tube.peek(2)) == (State.DONE, "expired")


def test_ack_may_keep_otherwise_than_the_tube(q, clock):  # cases 202, 203
    tube = q.create_tube("jobs")
    tube.put_many(list("abc"))
    tube.take().ack(keep=0.5)
    tube.take().ack(keep=True)
    tube.take().ack(keep=False)
    assert [task.id for task in tube.tasks()] == [1, 2]
    clock.advance(0.5)
    assert [task.id for task in tube.tasks()] == [2]


def test_put_may_keep_otherwise_than_the_tube(q):
    tube = q.create_tube("jobs", keep=True)
    tube.put("x", keep=False)
    tube.put("y")
    tube.take().ack()
    tube.take().ack()
    assert [task.id for task in tube.tasks()] == [2]
    tube.put("z", keep=False)
    tube.take().ack(keep=True)
    assert [task.id for task in tube.tasks()] == [2, 3]


def test_a_task_kept_until_now_is_gone_from_the_moment_it_is_due(q, clock):
    tube = q.create_tube("jobs", keep=5, id="required")
    tube.put("x", id="a", put_id="p")
    tube.take().ack()
    clock.advance(5)
    assert tube.put("y", id="a", put_id="p").outcome == "new"


@pytest.mark.parametrize("keep", [-1, "x", None, float("nan")])
def test_a_keep_that_is_no_time_is_refused(q, keep):
    with pytest.raises(UsageError, match="keep"):
        q.create_tube("jobs", keep=keep)


@pytest.mark.parametrize(("options", "kept"), [
    ({}, False),
    ({"keep": True}, True),
    ({"keep": True, "keep_failed": False}, False),
    ({"keep_failed": True}, True),
    ({"keep": False, "keep_failed": 60}, True),
])  # fmt: skip
@pytest.mark.parametrize("end", ["expired", "cancelled"])
def test_failures_are_kept_by_an_option_of_their_own(q, clock, options, kept, end):
    tube = q.create_tube("jobs", **options)
    tube.put("x", ttl=5)
    if end == "cancelled":
        tube.cancel(1)
    else:
        clock.advance(5)
    assert is_gone(tube) is not kept
    if kept:
        assert end_of(tube.peek(1)) == (State.DONE, end)


def test_what_is_deleted_is_never_kept(jobs):  # case 224
    jobs.put_many(list("abc"))
    jobs.take().ack()
    for id in (1, 2, 3):
        assert jobs.delete(id).reason == "deleted"
    assert jobs.tasks() == []


def test_the_key_of_a_kept_task_is_free(jobs):  # case 263
    jobs.put("x", key="k")
    jobs.take().ack()
    assert jobs.put("y", key="k").outcome == "new"
    with pytest.raises(DuplicateKey):
        jobs.put("z", key="k")


def test_keys_belong_to_their_tube_and_an_empty_one_is_none(q):  # cases 264, 265
    a, b = q.create_tube("a"), q.create_tube("b")
    a.put("x", key="k")
    assert b.put("x", key="k").outcome == "new"
    assert a.put("y", key="").key is None
    assert a.put("z", key="").outcome == "new"


# -- restart ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["delayed", "buried", "done"])
def test_restart_begins_anew(q, clock, state):
    tube = q.create_tube("jobs", keep_failed=True, max_attempts=2, retry=[1, 9])
    tube.put("x", ttl=100)
    tube.take().fail("no route", delay=0)
    tube.switch(1, state, delay=50 if state == "delayed" else None)
    clock.advance(10)
    task = tube.restart(1)
    assert (task.state, task.attempt, task.reason, task.done_at) == (State.READY, 0, None, None)
    assert task.expires_at - task.created_at == timedelta(seconds=110)
    failed = tube.take().fail("no route")
    assert failed.ready_at - failed.created_at == timedelta(seconds=11), "the first delay again"


def test_restart_with_a_delay_moves_the_life_on(q, clock):
    tube = q.create_tube("jobs", keep=True)
    tube.put("x", ttl=5)
    clock.advance(60)
    assert end_of(tube.peek(1)) == (State.DONE, "expired")
    task = tube.restart(1, delay=10)
    assert task.state == State.DELAYED
    assert task.ready_at - task.created_at == timedelta(seconds=70)
    assert task.expires_at - task.created_at == timedelta(seconds=75)
    clock.advance(10)
    assert tube.take().attempt == 1


def test_restart_goes_back_to_the_old_place(jobs):
    jobs.put_many(list("abc"))
    jobs.take().ack()
    jobs.restart(1)
    assert [task.id for task in jobs.take_many(3)] == [1, 2, 3]


def test_a_kept_task_does_not_come_back_while_a_live_one_has_its_key(jobs):
    jobs.put("x", key="k")
    jobs.take().ack()
    jobs.put("y", key="k")
    with pytest.raises(DuplicateKey):
        jobs.restart(1)
    assert end_of(jobs.peek(1)) == (State.DONE, "success")
    jobs.take().ack()
    assert jobs.restart(1).state == State.READY
    with pytest.raises(DuplicateKey):
        jobs.put("z", key="k")


@pytest.mark.parametrize("state", ["ready", "buried", "delayed"])
def test_no_kept_task_is_switched_back_while_a_live_one_has_its_key(jobs, state):
    jobs.put("x", key="k")
    jobs.take().ack()
    jobs.put("y", key="k")
    with pytest.raises(DuplicateKey):
        jobs.switch(1, state, delay=5 if state == "delayed" else None)
    assert end_of(jobs.peek(1)) == (State.DONE, "success")


def test_two_kept_tasks_of_one_key_do_not_both_come_back(q, clock):
    tube = q.create_tube("jobs", keep_failed=True)
    for _ in range(2):
        tube.put("x", key="k", ttl=5)
        clock.advance(5)
    assert [task.state for task in tube.tasks()] == [State.DONE, State.DONE]
    assert tube.add_retries(1) == 1
    assert sorted(task.state for task in tube.tasks()) == ["done", "ready"]


# -- snatch and switch -----------------------------------------------------------------------------------


def test_snatch_takes_a_task_away_from_its_holder(bench, jobs):
    jobs.put("x")
    task = bench.connect().tube("jobs").take()
    assert jobs.snatch(1).state == State.READY
    with pytest.raises(LeaseLost) as error:
        task.ack()
    assert error.value.now == "waiting"
    assert jobs.take().attempt == 2


def test_snatch_may_delay_and_moves_the_life_on(jobs, clock):
    jobs.put("x", ttl=10)
    jobs.take()
    task = jobs.snatch(1, delay=5)
    assert task.state == State.DELAYED
    assert task.expires_at - task.created_at == timedelta(seconds=15)
    clock.advance(5)
    assert jobs.take().id == 1


def test_snatch_of_a_task_nobody_holds_is_an_error(jobs):
    jobs.put("x")
    with pytest.raises(NotTaken):
        jobs.snatch(1)


STATES = ("ready", "delayed", "buried", "done")


@pytest.mark.parametrize("source", STATES)
@pytest.mark.parametrize("target", STATES)
def test_switch_moves_a_task_from_any_state_to_any_other(q, source, target):
    tube = q.create_tube("jobs", keep_failed=True, history=True)
    tube.put("x")
    tube.switch(1, source, delay=60 if source == "delayed" else None)
    before = len(q.history())
    task = tube.switch(1, target, delay=60 if target == "delayed" else None)
    assert task.state == State(target)
    assert tube.peek(1).state == State(target)
    assert len(q.history()) - before == (source != target)
    assert (tube.take() is not None) == (target == "ready")


def test_switch_to_or_from_taken_is_refused(jobs):
    jobs.put("x")
    with pytest.raises(UsageError, match="taken"):
        jobs.switch(1, "taken")
    task = jobs.take()
    with pytest.raises(WrongState):
        jobs.switch(1, "ready")
    assert task.ack().reason == "success"


def test_switch_needs_a_state_there_is(jobs):
    jobs.put("x")
    for state in ("gone", None, 5):
        with pytest.raises(UsageError, match="state"):
            jobs.switch(1, state)
    with pytest.raises(UsageError, match="delay"):
        jobs.switch(1, "delayed")
    assert jobs.peek(1).state == State.READY


def test_switching_a_task_whose_life_is_over_starts_it_again(q, clock):
    tube = q.create_tube("jobs", keep_failed=True)
    tube.put("x", ttl=5)
    clock.advance(60)
    task = tube.switch(1, "ready")
    assert task.expires_at - task.created_at == timedelta(seconds=65)
    assert tube.take().id == 1


@pytest.mark.parametrize(("state", "delay", "life"), [("buried", None, 5), ("delayed", 10, 15)])
def test_switching_a_task_whose_life_is_over_anywhere_starts_it_again(q, clock, state, delay, life):
    tube = q.create_tube("jobs", keep_failed=True)
    tube.put("x", ttl=5)
    clock.advance(60)
    assert end_of(tube.peek(1)) == (State.DONE, "expired")
    task = tube.switch(1, state, delay=delay)
    assert task.state == state
    assert task.expires_at - task.created_at == timedelta(seconds=60 + life)
    clock.advance(life)
    assert end_of(tube.peek(1)) == (State.DONE, "expired")


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
def test_a_cancelled_task_that_is_brought_back_is_not_asked_to_stop_any_more(q, state):
    tube = q.create_tube("jobs", keep_failed=True)
    tube.put("x")
    task = tube.take()
    tube.cancel(1)
    assert task.release().reason == "cancelled"
    back = tube.switch(1, state, delay=5 if state == "delayed" else None)
    assert (back.state, back.cancel_asked) == (state, False)
    if state != "ready":
        tube.restart(1)
    assert tube.take().release().state == State.READY


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("by_id", [False, True])
def test_a_task_that_was_acked_is_not_asked_to_stop_any_more(q, keep, by_id):
    tube = q.create_tube("jobs", keep=keep)
    tube.put("x")
    task = tube.take()
    assert tube.cancel(1).cancel_asked is True
    done = tube.ack(1) if by_id else task.ack()
    assert (end_of(done), done.cancel_asked) == ((State.DONE, "success"), False)
    if keep:
        assert (tube.peek(1).cancel_asked, tube.restart(1).cancel_asked) == (False, False)


# -- add_retries -----------------------------------------------------------------------------------------


@pytest.fixture
def failures(q, clock):
    """Tasks that ended in every way, by reason."""
    tube = q.create_tube("jobs", keep=True, max_attempts=1, ttr=5)
    for reason in ("no_attempts", "aborted", "success", "lost"):
        tube.put(reason)
    first, second, third, _ = tube.take_many(4)
    first.fail("x")
    second.fail("x", abort=True)
    third.ack()
    tube.put("expired", ttl=1)
    tube.put("cancelled")
    tube.put("asked")
    tube.cancel(6)
    tube.bury(7)
    clock.advance(5)
    assert [task.reason for task in tube.tasks()] == [
        "no_attempts", "aborted", "success", "lost", "expired", "cancelled", "asked",
    ]  # fmt: skip
    return tube


def test_add_retries_revives_what_ran_out_of_attempts_or_time(failures, clock):  # cases 304, 305
    assert failures.add_retries(2) == 3
    assert [task.data for task in failures.tasks("ready")] == ["no_attempts", "lost", "expired"]
    assert [task.max_attempts for task in failures.tasks("ready")] == [3, 3, 2]
    expired = failures.peek(5)
    assert (expired.expires_at - expired.created_at).total_seconds() == 6
    assert failures.statistics().calls["kick"] == 3
    runs = 0
    while task := failures.take():
        runs += 1
        task.fail("again")
    assert runs == 6
    assert failures.add_retries(1) == 3


def test_add_retries_leaves_other_tubes_alone(q, failures):  # case 308
    other = q.create_tube("other", max_attempts=1)
    other.put("x")
    other.take().fail("x")
    failures.add_retries(1)
    assert end_of(other.peek(1)) == (State.BURIED, "no_attempts")


@pytest.mark.parametrize("number", [0, -1, 1.5, None, "2"])
def test_a_number_of_retries_that_is_none_is_refused(failures, number):  # case 306
    with pytest.raises(UsageError):
        failures.add_retries(number)
    assert failures.tasks("ready") == []


# -- kick, dig, plow -------------------------------------------------------------------------------------


def test_revived_tasks_keep_their_attempts_and_their_place(q):  # case 218
    tube = q.create_tube("jobs", max_attempts=1)
    for pri in (3, 1, 2):
        tube.put(pri, pri=pri)
    for task in tube.take_many(3):
        task.fail("x")
    assert tube.kick(2) == 2
    assert [(task.data, task.attempt, task.max_attempts) for task in tube.take_many(3)] == [(1, 2, 1), (2, 2, 1)]


def test_a_buried_task_whose_life_is_over_starts_it_again_when_revived(q, clock):
    tube = q.create_tube("jobs", max_attempts=1)
    tube.put("x", ttl=5)
    tube.take().fail("x")
    clock.advance(60)
    assert end_of(tube.peek(1)) == (State.BURIED, "no_attempts"), "ttl does not touch failures"
    task = tube.dig(1)
    assert task.expires_at - task.created_at == timedelta(seconds=65)
    clock.advance(5)
    assert is_gone(tube)
