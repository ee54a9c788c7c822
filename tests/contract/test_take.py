"""take and take_many: grants, waiting, who is served."""

from __future__ import annotations

import threading

import pytest
from tests.support.watching import Events, at, refused

from penstock import NotOwner, NotTaken, State, TaskNotFound, UsageError
from penstock.testing import waiting


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


@pytest.mark.parametrize("timeout", [0, -1, 0.0, -5.5, 1e-9])
def test_a_take_without_time_answers_at_once(jobs, timeout):  # cases 20, 22, 192
    assert jobs.take(timeout) is None
    assert jobs.take_many(3, timeout) == []


def test_a_granted_task_shows_its_lease(q, jobs, clock):
    jobs.put("x", ttr=5)
    task = jobs.take()
    assert (task.id, task.data, task.state, task.attempt) == (1, "x", State.TAKEN, 1)
    assert (task.deadline, task.token > 0) == (at(clock, 5), True)


def test_tokens_rise_with_every_grant_and_only_holders_see_them(jobs):
    jobs.put_many([1, 2])
    tokens = []
    for _ in range(3):
        task = jobs.take()
        tokens.append(task.token)
        assert jobs.peek(task.id).token is None
        task.release()
    assert tokens == sorted(set(tokens))


def test_take_ttr_bounds_this_run_alone(jobs, clock):
    jobs.put(1, ttr=5)
    assert jobs.take(ttr=60).release().ttr == 5
    assert jobs.take().deadline == at(clock, 5)


def test_a_ttr_for_ever_is_no_deadline(jobs):
    jobs.put(1, ttr=5)
    assert jobs.take(ttr=float("inf")).deadline is None


@pytest.mark.parametrize(
    ("option", "value"),
    [("timeout", "5"), ("timeout", float("nan")), ("ttr", -1), ("ttr", "x"), ("lane", 1.5)],
)
@pytest.mark.parametrize("ready", [False, True])
def test_a_bad_option_is_refused_whether_or_not_a_task_is_ready(jobs, option, value, ready):
    if ready:
        jobs.put(1)
    refused(value, lambda: jobs.take(**{option: value}))
    assert jobs.statistics().calls["take"] == 0


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "3", None, 100_001])
def test_a_bad_number_is_refused(jobs, n):
    refused(n, lambda: jobs.take_many(n))


def test_take_options_need_the_feature(q):  # case 194
    fifo, timed = q.create_tube("fifo", "fifo"), q.create_tube("timed", "fifottl")
    with pytest.raises(UsageError, match="'ttr'"):
        fifo.take(ttr=1)
    for tube in (fifo, timed):
        with pytest.raises(UsageError, match="'lane'"):
            tube.take(lane="a")


def test_a_take_that_finds_nothing_is_not_counted(jobs):  # case 131
    jobs.take()
    assert jobs.statistics().calls["take"] == 0


# -- waiting -------------------------------------------------------------------------------------------


def test_five_takers_get_five_tasks_in_the_order_they_came(q, jobs, waiter):  # case 25
    takers = [waiter(q, lambda: jobs.take(None)) for _ in range(5)]
    for n in range(5):
        jobs.put(n)
    assert [taker.result().data for taker in takers] == [0, 1, 2, 3, 4]
    assert jobs.statistics().calls["take"] == 5


def test_the_first_waiter_is_first_whatever_its_timeout(q, bench, jobs, waiter):  # cases 28, 29
    other = bench.connect()
    patient = waiter(q, lambda: jobs.take(10))
    eager = waiter(other, lambda: other.tube("jobs").take(1))
    endless = waiter(q, lambda: jobs.take(None))
    for n in (1, 2, 3):
        jobs.put(n)
    assert [taker.result().data for taker in (patient, eager, endless)] == [1, 2, 3]


def test_a_waiter_gets_a_released_task(q, bench, jobs, waiter):  # case 26
    jobs.put("x")
    task = jobs.take()
    other = bench.connect()
    taker = waiter(other, lambda: other.tube("jobs").take(None))
    task.release()
    assert (taker.result().id, jobs.peek(1).attempt) == (1, 2)


def test_kick_serves_as_many_waiters_as_it_revives(q, jobs, waiter):  # case 27
    jobs.put_many([1, 2, 3, 4])
    for id in (1, 2, 3, 4):
        jobs.bury(id)
    takers = [waiter(q, lambda: jobs.take(None)) for _ in range(3)]
    assert jobs.kick(3) == 3
    assert [taker.result().data for taker in takers] == [1, 2, 3]
    assert jobs.peek(4).state == State.BURIED


def test_a_waiter_of_a_closed_queue_gets_nothing_of_what_that_gave_back(q, bench, jobs, waiter):  # cases 30, 349
    jobs.put("x")
    other = bench.connect()
    other.tube("jobs").take()
    taker = waiter(other, lambda: other.tube("jobs").take(None))
    other.close()
    assert taker.result() is None
    assert jobs.peek(1).state == State.READY
    assert jobs.take().attempt == 2


def test_a_waiter_passed_over_waits_for_the_rest_of_its_time_only(q, jobs, clock, waiter):  # case 31
    first = waiter(q, lambda: jobs.take(None))
    second = waiter(q, lambda: jobs.take(10))
    clock.advance(9)
    jobs.put(1)
    assert first.result().data == 1
    clock.advance(0.999999)
    assert second.running
    clock.advance(0.000001)
    assert second.result() is None


