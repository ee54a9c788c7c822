"""Time: ttl, ttr, delay, moments that have come, and what is settled before a verb answers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.watching import Events, at, elapse, moments

from penstock import Reason, State, TaskNotFound
from penstock.testing import lose

TIMED = ["fifottl", "limfifottl", "utubettl", "standard"]
YEAR = 365 * 24 * 3600


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


@pytest.fixture(params=TIMED)
def timed(q, request):
    """A tube of each kind that knows time."""
    return q.create_tube("timed", request.param)


def test_what_is_due_happens_before_a_tube_is_emptied(q, clock):
    jobs = q.create_tube("jobs", history=True)
    jobs.put("x", ttl=5)
    jobs.put("y", ttr=5)
    jobs.put("z", delay=5)
    jobs.take_many(2)
    jobs.release(1)
    elapse(clock, 6)
    assert jobs.truncate() == 2
    assert [event.event for event in q.history()[-3:]] == ["ttr", "ttl", "delay"]
    calls = jobs.statistics().calls
    assert (calls["ttr"], calls["ttl"], calls["delay"]) == (1, 1, 1)
    assert set(jobs.statistics().tasks.values()) == {0, 1}, "one is done"


# -- ttl -----------------------------------------------------------------------------------------------


def test_an_expired_task_is_not_taken_even_before_a_tick(timed, clock):  # cases 58, 300
    timed.put(1, ttl=0.1)
    elapse(clock, 0.1)
    assert timed.take() is None


def test_an_expired_task_is_gone(timed, clock):  # case 59
    timed.put(1, ttl=0.1)
    clock.advance(0.099999)
    assert timed.peek(1).state == State.READY
    clock.advance(0.000001)
    with pytest.raises(TaskNotFound):
        timed.peek(1)


def test_a_life_counts_from_the_end_of_the_delay(timed, clock):  # cases 60, 296
    assert timed.put(1, delay=0.1, ttl=0.1).state == State.DELAYED
    elapse(clock, 0.01)
    assert timed.take() is None
    elapse(clock, 0.14)
    assert timed.take().data == 1


def test_a_ttl_of_nothing_is_dead_on_arrival(q, timed, waiter):  # case 73
    taker = waiter(q, lambda: timed.take(None))
    events = Events(timed)
    timed.put(1, ttl=0)
    assert taker.running
    assert timed.tasks() == []
    assert [event for event, _, _ in events] == ["put", "ttl"]
    timed.put(2)
    assert taker.result().data == 2


@pytest.mark.parametrize("ttl", [15768000000000000, float("inf"), 100 * YEAR, timedelta(days=365 * 200)])
def test_a_hundred_years_is_for_ever(timed, clock, ttl):  # case 74
    task = timed.put(1, ttl=ttl)
    assert (task.expires_at, task.ttl) == (None, float("inf"))
    clock.advance(99 * YEAR)
    assert timed.take().data == 1


def test_a_little_less_than_a_hundred_years_is_a_moment(jobs, clock):
    assert jobs.put(1, ttl=100 * YEAR - 1).expires_at == at(clock, 100 * YEAR - 1)


@pytest.mark.parametrize("kind", TIMED)
def test_a_taken_task_survives_its_ttl_on_every_kind(q, clock, kind):  # cases 66, 67
    jobs = q.create_tube("jobs", kind)
    jobs.put(1, ttl=1, ttr=100)
    task = jobs.take()
    clock.advance(50)
    assert jobs.peek(1).state == State.TAKEN
    assert task.ack().reason == Reason.SUCCESS


@pytest.mark.parametrize("kind", ["fifottl", "limfifottl", "utubettl"])
def test_a_task_without_ttr_has_its_ttl_to_run(q, clock, kind):  # case 68
    jobs = q.create_tube("jobs", kind)
    jobs.put(1, ttl=1)
    assert jobs.take().deadline == at(clock, 1)


@pytest.mark.parametrize(("options", "deadline"), [({"ttr": 3}, 3), ({"ttr": 3, "ttl": 9}, 3), ({"ttl": 9}, 9)])
def test_the_ttr_of_the_tube_comes_before_the_ttl(q, clock, options, deadline):  # case 68
    jobs = q.create_tube("jobs", "fifottl", **options)
    jobs.put(1)
    assert jobs.take().deadline == at(clock, deadline)


def test_a_standard_task_without_ttr_has_no_deadline(jobs):  # case 195
    jobs.put(1, ttl=5)
    assert jobs.take().deadline is None


def test_a_released_task_dies_at_its_ttl(timed, clock):  # cases 87, 212
    timed.put(1, ttl=10, ttr=100)
    clock.advance(4)
    timed.take().release()
    clock.advance(5.999999)
    assert timed.peek(1).state == State.READY
    clock.advance(0.000001)
    with pytest.raises(TaskNotFound):
        timed.peek(1)


def test_a_task_released_after_its_ttl_is_expired(timed, clock):  # case 210
    timed.put(1, ttl=0.1, ttr=100)
    task = timed.take()
    clock.advance(1)
    assert (task.release().state, task.reason) == (State.DONE, Reason.EXPIRED)
    assert timed.tasks() == []


def test_the_life_of_a_task_goes_on_through_ttr_and_lost_sessions(q, bench, jobs, clock):  # case 212
    other = bench.connect(session_ttl=10)
    jobs.put_many(["by ttr", "by session"], ttl=50)
    jobs.take(ttr=5)
    other.tube("jobs").take()
    lose(other)
    clock.advance(10)
    assert [task.state for task in jobs.tasks()] == [State.READY, State.READY]
    clock.advance(40)
    assert jobs.tasks() == []


def test_expired_tasks_are_kept_if_the_tube_says_so(q, clock):
    jobs = q.create_tube("jobs", keep_failed=20)
    jobs.put(1, ttl=5)
    clock.advance(5)
    task = jobs.peek(1)
    assert (task.state, task.reason, task.done_at, task.purge_at) == (
        State.DONE,
        Reason.EXPIRED,
        at(clock),
        at(clock, 20),
    )
    clock.advance(20)
    assert jobs.tasks() == []


# -- ttr and delay -------------------------------------------------------------------------------------


def test_a_task_not_finished_in_time_is_given_again(timed, clock):  # case 63
    timed.put("x", ttr=0.01)
    first = timed.take()
    clock.advance(0.01)
    again = timed.take()
    assert (again.id, again.attempt, again.token > first.token) == (1, 2, True)


def test_a_lease_ends_with_its_session_if_that_is_earlier(bench, jobs, clock):
    other = bench.connect(session_ttl=10)
    jobs.put(1, ttr=100)
    other.tube("jobs").take()
    lose(other)
    clock.advance(9.999999)
    assert jobs.take() is None
    clock.advance(0.000001)
    assert jobs.take().attempt == 2


def test_a_delayed_task_is_ready_at_its_moment(timed, clock):
    timed.put(1, delay=5)
    events = Events(timed)
    elapse(clock, 4.999999)
    assert timed.take() is None
    elapse(clock, 0.000001)
    assert timed.take().data == 1
    assert events.names == ["delay", "take"]


def test_a_delay_for_ever_never_ends(jobs, clock):
    assert jobs.put(1, delay=float("inf")).ready_at is None
    clock.advance(99 * YEAR)
    assert jobs.peek(1).state == State.DELAYED


def test_time_is_rounded_to_microseconds_once(jobs, clock):
    assert jobs.put(1, delay=0.1 + 0.2).ready_at == at(clock, 0.3)
    assert jobs.put(2, ttl=1e-7).expires_at == at(clock)


def test_a_retry_delay_does_not_save_a_task_from_its_ttl(q, clock):
    jobs = q.create_tube("jobs", retry=20, keep_failed=True)
    jobs.put(1, ttl=10)
    task = jobs.take().fail("no")
    assert (task.state, task.expires_at) == (State.DELAYED, at(clock, 10))
    clock.advance(10)
    assert (jobs.peek(1).state, jobs.peek(1).reason) == (State.DONE, Reason.EXPIRED)


# -- runs ----------------------------------------------------------------------------------------------


def test_time_passes_while_nobody_has_the_store_open(q, bench, jobs, clock):  # case 88
    jobs.put("mortal", ttl=10)
    jobs.put("delayed", delay=10)
    jobs.put("delayed longer", delay=100)
    again = bench.new_run()
    clock.advance(20)
    assert [(task.data, task.state) for task in again.tube("jobs").tasks()] == [
        ("delayed", State.READY),
        ("delayed longer", State.DELAYED),
    ]


def test_time_that_passed_before_the_store_was_opened_counts(q, bench, jobs, clock):  # case 88
    jobs.put("mortal", ttl=10)
    jobs.put("delayed", delay=10)
    elapse(clock, 20)
    again = bench.new_run().tube("jobs")
    assert again.take().data == "delayed"
    assert again.tasks("ready") == []


def test_nothing_is_taken_after_a_restart(q, bench, jobs):  # cases 153, 350
    jobs.put_many([1, 2, 3])
    jobs.take_many(3)
    again = bench.new_run().tube("jobs")
    assert again.statistics().tasks["taken"] == 0
    assert [task.data for task in again.take_many(3)] == [1, 2, 3]


# -- settling ------------------------------------------------------------------------------------------


def test_thousands_of_overdue_tasks_are_all_handled(q, jobs, clock, waiter):  # cases 89, 255
    jobs.put_many(range(2000), ttl=5)
    jobs.put_many(range(1500), delay=5)
    elapse(clock, 5)
    assert jobs.take().data == 0
    tasks = jobs.statistics().tasks
    assert (tasks["ready"], tasks["delayed"], tasks["done"]) == (1499, 0, 2000)


VERBS = {
    "take": lambda jobs: jobs.take() is None,
    "put": lambda jobs: jobs.put("new", key="k").outcome == "new",
    "kick": lambda jobs: jobs.kick(5) == 0,
    "plow": lambda jobs: jobs.plow() == 0,
    "statistics": lambda jobs: jobs.statistics().tasks["total"] == 0,
    "tasks": lambda jobs: jobs.tasks() == [],
    "release_all": lambda jobs: jobs.release_all() == 0,
    "cancel": lambda jobs: jobs.cancel(key="k") is None,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_answers_as_if_all_that_is_due_were_done(jobs, clock, verb):
    jobs.put("old", key="k", ttl=5)
    if verb in ("kick", "plow"):
        jobs.bury(1)
    elapse(clock, 5)
    assert VERBS[verb](jobs)


def test_capacity_counts_no_task_whose_life_is_over(q, clock):
    jobs = q.create_tube("jobs", capacity=1)
    jobs.put(1, ttl=5)
    elapse(clock, 5)
    assert jobs.put(2).outcome == "new"


def test_changes_happen_at_their_own_moments_in_order(q, clock):
    jobs = q.create_tube("jobs", history=True)
    start = at(clock)
    jobs.put("c", ttl=9)
    jobs.put("a", delay=3, ttl=4)
    jobs.put("b", ttr=5, pri=-1)
    jobs.take()
    clock.advance(100)
    assert moments(q, start)[4:] == [("delay", 3), ("ttr", 5), ("ttl", 7), ("ttl", 9)]


def test_at_one_moment_ttr_comes_before_ttl_before_delay(q, clock):
    jobs = q.create_tube("jobs", history=True)
    jobs.put("delay", delay=5)
    jobs.put("ttl", ttl=5)
    jobs.put("ttr", ttr=5, pri=-1)
    jobs.take()
    clock.advance(5)
    assert [event.event for event in q.history()][4:] == ["ttr", "ttl", "delay"]


def test_at_one_moment_the_older_task_comes_first(q, clock):
    jobs = q.create_tube("jobs", history=True)
    jobs.put_many(range(5), delay=5)
    clock.advance(5)
    assert [event.task_id for event in q.history()][5:] == [1, 2, 3, 4, 5]


def test_a_task_that_became_ready_late_counts_from_its_own_moment(jobs, clock):
    jobs.put(1, ttr=5)
    jobs.take()
    moment = at(clock, 5)
    clock.advance(100)
    assert jobs.peek(1).ready_at == moment


def test_tick_tells_when_the_next_thing_is_due(bench, clock):
    q = bench.connect(session_ttl=float("inf"))
    jobs = q.create_tube("jobs")
    assert q.tick() is None
    jobs.put(1, delay=5)
    jobs.put(2, ttl=8)
    assert q.tick() == 5
    clock.advance(3)
    assert q.tick() == 2
    clock.advance(2)
    assert q.tick() == 3
    clock.advance(3)
    assert q.tick() is None


def test_tick_does_what_is_due(q, jobs, clock):
    jobs.put(1, ttl=5)
    events = Events(jobs)
    elapse(clock, 5)
    q.tick()
    assert events == [("ttl", State.DONE, Reason.EXPIRED)]


def test_two_open_queues_do_what_is_due_once(q, bench, jobs, clock):  # case 353
    other = bench.connect()
    jobs.put(1, ttr=5)
    jobs.take()
    clock.advance(5)
    other.tick()
    calls = other.tube("jobs").statistics().calls
    assert (calls["ttr"], calls["take"], calls["put"]) == (1, 1, 1)


def test_a_queue_opened_later_finds_leases_and_counters(q, bench, jobs):  # case 353
    jobs.put_many([1, 2])
    task = jobs.take()
    statistics = bench.connect().tube("jobs").statistics()
    assert (statistics.tasks["taken"], statistics.calls["take"]) == (1, 1)
    assert task.ack().state == State.DONE


def test_statistics_are_the_rows_after_any_sequence(q, clock):  # case 351
    jobs = q.create_tube("jobs", keep=60, max_attempts=2, retry=5)
    jobs.put_many(range(8), ttl=50)
    jobs.put(8, delay=5)
    first, second, third, fourth = jobs.take_many(4)
    first.ack()
    second.fail("no")
    third.bury()
    fourth.release(delay=3)
    jobs.delete(6)
    clock.advance(4)
    rows = [task.state for task in jobs.tasks()]
    tasks = jobs.statistics().tasks
    for state in ("ready", "taken", "delayed", "buried"):
        assert tasks[state] == rows.count(state)
    assert tasks["total"] == len(rows) - rows.count("done") == 7
    jobs.truncate()
    assert {name: n for name, n in jobs.statistics().tasks.items() if n} == {"done": 2}
