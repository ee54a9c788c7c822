"""put: what a task is when it is put. Keys, ids, data and batches have files of their own."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import pytest
from tests.support.watching import at, refused

from penstock import State, TubeFull, UsageError


def test_a_task_that_is_put_is_ready_and_has_its_data(q):
    jobs = q.create_tube("jobs", "fifo")
    task = jobs.put({"url": "http://a.example/", "n": [1, 2.5, None, True]})
    assert (task.state, task.id, task.outcome) == (State.READY, 1, "new")
    assert jobs.peek(1).data == {"url": "http://a.example/", "n": [1, 2.5, None, True]}


def test_the_put_of_a_map_leaves_the_map_alone(q):  # case 184
    data = {"b": 1, "a": {"x": []}}
    jobs = q.create_tube("jobs")
    jobs.put(data)
    assert data == {"b": 1, "a": {"x": []}}
    data["b"] = 2
    assert jobs.peek(1).data == {"b": 1, "a": {"x": []}}


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "utube", "standard"])
def test_tasks_come_in_the_order_they_were_put(q, kind):  # case 4
    jobs = q.create_tube("jobs", kind)
    for data in ("a", 1, "b", 2.5):
        jobs.put(data)
    taken = []
    while task := jobs.take():
        taken.append(task.ack().data)
    assert taken == ["a", 1, "b", 2.5]


def test_a_put_shows_everything_about_the_task(q, clock):
    jobs = q.create_tube("jobs")
    task = jobs.put("x", pri=-3, ttl=10, ttr=4, delay=2, lane="a", key="k", max_attempts=7)
    assert (task.tube, task.state, task.pri, task.lane, task.key) == ("jobs", State.DELAYED, -3, "a", "k")
    assert (task.ttl, task.ttr, task.max_attempts, task.attempt, task.token) == (10, 4, 7, 0, None)
    assert (task.created_at, task.ready_at, task.expires_at) == (at(clock), at(clock, 2), at(clock, 12))
    assert (task.deadline, task.done_at, task.reason, task.errors, task.result) == (None, None, None, [], None)


def test_the_defaults_of_the_tube_count_unless_put_says_otherwise(q):  # case 69
    jobs = q.create_tube("jobs", "fifottl", ttl=10, ttr=3, pri=7, max_attempts=2)
    plain, own = jobs.put(1), jobs.put(2, ttl=5, ttr=1, pri=0, max_attempts=9)
    assert (plain.ttl, plain.ttr, plain.pri, plain.max_attempts) == (10, 3, 7, 2)
    assert (own.ttl, own.ttr, own.pri, own.max_attempts) == (5, 1, 0, 9)


@pytest.mark.parametrize("delay", [0, -1, 0.0, timedelta(seconds=-5), 1e-9])
def test_a_delay_that_is_over_is_none(q, delay):  # case 62
    jobs = q.create_tube("jobs", "fifottl")
    assert jobs.put(1, delay=delay).state == State.READY
    assert jobs.take().data == 1


def test_a_delay_may_be_a_timedelta_or_a_moment(q, clock):
    jobs = q.create_tube("jobs")
    assert jobs.put(1, delay=timedelta(minutes=1)).ready_at == at(clock, 60)
    assert jobs.put(2, delay=at(clock, 5)).ready_at == at(clock, 5)
    assert jobs.put(3, delay=at(clock, -5)).state == State.READY


def test_two_puts_at_the_same_moment_both_succeed(q, bench):  # case 34
    jobs = [q.create_tube("jobs"), bench.connect().tube("jobs")]
    start = threading.Barrier(2)
    ids = []

    def put(tube):
        start.wait()
        ids.append(tube.put(1).id)

    threads = [threading.Thread(target=put, args=(tube,)) for tube in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == [1, 2]


BAD = [
    ("pri", 1.5),
    ("pri", True),
    ("pri", "1"),
    ("pri", 1 << 63),
    ("pri", -(1 << 63) - 1),
    ("ttl", -1),
    ("ttl", float("nan")),
    ("ttl", "5"),
    ("ttl", True),
    ("ttr", -0.5),
    ("ttr", float("nan")),
    ("ttr", [1]),
    ("delay", float("nan")),
    ("delay", "soon"),
    ("delay", datetime(2030, 1, 1)),
    ("lane", 1.5),
    ("lane", True),
    ("lane", b"a"),
    ("key", 1.5),
    ("key", ["k"]),
    ("key", "a\0b"),
    ("key", "\ud800"),
    ("on_conflict", "merge"),
    ("put_id", 1.5),
    ("max_attempts", 0),
    ("max_attempts", True),
    ("max_attempts", 2.0),
    ("keep", -1),
    ("keep", "yes"),
    ("repeat", 0),
    ("repeat", -1),
    ("repeat", float("nan")),
    ("timeout", float("nan")),
    ("timeout", "5"),
    ("timeout", True),
]


@pytest.mark.parametrize(("option", "value"), BAD)
def test_a_bad_option_is_refused_by_its_value(q, option, value):
    jobs = q.create_tube("jobs")
    refused(value, lambda: jobs.put(1, **{option: value}))
    assert jobs.statistics().tasks["total"] == 0


@pytest.mark.parametrize("option", ["key", "lane", "put_id"])
def test_text_of_255_bytes_is_accepted_and_more_is_not(q, option):
    jobs = q.create_tube("jobs")
    assert jobs.put(1, **{option: "ä" * 127 + "x"}).outcome == "new"
    with pytest.raises(UsageError, match=f"{option} must have at most 255 bytes.*256"):
        jobs.put(1, **{option: "ä" * 128})


def test_derived_ttl_needs_what_it_is_derived_from(q):
    with pytest.raises(UsageError, match="ttr and max_attempts"):
        q.create_tube("bad", ttl="derived")
    jobs = q.create_tube("jobs")
    with pytest.raises(UsageError, match="ttr and max_attempts"):
        jobs.put(1, ttl="derived")
    assert jobs.put(1, ttl="derived", ttr=3, max_attempts=3).ttl == 9


def test_a_put_into_a_full_tube_is_refused(q):
    jobs = q.create_tube("jobs", capacity=1)
    jobs.put(1)
    for timeout in (0, -1):
        with pytest.raises(TubeFull, match="capacity of 1"):
            jobs.put(2, timeout=timeout)
    assert jobs.statistics().tasks["total"] == 1


def test_a_put_waits_for_room(q, waiter):
    jobs = q.create_tube("jobs", capacity=1)
    jobs.put(1)
    producer = waiter(q, lambda: jobs.put(2, timeout=5))
    jobs.delete(1)
    assert producer.result().id == 2


def test_a_put_gives_up_when_its_time_is_over(q, clock, waiter):
    jobs = q.create_tube("jobs", capacity=1)
    jobs.put(1)
    producer = waiter(q, lambda: jobs.put(2, timeout=5))
    clock.advance(4.999999)
    assert producer.running
    clock.advance(0.000001)
    with pytest.raises(TubeFull):
        producer.result()
    assert jobs.statistics().calls["put"] == 1


def test_producers_are_served_in_the_order_they_came(q, waiter):
    jobs = q.create_tube("jobs", capacity=1)
    jobs.put(0)
    producers = [waiter(q, lambda n=n: jobs.put(n, timeout=None)) for n in (1, 2, 3)]
    order = []
    while task := jobs.take():
        order.append(task.ack().data)
    assert order == [0, 1, 2, 3]
    assert [producer.result().id for producer in producers] == [2, 3, 4]