def test_a_task_wakes_only_takers_of_its_tube(q, jobs, waiter):  # case 32
    other = q.create_tube("other")
    idle = waiter(q, lambda: other.take(None))
    taker = waiter(q, lambda: jobs.take(None))
    jobs.put(1)
    assert taker.result().data == 1
    assert idle.running
    other.put(2)
    assert idle.result().data == 2


def test_of_two_takes_at_the_same_moment_one_gets_the_task(bench, jobs):  # case 33
    tubes = [bench.connect().tube("jobs") for _ in range(2)]
    jobs.put(1)
    start = threading.Barrier(2)
    taken = []

    def take(tube):
        start.wait()
        taken.append(tube.take())

    threads = [threading.Thread(target=take, args=(tube,)) for tube in tubes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(task is None for task in taken) == [False, True]


def test_a_waiter_gets_a_delayed_task_at_its_moment(q, jobs, clock, waiter):  # case 346
    assert jobs.put(1, delay=5).state == State.DELAYED
    taker = waiter(q, lambda: jobs.take(100))
    clock.advance(4.999999)
    assert taker.running
    clock.advance(0.000001)
    assert taker.result().data == 1


def test_take_many_waits_for_the_first_and_takes_what_is_there(q, jobs, waiter):
    jobs.pause()
    taker = waiter(q, lambda: jobs.take_many(5, None))
    jobs.put_many([1, 2, 3])
    jobs.resume()
    assert [task.data for task in taker.result()] == [1, 2, 3]


def test_take_many_gives_no_more_than_asked(jobs):
    jobs.put_many(range(5))
    assert [task.data for task in jobs.take_many(3)] == [0, 1, 2]
    assert [task.data for task in jobs.take_many(3)] == [3, 4]
    assert jobs.take_many(3) == []


def test_the_waiter_of_a_lane_comes_before_a_general_one(q, jobs, waiter):  # case 242
    general = waiter(q, lambda: jobs.take(None))
    special = waiter(q, lambda: jobs.take(None, lane="x"))
    jobs.put(1, lane="x")
    assert special.result().data == 1
    jobs.put(2, lane="x")
    assert general.result().data == 2


def test_a_waiter_that_gave_up_is_given_nothing_later(q, jobs, clock, waiter):
    taker = waiter(q, lambda: jobs.take(5))
    clock.advance(5)
    assert taker.result() is None
    jobs.put(1)
    assert jobs.peek(1).state == State.READY


# -- drain ---------------------------------------------------------------------------------------------


def test_a_drained_tube_answers_none_whatever_the_timeout(jobs):
    assert jobs.take(None, drain=True) is None
    jobs.bury(jobs.put(1).id)
    assert jobs.take(None, drain=True) is None
    assert jobs.take_many(3, None, drain=True) == []


def test_drain_waits_for_taken_tasks_to_end(q, jobs, waiter):  # case 340
    jobs.put(1)
    task = jobs.take()
    taker = waiter(q, lambda: jobs.take(None, drain=True))
    assert taker.running
    task.ack()
    assert taker.result() is None


def test_drain_takes_what_comes_back(q, jobs, clock, waiter):
    jobs.put(1, delay=5)
    taker = waiter(q, lambda: jobs.take(None, drain=True))
    clock.advance(5)
    assert taker.result().data == 1


def test_drain_is_told_even_behind_others_who_wait(q, jobs, waiter):
    jobs.put(1)
    task = jobs.take()
    endless = waiter(q, lambda: jobs.take(None))
    draining = waiter(q, lambda: jobs.take(None, drain=True))
    task.ack()
    assert draining.result() is None
    assert endless.running
    jobs.put(2)
    assert endless.result().data == 2


def test_drain_gives_up_when_its_time_is_over(q, jobs, clock, waiter):
    jobs.put(1)
    jobs.take()
    taker = waiter(q, lambda: jobs.take(5, drain=True))
    clock.advance(5)
    assert taker.result() is None


# -- the lease -----------------------------------------------------------------------------------------

ENDS = {
    "ack": lambda jobs, task, clock: task.ack(),
    "release": lambda jobs, task, clock: task.release(),
    "bury": lambda jobs, task, clock: task.bury(),
    "fail": lambda jobs, task, clock: task.fail("no"),
    "delete": lambda jobs, task, clock: jobs.delete(task.id),
    "ttr": lambda jobs, task, clock: clock.advance(5),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_lease_is_there_from_take_to_its_end(bench, jobs, clock, end):  # case 35
    jobs.put(1, ttr=5)
    task = jobs.take()
    other = bench.connect().tube("jobs")
    with pytest.raises(NotOwner):
        other.ack(1)
    ENDS[end](jobs, task, clock)
    with pytest.raises((NotTaken, TaskNotFound)):
        other.ack(1)
    assert jobs.statistics().tasks["taken"] == 0


def test_events_of_a_served_waiter_come_once(q, jobs, waiter):
    events = Events(jobs)
    taker = waiter(q, lambda: jobs.take(None))
    jobs.put(1)
    taker.result().ack()
    assert events.names == ["put", "take", "ack"]


def test_nobody_waits_once_all_are_served(q, jobs, waiter):
    taker = waiter(q, lambda: jobs.take(None))
    assert waiting(getattr(q, "_target", q)) == 1
    jobs.put(1)
    taker.result()
    assert waiting(getattr(q, "_target", q)) == 0
