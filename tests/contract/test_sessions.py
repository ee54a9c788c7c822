"""Sessions: who holds leases, and what happens when one is gone."""

from __future__ import annotations

import uuid

import pytest

from penstock import LeaseLost, NotOwner, SessionExpired, State, UsageError
from penstock.model import ops
from penstock.model.session import new_session
from penstock.testing import lose


@pytest.fixture
def jobs(q):
    tube = q.create_tube("jobs")
    tube.put_many(["a", "b", "c"])
    return tube


def state_of(tube, id=1):
    return tube.peek(id).state


def test_identify_tells_the_same_uuid_every_time(bench, q):  # case 145
    mine = q.identify()
    assert q.identify() == mine == str(uuid.UUID(mine))
    assert bench.connect().identify() != mine


def test_a_session_can_be_joined_and_its_task_finished_by_another_queue(bench, jobs, q):  # case 146
    first, second = bench.connect(), bench.connect()
    first.tube("jobs").take()
    assert second.identify(first.identify()) == first.identify()
    first.close()
    assert state_of(jobs) == State.TAKEN
    assert second.tube("jobs").ack(1).state == State.DONE


def test_a_session_with_two_queues_lives_as_long_as_one_of_them(bench, jobs, clock):
    first, second = bench.connect(session_ttl=5), bench.connect(session_ttl=5)
    first.tube("jobs").take()
    second.identify(first.identify())
    first.close()
    clock.advance(60)
    assert state_of(jobs) == State.TAKEN
    second.close()
    assert state_of(jobs) == State.READY


def test_a_session_with_two_queues_survives_the_loss_of_one(bench, jobs, clock):
    first, second = bench.connect(session_ttl=5), bench.connect(session_ttl=5)
    first.tube("jobs").take()
    second.identify(first.identify())
    lose(first)
    clock.advance(60)
    assert state_of(jobs) == State.TAKEN
    assert second.tube("jobs").ack(1).state == State.DONE


def test_who_joins_another_session_leaves_its_own(bench, jobs, clock):
    first, second = bench.connect(session_ttl=5), bench.connect(session_ttl=5)
    second.tube("jobs").take()
    old = second.identify()
    second.identify(first.identify())
    with pytest.raises(NotOwner):
        second.tube("jobs").ack(1)
    clock.advance(4.9)
    assert state_of(jobs) == State.TAKEN
    clock.advance(0.1)
    assert state_of(jobs) == State.READY
    with pytest.raises(SessionExpired):
        second.identify(old)


def test_joining_ones_own_session_changes_nothing(bench, jobs, clock):
    queue = bench.connect(session_ttl=5)
    queue.tube("jobs").take()
    assert queue.identify(queue.identify()) == queue.identify()
    clock.advance(60)
    assert state_of(jobs) == State.TAKEN
    queue.close()
    assert state_of(jobs) == State.READY


@pytest.mark.parametrize("form", [str, lambda text: uuid.UUID(text).bytes, uuid.UUID, str.upper])
def test_a_uuid_may_be_given_in_any_form(bench, q, form):
    other = bench.connect()
    assert q.identify(form(other.identify())) == other.identify()


@pytest.mark.parametrize("bad", ["", "x", "1234", b"short", 5, ["a"]])
def test_what_is_no_uuid_is_refused(q, bad):
    mine = q.identify()
    with pytest.raises(UsageError, match="UUID"):
        q.identify(bad)
    assert q.identify() == mine


def test_a_session_that_never_was_cannot_be_joined(q):
    mine = q.identify()
    with pytest.raises(SessionExpired):
        q.identify(str(uuid.uuid4()))
    assert q.identify() == mine


def test_the_tasks_of_a_closed_queue_are_ready_at_once(bench, jobs, q, waiter):  # cases 147, 349
    other = bench.connect()
    other.tube("jobs").take_many(3)
    take = waiter(q, lambda: jobs.take(timeout=60))
    other.close()
    task = take.result()
    assert (task.id, task.attempt) == (1, 2)
    assert jobs.statistics().tasks["ready"] == 2


def test_a_closed_queue_gives_back_even_what_has_no_attempts_left(bench, q):
    jobs = q.create_tube("jobs", max_attempts=1)
    jobs.put("x")
    other = bench.connect()
    other.tube("jobs").take()
    other.close()
    task = jobs.peek(1)
    assert (task.state, task.attempt) == (State.READY, 1)


def test_a_lost_session_ends_when_its_time_is_over(bench, jobs, clock):  # case 148
    other = bench.connect(session_ttl=1)
    other.tube("jobs").take()
    name = other.identify()
    lose(other)
    clock.advance(0.1)
    assert state_of(jobs) == State.TAKEN
    clock.advance(0.899999)
    assert state_of(jobs) == State.TAKEN
    clock.advance(0.000001)
    assert state_of(jobs) == State.READY
    with pytest.raises(SessionExpired):
        bench.connect().identify(name)


def test_a_session_lives_half_a_minute_unless_told_otherwise(bench, jobs, clock):  # case 332
    other = bench.connect()
    other.tube("jobs").take()
    lose(other)
    clock.advance(29.999999)
    assert state_of(jobs) == State.TAKEN
    clock.advance(0.000001)
    assert state_of(jobs) == State.READY


def test_a_session_of_an_open_queue_does_not_end(bench, jobs, clock):
    other = bench.connect(session_ttl=1)
    other.tube("jobs").take()
    clock.advance(100_000)
    assert state_of(jobs) == State.TAKEN


