"""Events: one for each step a task takes, told after the commit."""

from __future__ import annotations

import logging

import pytest

from penstock import PenstockError, State, UsageError
from penstock.model.state import Event
from penstock.testing import lose


def roll_back(q, tube):
    """A put that never happened."""
    with q.transaction() as tx:
        tube.put("x", transaction=tx)
        raise ZeroDivisionError


def record(tube):
    """What a callback on the tube is told, as it comes."""
    seen = []
    tube.on_task_change(lambda task, event: seen.append((task.id, event, task.state.value)))
    return seen


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


def test_put_take_and_ack_are_three_events(jobs):  # case 122, unified form
    seen = record(jobs)
    jobs.put("x")
    jobs.take().ack()
    assert seen == [(1, "put", "ready"), (1, "take", "taken"), (1, "ack", "done")]


def test_a_new_callback_answers_the_one_before(jobs):  # case 123
    seen = []

    def first(task, event):
        seen.append(("first", event))

    def second(task, event):
        seen.append(("second", event))

    assert jobs.on_task_change(first) is None
    jobs.put("a")
    assert jobs.on_task_change(second) is first
    jobs.put("b")
    assert jobs.on_task_change() is second
    jobs.put("c")
    assert jobs.on_task_change(None) is None
    assert seen == [("first", "put"), ("second", "put")]


def test_a_callback_must_be_callable(jobs):
    with pytest.raises(UsageError, match="on_task_change"):
        jobs.on_task_change("print")


def test_a_task_that_expires_is_one_event(jobs, clock):  # case 124
    seen = record(jobs)
    jobs.put("x", ttl=5)
    clock.advance(5)
    assert seen == [(1, "put", "ready"), (1, "ttl", "done")]


@pytest.mark.parametrize("kind", ["fifottl", "limfifottl", "utubettl", "standard"])
def test_time_alone_makes_the_same_events_on_every_kind(q, clock, kind):  # cases 121, 125, 126
    tube = q.create_tube("jobs", kind)
    seen = record(tube)
    tube.put("x", delay=5, ttr=3)
    clock.advance(5)
    tube.take()
    clock.advance(3)
    assert seen == [(1, "put", "delayed"), (1, "delay", "ready"), (1, "take", "taken"), (1, "ttr", "ready")]


def test_the_callback_gets_a_task_with_all_that_callers_see(jobs):  # case 126
    tasks = []
    jobs.on_task_change(lambda task, event: tasks.append(task))
    jobs.put({"n": 1}, pri=3, key="k", lane="l")
    jobs.take()
    put, taken = tasks
    assert (put.data, put.pri, put.key, put.lane, put.tube) == ({"n": 1}, 3, "k", "l", "jobs")
    assert (taken.attempt, taken.token) == (1, None)


def test_an_error_in_the_callback_is_logged_and_changes_nothing(jobs, q, waiter, caplog):  # case 127
    def broken(task, event):
        raise ValueError(f"cannot stand {event}")

    jobs.on_task_change(broken)
    take = waiter(q, lambda: jobs.take(timeout=60))
    with caplog.at_level(logging.ERROR, "penstock"):
        assert jobs.put("x").state == State.READY
    assert take.result().ack().reason == "success"
    assert any("'jobs'" in entry.message and entry.exc_info for entry in caplog.records)
    assert jobs.statistics().calls["put"] == 1


def test_the_next_task_of_a_lane_is_no_event(q):  # case 128
    tube = q.create_tube("jobs", "utube")
    tube.put_many(list("ab"), lane="l")
    seen = record(tube)
    tube.take().ack()
    assert seen == [(1, "take", "taken"), (1, "ack", "done")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda jobs: jobs.take().release(), [("take", "taken"), ("release", "ready")]),
        (lambda jobs: jobs.take().release(delay=5), [("take", "taken"), ("release", "delayed")]),
        (lambda jobs: jobs.take().bury(), [("take", "taken"), ("bury", "buried")]),
        (lambda jobs: jobs.take().fail("x"), [("take", "taken"), ("fail", "buried")]),
        (lambda jobs: jobs.take().fail("x", delay=5), [("take", "taken"), ("fail", "delayed")]),
        (lambda jobs: jobs.take().touch(5), [("take", "taken"), ("touch", "taken")]),
        (lambda jobs: jobs.take().touch(0), [("take", "taken")]),
        (lambda jobs: jobs.snatch(jobs.take().id), [("take", "taken"), ("release", "ready")]),
        (lambda jobs: jobs.take() and jobs.release_all(), [("take", "taken"), ("release", "ready")]),
        (lambda jobs: jobs.delete(1), [("delete", "done")]),
        (lambda jobs: jobs.cancel(1), [("cancel", "done")]),
        (lambda jobs: jobs.bury(1) and jobs.kick(), [("bury", "buried"), ("kick", "ready")]),
        (lambda jobs: jobs.bury(1) and jobs.plow(), [("bury", "buried"), ("kick", "ready")]),
        (lambda jobs: jobs.bury(1) and jobs.dig(1, delay=5), [("bury", "buried"), ("kick", "delayed")]),
        (lambda jobs: jobs.bury(1) and jobs.restart(1), [("bury", "buried"), ("kick", "ready")]),
        (lambda jobs: jobs.bury(1) and jobs.bury(1), [("bury", "buried")]),
        (lambda jobs: jobs.put("y", key="k", on_conflict="replace"), [("replace", "ready")]),
        (lambda jobs: jobs.put("y", key="k", on_conflict="ignore"), []),
        (lambda jobs: jobs.peek(1), []),
        (lambda jobs: jobs.statistics(), []),
    ],
    ids=lambda value: None if callable(value) else " ".join(event for event, _ in value) or "nothing",
)
def test_a_verb_makes_one_event_for_each_step(jobs, change, expected):
    jobs.put("x", key="k", ttr=60)
    seen = record(jobs)
    change(jobs)
    assert [(event, state) for _, event, state in seen] == expected


