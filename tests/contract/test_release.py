"""release and release_all."""

from __future__ import annotations

from datetime import datetime

import pytest
from tests.support.watching import Events, at, refused

from penstock import PayloadTooLarge, State, UsageError


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


def test_a_released_task_comes_before_later_ones(jobs):  # case 41
    jobs.put_many([1, 2, 3, 4])
    first, _ = jobs.take_many(2)
    assert first.release().state == State.READY
    assert [jobs.take().data for _ in range(3)] == [1, 3, 4]


def test_a_released_task_is_what_it_was(jobs, clock):  # case 42
    put = jobs.put({"a": 1}, pri=5, ttl=100, ttr=7, lane="x", key="k", max_attempts=3)
    clock.advance(1)
    jobs.take().release()
    task = jobs.peek(1)
    for name in ("id", "data", "pri", "lane", "key", "ttl", "ttr", "max_attempts", "created_at", "expires_at"):
        assert getattr(task, name) == getattr(put, name), name
    assert (task.deadline, task.attempt, task.reason) == (None, 1, None)


@pytest.mark.parametrize("kind", ["fifo", "utube"])
@pytest.mark.parametrize("option", ["delay", "ttl", "pri"])
def test_release_takes_no_option_that_the_kind_lacks(q, kind, option):  # case 43
    jobs = q.create_tube("plain", kind)
    jobs.put(1)
    task = jobs.take()
    with pytest.raises(UsageError, match=f"'{option}'"):
        task.release(**{option: 5})
    assert jobs.peek(1).state == State.TAKEN


def test_a_delayed_release_is_ready_at_its_moment(jobs, clock):  # case 206
    jobs.put_many(["a", "b"])
    first, second = jobs.take_many(2)
    first.release(delay=10)
    assert second.release(delay=at(clock, 5)).ready_at == at(clock, 5)
    assert jobs.take() is None
    clock.advance(5)
    assert jobs.take().data == "b"
    assert jobs.take() is None
    clock.advance(5)
    assert jobs.take().data == "a"


def test_a_delay_of_release_moves_the_end_of_life(jobs, clock):  # case 65
    jobs.put(1, ttl=10, ttr=20)
    task = jobs.take().release(delay=5)
    assert (task.expires_at, task.ttr) == (at(clock, 15), 20)
    clock.advance(14.999999)
    assert jobs.take().data == 1


@pytest.mark.parametrize(("delay", "end"), [(None, 3), (5, 8)])
def test_release_with_ttl_begins_a_new_life(jobs, clock, delay, end):  # case 207
    jobs.put(1, ttl=100)
    task = jobs.take()
    clock.advance(50)
    released = task.release(ttl=3, delay=delay)
    assert (released.ttl, released.expires_at) == (3, at(clock, end))


def test_release_with_ttl_saves_a_task_whose_ttl_has_passed(jobs, clock):
    jobs.put(1, ttl=10, ttr=60)
    task = jobs.take()
    clock.advance(20)
    assert task.release(ttl=5).state == State.READY


def test_release_keeps_the_count_of_attempts_and_refund_takes_it_back(jobs):
    jobs.put(1, max_attempts=1)
    assert jobs.take().release().attempt == 1
    assert jobs.take().release(refund=True).attempt == 1
    assert jobs.take().attempt == 2


def test_a_release_without_attempts_left_is_ready_all_the_same(jobs):
    jobs.put(1, max_attempts=1)
    assert jobs.take().release().state == State.READY


def test_release_can_change_the_data(jobs):  # case 205
    jobs.put({"step": 1})
    task = jobs.take()
    assert task.data == {"step": 1}
    assert task.release(data={"step": 2}).data == {"step": 2}
    assert task.data == {"step": 2}
    assert jobs.take().data == {"step": 2}


def test_release_can_change_the_data_to_none(jobs):
    jobs.put(1)
    jobs.take().release(data=None)
    assert jobs.take().data is None


def test_data_that_is_too_long_is_refused_and_the_lease_stays(q):
    jobs = q.create_tube("small", max_payload=10)
    jobs.put(1)
    task = jobs.take()
    with pytest.raises(PayloadTooLarge, match="11 bytes"):
        task.release(data="x" * 9)
    assert jobs.peek(1).state == State.TAKEN


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("delay", float("nan")),
        ("delay", "soon"),
        ("delay", datetime(2030, 1, 1)),
        ("pri", 1.5),
        ("pri", 1 << 63),
        ("ttl", -1),
        ("ttl", float("nan")),
        ("data", {1}),
    ],
)
def test_a_bad_option_is_refused_and_the_lease_stays(jobs, option, value):
    jobs.put(1)
    task = jobs.take()
    refused(value, lambda: task.release(**{option: value}))
    assert jobs.peek(1).state == State.TAKEN


def test_release_all_gives_back_what_everybody_holds(bench, jobs):  # case 55
    jobs.put_many([1, 2, 3])
    other = bench.connect().tube("jobs")
    held = [jobs.take(), other.take(), jobs.take()]
    events = Events(jobs)
    assert jobs.release_all() == 3
    assert events == [("release", State.READY, None)] * 3
    assert jobs.statistics().tasks["ready"] == 3
    for task in held:
        with pytest.raises(Exception, match="lease"):
            task.ack()


def test_release_all_of_nothing_does_nothing(jobs):  # case 56
    jobs.put(1)
    events = Events(jobs)
    assert jobs.release_all() == 0
    assert events == []


def test_release_all_leaves_other_tubes_alone(q, jobs):
    other = q.create_tube("other")
    for tube in (jobs, other):
        tube.put(1)
        tube.take()
    assert jobs.release_all() == 1
    assert other.peek(1).state == State.TAKEN
