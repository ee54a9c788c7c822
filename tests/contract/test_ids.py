"""Ids and order: every id mode, ids that never come again, (pri, seq)."""

from __future__ import annotations

import uuid
from itertools import count

import pytest
from tests.support.watching import refused

from penstock import DuplicateKey, Entry, State, TaskNotFound, TubeFull, UsageError

GENERATING = ["auto", "time64", "uuid"]


def test_the_first_id_is_one(q):  # case 177
    assert q.create_tube("jobs").put(1).id == 1


def test_the_id_of_a_finished_task_is_not_given_again(q):  # case 2
    jobs = q.create_tube("jobs", "fifo")
    jobs.put_many([1, 2, 3])
    jobs.ack_many(jobs.take_many(3))
    assert jobs.put(4).id == 4


@pytest.mark.parametrize("mode", ["auto", "time64"])
def test_ids_go_on_after_a_restart_of_an_empty_tube(q, bench, mode):  # case 3
    jobs = q.create_tube("jobs", "fifo", id=mode)
    first = jobs.put(1).id
    jobs.take().ack()
    assert bench.new_run().tube("jobs").put(2).id > first


@pytest.mark.parametrize("end", ["delete", "truncate"])
def test_ids_go_on_after_tasks_were_removed(q, end):
    jobs = q.create_tube("jobs")
    jobs.put(1)
    jobs.delete(1) if end == "delete" else jobs.truncate()
    assert jobs.put(2).id == 2


def test_ids_of_tubes_are_independent(q):
    assert [q.create_tube(name).put(1).id for name in "ab"] == [1, 1]


def test_time64_ids_are_nanoseconds_and_rise(q, clock):  # cases 178, 345
    jobs = q.create_tube("jobs", id="time64")
    first, second = jobs.put("x"), jobs.put("y")
    assert (first.id, second.id) == (clock.now() * 1000, clock.now() * 1000 + 1)
    assert first.state == State.READY
    clock.advance(1)
    assert jobs.put("z").id == clock.now() * 1000
    assert [jobs.take().data for _ in range(3)] == ["x", "y", "z"]


def test_uuid_ids_are_unique_text_and_keep_the_order_of_put(q):  # case 179
    jobs = q.create_tube("jobs", id="uuid")
    ids = [task.id for task in jobs.put_many(range(20))]
    assert len({uuid.UUID(text) for text in ids}) == 20
    assert [jobs.take().id for _ in ids] == ids
    assert jobs.ack(ids[3]).data == 3


def test_required_ids_are_the_callers(q):
    jobs = q.create_tube("jobs", id="required")
    assert [jobs.put(n, id=id).id for n, id in enumerate(("b", 7, "a", "7"))] == ["b", 7, "a", "7"]
    assert [jobs.take().data for _ in range(4)] == [0, 1, 2, 3]
    assert (jobs.peek(7).data, jobs.peek("7").data) == (1, 3)


def test_a_required_id_must_be_given(q):  # case 180
    jobs = q.create_tube("jobs", id="required")
    with pytest.raises(UsageError, match="needs an id="):
        jobs.put(1)
    assert jobs.tasks() == []


@pytest.mark.parametrize("id", ["", 1.5, True, b"x", "x" * 256, "a\0b", 1 << 63, ()])
def test_a_bad_id_is_refused(q, id):
    jobs = q.create_tube("jobs", id="required")
    with pytest.raises(UsageError, match="id must"):
        jobs.put(1, id=id)


def test_a_used_id_is_refused_and_the_old_task_unchanged(q):  # case 181
    jobs = q.create_tube("jobs", id="required", keep=True)
    jobs.put("old", id="a")
    with pytest.raises(DuplicateKey, match="'a'"):
        jobs.put("new", id="a")
    jobs.take().ack()
    with pytest.raises(DuplicateKey, match="'a'"):
        jobs.put("new", id="a")
    assert [(task.id, task.data) for task in jobs.tasks()] == [("a", "old")]