def test_release_all_makes_an_event_for_each_task(bench, jobs):  # cases 55, 56
    jobs.put_many(list("abc"))
    jobs.take_many(2)
    bench.connect().tube("jobs").take()
    seen = record(jobs)
    assert jobs.release_all() == 3
    assert seen == [(id, "release", "ready") for id in (1, 2, 3)]
    assert jobs.release_all() == 0
    assert len(seen) == 3


def test_the_end_of_a_session_makes_an_event_for_each_task(bench, jobs, clock):
    jobs.put_many(list("abc"))
    closed, lost = bench.connect(), bench.connect(session_ttl=5)
    closed.tube("jobs").take()
    lost.tube("jobs").take_many(2)
    seen = record(jobs)
    closed.close()
    lose(lost)
    clock.advance(5)
    assert seen == [(id, "release", "ready") for id in (1, 2, 3)]


def test_the_end_of_a_lease_past_its_ttl_is_two_events(jobs, clock):
    jobs.put("x", ttl=5)
    task = jobs.take()
    clock.advance(5)
    seen = record(jobs)
    task.release()
    assert seen == [(1, "release", "ready"), (1, "ttl", "done")]


def test_events_come_in_the_order_of_their_moments(jobs, clock):
    jobs.put("taken", ttr=5, ttl=50)
    jobs.take()
    jobs.put("delayed", delay=7)
    jobs.put("mortal", ttl=6)
    jobs.put("both", ttl=7)
    seen = record(jobs)
    clock.advance(100)
    assert [(id, event) for id, event, _ in seen] == [(1, "ttr"), (3, "ttl"), (4, "ttl"), (2, "delay"), (1, "ttl")]


def test_a_purge_is_no_event(jobs, clock):
    jobs.put("x")
    jobs.take().ack(keep=5)
    seen = record(jobs)
    clock.advance(5)
    assert jobs.tasks() == []
    assert seen == []


def test_a_refused_verb_is_no_event(jobs):
    jobs.put("x", key="k")
    seen = record(jobs)
    for call in (lambda: jobs.ack(1), lambda: jobs.dig(1), lambda: jobs.put("y", key="k"), lambda: jobs.delete(9)):
        with pytest.raises(PenstockError):
            call()
    assert jobs.take(lane="nobody") is None
    assert seen == []


def test_a_callback_hears_of_its_tube_only(q):
    a, b = q.create_tube("a"), q.create_tube("b")
    seen = record(a)
    b.put("x")
    a.put("y")
    assert seen == [(1, "put", "ready")]


def test_a_callback_hears_of_changes_by_every_session_of_its_process(bench, jobs):
    seen = record(jobs)
    other = bench.connect().tube("jobs")
    other.put("x")
    other.take().ack()
    assert [event for _, event, _ in seen] == ["put", "take", "ack"]


def test_nothing_is_told_of_a_transaction_that_is_rolled_back(jobs, q):
    seen = record(jobs)
    with pytest.raises(ZeroDivisionError):
        roll_back(q, jobs)
    assert seen == []
    with q.transaction() as tx:
        jobs.put("y", transaction=tx)
        assert seen == []
    assert [event for _, event, _ in seen] == ["put"]


def test_a_callback_that_was_there_is_gone_with_its_tube(q):
    jobs = q.create_tube("jobs")
    seen = record(jobs)
    jobs.drop()
    q.create_tube("jobs").put("x")
    assert seen == []


def test_every_event_has_a_name_that_the_contract_knows():
    names = "put replace take ack touch bury fail delete release kick cancel ttr ttl delay"
    assert sorted(event.value for event in Event) == sorted(names.split())


def test_the_callback_of_a_closed_queue_is_not_called_any_more(bench, jobs):
    other = bench.connect()
    seen = record(other.tube("jobs"))
    jobs.put("x")
    other.close()
    jobs.put("y")
    assert [event for _, event, _ in seen] == ["put"]


def test_closing_a_queue_leaves_the_callbacks_of_others(bench, jobs):
    other = bench.connect()
    theirs = record(other.tube("jobs"))
    mine = record(jobs)
    other.close()
    jobs.put("x")
    assert ([event for _, event, _ in mine], theirs) == (["put"], [])
