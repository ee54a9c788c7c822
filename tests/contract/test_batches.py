"""put_many, take_many, ack_many."""

from __future__ import annotations

import pytest
from tests.support.watching import Events, refused

from penstock import (
    BatchError,
    DuplicateKey,
    Entry,
    LeaseLost,
    NotOwner,
    NotTaken,
    PayloadTooLarge,
    State,
    TaskNotFound,
    TubeFull,
    UsageError,
)


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


def kinds(results):
    """'task' or the class of the error, item by item."""
    return [type(result) if isinstance(result, Exception) else "task" for result in results]


def test_items_are_put_in_their_order(jobs):
    tasks = jobs.put_many(["a", Entry("b", pri=-1, key="k"), "c"], pri=5, ttl=10)
    assert [(task.id, task.data, task.pri, task.key, task.ttl) for task in tasks] == [
        (1, "a", 5, None, 10),
        (2, "b", -1, "k", 10),
        (3, "c", 5, None, 10),
    ]


def test_items_may_be_a_generator(jobs):
    assert [task.data for task in jobs.put_many(n * n for n in range(4))] == [0, 1, 4, 9]


def test_an_empty_batch_is_nothing(jobs):
    events = Events(jobs)
    assert jobs.put_many([]) == []
    assert jobs.ack_many([]) == []
    assert events == []


BAD = Entry("bad", key="taken")


def test_good_items_are_stored_though_others_are_refused(jobs):
    jobs.put("old", key="taken")
    with pytest.raises(BatchError, match=r"1 of 3.*'taken'") as caught:
        jobs.put_many(["a", BAD, "c"])
    assert kinds(caught.value.results) == ["task", DuplicateKey, "task"]
    assert [task.data for task in jobs.tasks()] == ["old", "a", "c"]
    assert caught.value.results[2].id == jobs.tasks()[2].id


def test_the_list_is_given_to_who_asks_for_it(jobs):
    jobs.put("old", key="taken")
    assert kinds(jobs.put_many(["a", BAD, "c"], errors="return")) == ["task", DuplicateKey, "task"]


def test_items_beyond_the_capacity_are_refused(q):
    jobs = q.create_tube("small", capacity=2)
    assert kinds(jobs.put_many([1, 2, 3, 4], errors="return")) == ["task", "task", TubeFull, TubeFull]
    assert [task.data for task in jobs.tasks()] == [1, 2]


def test_every_item_has_an_error_of_its_own(q):
    jobs = q.create_tube("small", "fifottl", max_payload=8)
    jobs.put(0, key="taken")
    items = [1, "x" * 9, Entry(2, key="taken"), Entry(3, lane="a"), Entry(4, ttl=-1), {5}, 6]
    results = jobs.put_many(items, errors="return")
    assert kinds(results) == ["task", PayloadTooLarge, DuplicateKey, UsageError, UsageError, UsageError, "task"]
    assert [task.data for task in jobs.tasks()] == [0, 1, 6]


@pytest.mark.parametrize(("option", "value"), [("pri", "x"), ("ttl", -1), ("on_conflict", "merge")])
def test_an_option_of_the_call_is_refused_for_all(jobs, option, value):
    refused(value, lambda: jobs.put_many([1, 2], **{option: value}))
    assert jobs.tasks() == []


def test_an_unknown_option_is_refused(jobs):
    with pytest.raises(UsageError, match="colour"):
        jobs.put_many([1], colour="red")
    assert jobs.tasks() == []


@pytest.mark.parametrize("verb", ["put_many", "ack_many"])
def test_errors_is_raise_or_return_and_told_before_anything_is_done(jobs, verb):
    jobs.put(1)
    task = jobs.take()
    refused("ignore", lambda: getattr(jobs, verb)([1 if verb == "put_many" else task], errors="ignore"))
    assert [task.state for task in jobs.tasks()] == [State.TAKEN]