def test_an_id_function_makes_the_ids(q):  # case 182
    numbers = count(100)
    jobs = q.create_tube("jobs", id=lambda: f"job-{next(numbers)}")
    assert jobs.put(1).id == "job-100"
    assert [task.id for task in jobs.put_many([2, Entry(3, id="own")])] == ["job-101", "own"]


def test_an_id_function_is_attached_in_every_run(q, bench):
    q.create_tube("jobs", id=lambda: "one").put(1)
    again = bench.new_run()
    with pytest.raises(UsageError, match="attach"):
        again.tube("jobs").put(2)
    assert again.create_tube("jobs", if_not_exists=True, id=lambda: "two").put(2).id == "two"


@pytest.mark.parametrize("mode", GENERATING)
def test_a_tube_that_makes_its_ids_takes_none(q, mode):  # case 183
    jobs = q.create_tube("jobs", id=mode, capacity=1)
    for _ in range(2):
        with pytest.raises(UsageError, match=f"id='{mode}'"):
            jobs.put(1, id=77)
        jobs.put(1, key="k", on_conflict="ignore")
    assert jobs.statistics().tasks["total"] == 1


@pytest.mark.parametrize("mode", GENERATING)
def test_an_id_that_put_does_not_take_is_refused_before_the_key_is_looked_at(q, mode):
    jobs = q.create_tube("jobs", id=mode)
    jobs.put(1, key="k")
    with pytest.raises(UsageError, match=f"id='{mode}'"):
        jobs.put(1, id=77, key="k", on_conflict="ignore")


def test_a_used_id_is_told_before_a_full_tube(q):
    jobs = q.create_tube("jobs", id="required", capacity=1)
    jobs.put(1, id="a")
    with pytest.raises(DuplicateKey):
        jobs.put(2, id="a")
    with pytest.raises(TubeFull):
        jobs.put(2, id="b")


def test_an_id_of_another_type_is_another_id(q):
    jobs = q.create_tube("jobs")
    jobs.put(1)
    for id in ("1", (1,)):
        with pytest.raises(TaskNotFound):
            jobs.peek(id)


# -- order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fifottl", "limfifottl", "utubettl", "standard"])
def test_the_lower_pri_comes_first_then_the_earlier_put(q, kind):  # case 75
    jobs = q.create_tube("jobs", kind)
    for n, pri in enumerate((1, 0, 1, 0, -(1 << 63), (1 << 63) - 1)):
        jobs.put(n, pri=pri)
    assert [jobs.take().ack().data for _ in range(6)] == [4, 1, 3, 0, 2, 5]


def test_release_with_pri_moves_a_task(q):
    jobs = q.create_tube("jobs")
    jobs.put_many([1, 2, 3])
    assert jobs.take().release(pri=1).pri == 1
    assert [jobs.take().data for _ in range(3)] == [2, 3, 1]


def returned(jobs, task, clock, how):
    if how == "release":
        task.release()
    elif how == "delayed release":
        task.release(delay=5)
    elif how == "fail":
        task.fail("no", delay=5)
    elif how == "kick":
        task.bury()
        jobs.kick()
    elif how == "snatch":
        jobs.snatch(task.id)
    clock.advance(5)


@pytest.mark.parametrize("how", ["release", "delayed release", "fail", "kick", "snatch", "ttr"])
def test_every_return_keeps_the_place(q, clock, how):  # cases 41, 42
    jobs = q.create_tube("jobs", "fifottl")
    jobs.put_many(["a", "b", "c", "d"], pri=3)
    first = jobs.take(ttr=5)
    jobs.take(ttr=1000)
    returned(jobs, first, clock, how)
    again = jobs.take()
    assert (again.id, again.data, again.pri) == (1, "a", 3)
    assert jobs.take().data == "c"


@pytest.mark.parametrize("verb", ["ack", "release", "bury", "fail", "peek", "delete", "dig", "snatch", "restart"])
@pytest.mark.parametrize("id", [None, True, 1.5, "", b"1", [1]])
def test_a_verb_without_a_proper_id_is_refused(q, verb, id):  # case 347
    jobs = q.create_tube("jobs")
    refused(id, lambda: getattr(jobs, verb)(id))
