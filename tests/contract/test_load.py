"""load: very many tasks, a chunk at a time."""

from __future__ import annotations

import pytest

from penstock import BatchError, Entry, UsageError

ODD = ['a\\b\t"x"\n', "\\N", "\\.", "\x7f\u2028é", "", {"n": [1, 2.5, None, True]}, "\\x41"]


def test_everything_is_stored_in_order_and_counted(q):
    jobs = q.create_tube("jobs", "fifo")
    told = []
    assert jobs.load(range(2500), chunk=1000, progress=told.append) == 2500
    assert told == [1000, 2000, 2500]
    assert [task.data for task in jobs.take_many(3)] == [0, 1, 2]
    assert jobs.statistics().tasks["total"] == 2500
    assert jobs.statistics().calls["put"] == 2500


def test_nothing_is_nothing(q):
    assert q.create_tube("jobs").load([]) == 0


@pytest.mark.parametrize("kind", ["fifo", "standard", "utubettl"])
def test_data_of_every_form_comes_back_equal(q, kind):
    jobs = q.create_tube("jobs", kind)
    assert jobs.load(ODD) == len(ODD)
    assert [task.data for task in jobs.tasks()] == ODD


def test_bytes_come_back_equal(q):
    jobs = q.create_tube("jobs", payload="bytes")
    data = [bytes(range(256)), b"", b"\\x41"]
    assert jobs.load(data) == 3
    assert [task.data for task in jobs.tasks()] == data


@pytest.mark.parametrize("kind", ["utube", "standard"])
def test_every_lane_of_a_load_is_open(q, kind):
    jobs = q.create_tube("jobs", kind, lane_concurrency=1)
    assert jobs.load(Entry(n, lane=f"lane\t{n % 5}") for n in range(20)) == 20
    assert sorted(task.lane for task in jobs.take_many(20)) == [f"lane\t{n}" for n in range(5)]


def test_options_hold_for_all_and_entries_come_first(q, clock):
    jobs = q.create_tube("jobs", "fifottl")
    assert jobs.load(["a", Entry("b", pri=-1)], pri=3, ttl=60, ttr=5, max_attempts=2, delay=1) == 2
    assert jobs.take() is None
    clock.advance(1)
    task = jobs.take()
    assert (task.data, task.pri, task.ttr, task.max_attempts) == ("b", -1, 5, 2)
    assert jobs.peek(1).pri == 3
    clock.advance(60)
    assert jobs.statistics().tasks["total"] == 0


def test_entries_with_keys_and_ids_are_loaded_too(q):
    jobs = q.create_tube("jobs")
    assert jobs.load([Entry("a", key="k"), Entry("b", key="k", on_conflict="ignore"), "c"]) == 3
    assert [task.data for task in jobs.tasks()] == ["a", "c"]
    named = q.create_tube("named", id="required")
    assert named.load(Entry(n, id=f"task {n}") for n in range(3)) == 3
    assert named.peek("task 1").data == 1
    made = q.create_tube("made", id="uuid")
    assert made.load(range(3)) == 3
    assert len({task.id for task in made.tasks()}) == 3


def test_what_is_refused_does_not_hold_up_the_rest(q):
    jobs = q.create_tube("jobs", max_payload=20)
    with pytest.raises(BatchError) as refused:
        jobs.load(["good", "x" * 100, "é" * 15, "fine"], chunk=2)
    assert [error.code for error in refused.value.results] == ["payload_too_large"] * 2
    assert [task.data for task in jobs.tasks()] == ["good", "fine"]
    with pytest.raises(BatchError, match="finite"):
        jobs.load([1, float("nan"), 2])
    assert [task.data for task in jobs.tasks()] == ["good", "fine", 1, 2]


def test_a_full_tube_takes_what_fits(q):
    jobs = q.create_tube("jobs", capacity=3)
    with pytest.raises(BatchError, match="capacity"):
        jobs.load(range(5))
    assert jobs.statistics().tasks["ready"] == 3


def test_a_tube_with_history_records_every_put(q):
    jobs = q.create_tube("jobs", history=True)
    assert jobs.load(range(5)) == 5
    assert [event.event for event in q.history()] == ["put"] * 5


def test_a_load_wakes_who_waits(q, waiter):
    jobs = q.create_tube("jobs")
    taker = waiter(q, lambda: jobs.take(None))
    assert jobs.load(["a", "b"]) == 2
    assert taker.result().data == "a"


def test_options_the_kind_lacks_are_refused(q):
    jobs = q.create_tube("jobs", "fifo")
    with pytest.raises(BatchError, match="lane"):
        jobs.load(["a"], lane="x")
    with pytest.raises(UsageError, match="chunk"):
        jobs.load(["a"], chunk=0)
    assert jobs.statistics().tasks["total"] == 0