def test_a_lost_session_can_be_resumed_before_it_ends(bench, jobs, clock):  # case 149
    other = bench.connect(session_ttl=60)
    other.tube("jobs").take()
    lose(other)
    clock.advance(59)
    again = bench.connect()
    again.identify(other.identify())
    clock.advance(1000)
    assert again.tube("jobs").ack(1).state == State.DONE


def test_a_waiting_taker_gets_what_a_lost_session_held(bench, jobs, q, clock, waiter):
    other = bench.connect(session_ttl=5)
    other.tube("jobs").take_many(3)
    lose(other)
    take = waiter(q, lambda: jobs.take(timeout=60))
    clock.advance(5)
    assert take.result().id == 1


def test_what_a_lost_session_cannot_try_again_is_buried(bench, q, clock):
    jobs = q.create_tube("jobs", max_attempts=1)
    jobs.put("x")
    other = bench.connect(session_ttl=5)
    other.tube("jobs").take()
    lose(other)
    clock.advance(5)
    task = jobs.peek(1)
    assert (task.state, task.reason) == (State.BURIED, "lost")


def test_a_lease_ends_by_ttr_before_its_session_does(bench, q, clock):
    jobs = q.create_tube("jobs", history=True)
    jobs.put("x", ttr=3)
    jobs.put("y")
    other = bench.connect(session_ttl=5)
    other.tube("jobs").take_many(2)
    lose(other)
    clock.advance(60)
    assert [(row.task_id, row.event) for row in q.history()][-2:] == [(1, "ttr"), (2, "release")]


def test_what_was_due_before_a_session_ended_is_done_before(bench, q, clock):
    jobs = q.create_tube("jobs", history=True)
    jobs.put("held")
    other = bench.connect(session_ttl=5)
    other.tube("jobs").take()
    jobs.put("delayed", delay=2)
    jobs.put("mortal", ttl=3)
    jobs.put("late", ttl=7)
    lose(other)
    clock.advance(60)
    assert [(row.task_id, row.event) for row in q.history()][5:] == [
        (2, "delay"), (3, "ttl"), (1, "release"), (4, "ttl"),
    ]  # fmt: skip


def test_a_session_may_live_longer_or_shorter_from_now_on(bench, jobs, clock):
    for ttl in (100, 2):
        other = bench.connect(session_ttl=30)
        other.tube("jobs").take()
        other.configure(session_ttl=ttl)
        lose(other)
        clock.advance(ttl - 0.000001)
        assert state_of(jobs) == State.TAKEN
        clock.advance(0.000001)
        assert state_of(jobs) == State.READY


@pytest.mark.parametrize("bad", [-1, "x", None, float("nan")])
def test_a_time_to_live_that_is_none_is_refused(bench, jobs, clock, bad):  # case 151
    other = bench.connect(session_ttl=5)
    other.tube("jobs").take()
    with pytest.raises(UsageError, match="session_ttl"):
        other.configure(session_ttl=bad)
    lose(other)
    clock.advance(5)
    assert state_of(jobs) == State.READY


def test_settings_that_do_not_exist_are_refused(q):  # case 151
    with pytest.raises(TypeError, match="in_replicaset"):
        q.configure(session_ttl=5, in_replicaset=True)


def test_the_owner_is_named_but_its_uuid_is_not_given_away(bench, jobs):  # cases 213, 348
    other = bench.connect()
    other.tube("jobs").take()
    with pytest.raises(NotOwner) as error:
        jobs.ack(1)
    assert error.value.owner
    assert error.value.owner in str(error.value)
    assert other.identify() not in str(error.value)


def test_a_queue_whose_session_ended_works_on_but_its_leases_are_lost(bench, jobs, clock):
    other = bench.connect(session_ttl=5)
    tube = other.tube("jobs")
    task = tube.take()
    lose(other)
    clock.advance(5)
    with pytest.raises(LeaseLost) as error:
        task.ack()
    assert error.value.now == "waiting"
    assert tube.take().ack().state == State.DONE


def test_a_closed_queue_answers_nothing_more(bench):
    other = bench.connect()
    tube = other.create_tube("own")
    other.close()
    other.close()
    with pytest.raises(UsageError, match="closed"):
        tube.put("x")


def test_a_taker_that_waits_on_a_closed_queue_gets_nothing(bench, q, waiter):  # cases 30, 342, 349
    tube = q.create_tube("own")
    other = bench.connect()
    there = other.tube("own")
    tube.put("x")
    there.take()
    take = waiter(other, lambda: there.take(timeout=60))
    other.close()
    assert take.result() is None
    assert state_of(tube) == State.READY


def test_a_session_can_list_what_it_holds(bench, q, clock):
    jobs = q.create_tube("jobs", "standard", ttr=5)
    mail = q.create_tube("mail", "fifo", id="required")
    jobs.put_many([1, 2, 3])
    mail.put("hello", id="m")
    other = bench.connect()
    other.tube("jobs").take()
    first, second = jobs.take(), jobs.take()
    letter = mail.take()
    engine = getattr(q._engine, "engine", q._engine)
    held = [(task.tube, task.id, task.token) for task in (first, second, letter)]
    asked = ops.ListLeases(q._session)
    assert engine.execute(asked) == held
    first.ack()
    assert engine.execute(asked) == held[1:]
    clock.advance(5)
    assert engine.execute(asked) == held[2:]
    assert engine.execute(ops.ListLeases(q._session, here=1)) == held[2:]
    other.identify(q.identify())
    assert engine.execute(ops.ListLeases(q._session, here=1)) == []
    assert engine.execute(ops.ListLeases(q._session, here=2)) == held[2:]
    assert engine.execute(ops.ListLeases(new_session(None))) == []