def test_a_batch_waits_for_room_and_keeps_its_order(q, waiter):
    jobs = q.create_tube("small", capacity=2)
    producer = waiter(q, lambda: jobs.put_many([1, 2, 3, 4, 5], timeout=None))
    seen = []
    while task := jobs.take():
        seen.append(task.ack().data)
    assert seen == [1, 2, 3, 4, 5]
    assert [task.data for task in producer.result()] == [1, 2, 3, 4, 5]


def test_a_batch_whose_time_is_over_tells_what_was_stored(q, clock, waiter):
    jobs = q.create_tube("small", capacity=2)
    producer = waiter(q, lambda: jobs.put_many([1, 2, 3], timeout=5))
    clock.advance(5)
    with pytest.raises(BatchError) as caught:
        producer.result()
    assert kinds(caught.value.results) == ["task", "task", TubeFull]


def test_too_many_items_are_refused(jobs):
    with pytest.raises(UsageError, match="100001"):
        jobs.put_many([0] * 100_001)
    assert jobs.tasks() == []


# -- ack_many ------------------------------------------------------------------------------------------


def test_tasks_and_ids_are_acked_together(jobs):
    jobs.put_many([1, 2, 3])
    first, _, third = jobs.take_many(3)
    done = jobs.ack_many([first, 2, third])
    assert [(task.id, task.state) for task in done] == [(n, State.DONE) for n in (1, 2, 3)]
    assert (first.state, jobs.tasks()) == (State.DONE, [])
    assert first.ack().state == State.DONE


def test_every_task_that_cannot_be_acked_has_its_error(bench, jobs):
    jobs.put_many(range(1, 6))
    held = jobs.take_many(3)
    bench.connect().tube("jobs").take()
    jobs.snatch(2)
    with pytest.raises(BatchError, match="4 of 6") as caught:
        jobs.ack_many([*held, 4, 5, 77])
    assert kinds(caught.value.results) == ["task", LeaseLost, "task", NotOwner, NotTaken, TaskNotFound]
    assert [(task.id, task.state) for task in jobs.tasks()] == [(2, "ready"), (4, "taken"), (5, "ready")]


def test_ack_many_gives_the_list_to_who_asks_for_it(jobs):
    jobs.put_many([1, 2])
    jobs.take()
    assert kinds(jobs.ack_many([1, 2], errors="return")) == ["task", NotTaken]


def test_a_task_acked_before_gives_the_same_answer(jobs):
    jobs.put_many([1, 2])
    first, second = jobs.take_many(2)
    first.ack()
    assert [task.state for task in jobs.ack_many([first, second, first])] == [State.DONE] * 3
    assert jobs.statistics().calls["ack"] == 2


def test_ack_many_keeps_what_it_is_told_to(jobs):
    jobs.put_many([1, 2])
    jobs.ack_many(jobs.take_many(2), keep=True)
    assert [task.state for task in jobs.tasks()] == [State.DONE, State.DONE]


def test_a_batch_is_one_event_each(jobs):
    events = Events(jobs)
    jobs.put_many([1, 2])
    jobs.ack_many(jobs.take_many(2))
    assert events.names == ["put", "put", "take", "take", "ack", "ack"]


def test_a_batch_of_a_hundred_keeps_order_and_count(jobs):
    jobs.put_many(range(100))
    tasks = jobs.take_many(200)
    assert [task.data for task in tasks] == list(range(100))
    assert [task.token for task in tasks] == sorted({task.token for task in tasks})
    jobs.ack_many(tasks)
    assert jobs.statistics().tasks["done"] == 100


def test_a_stale_task_object_acks_no_later_lease_of_its_session(jobs):
    jobs.put(1)
    stale = jobs.take()
    stale.release()
    again = jobs.take()
    assert kinds(jobs.ack_many([stale], errors="return")) == [LeaseLost]
    assert again.ack().state == State.DONE
