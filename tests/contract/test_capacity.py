"""Tubes that hold a limited number of tasks, and producers that wait for room."""

from __future__ import annotations

import pytest

import penstock
from penstock import BatchError, DuplicateKey, EngineUnavailable, State, TubeFull, UsageError
from penstock.testing import waiting


def total(tube):
    return tube.statistics().tasks["total"]


@pytest.fixture
def full(q):
    """A tube with room for two that has two."""
    jobs = q.create_tube("jobs", "limfifottl", capacity=2)
    jobs.put_many(["a", "b"])
    return jobs


def test_a_put_into_a_full_tube_is_refused_at_once(full):  # case 96, core form
    with pytest.raises(TubeFull, match="capacity of 2"):
        full.put("c")
    assert total(full) == 2
    assert full.statistics().calls["put"] == 2


@pytest.mark.parametrize("kind", ["limfifottl", "standard"])
@pytest.mark.parametrize("options", [{}, {"capacity": 0}, {"capacity": None}])
def test_without_a_capacity_there_is_no_limit(q, kind, options):  # case 93
    jobs = q.create_tube("jobs", kind, **options)
    jobs.put_many(range(500))
    assert jobs.put("one more").id == 501


@pytest.mark.parametrize("kind", ["fifo", "fifottl", "utube", "utubettl"])
def test_a_kind_without_the_feature_takes_no_capacity(q, kind):
    with pytest.raises(UsageError, match="capacity"):
        q.create_tube("jobs", kind, capacity=3)
    assert q.tubes() == []


@pytest.mark.parametrize("capacity", [-1, 1.5, "3", True])
def test_a_capacity_that_is_no_number_of_tasks_is_refused(q, capacity):
    with pytest.raises(UsageError, match="capacity"):
        q.create_tube("jobs", capacity=capacity)


def test_taken_and_buried_tasks_count(full):  # case 94
    full.take()
    full.bury(2)
    with pytest.raises(TubeFull):
        full.put("c")


def test_delayed_and_ready_tasks_count(q):  # case 95
    jobs = q.create_tube("jobs", "limfifottl", capacity=2)
    jobs.put("a", delay=60)
    jobs.put("b")
    with pytest.raises(TubeFull):
        jobs.put("c")


def test_kept_tasks_do_not_count(q):
    jobs = q.create_tube("jobs", capacity=1, keep=True)
    jobs.put("a")
    jobs.take().ack()
    assert jobs.peek(1).state == State.DONE
    assert jobs.put("b").outcome == "new"
    with pytest.raises(TubeFull):
        jobs.put("c")


def test_a_waiting_put_goes_on_when_a_task_is_acked(q, full, waiter):  # case 92
    put = waiter(q, lambda: full.put("c", timeout=1))
    assert put.running
    full.take().ack()
    assert put.result().data == "c"
    assert total(full) == 2


@pytest.mark.parametrize("leave", ["delete", "cancel"])
def test_a_waiting_put_goes_on_however_room_is_made(q, full, waiter, leave):
    put = waiter(q, lambda: full.put("c", timeout=1))
    getattr(full, leave)(1)
    assert put.result().id == 3


def test_a_waiting_put_goes_on_when_the_tube_is_truncated(q, full, waiter):
    put = waiter(q, lambda: full.put("c", timeout=1))
    full.truncate()
    assert put.result().data == "c"
    assert total(full) == 1


def test_a_waiting_put_goes_on_when_a_task_expires(q, clock, waiter):  # case 98
    jobs = q.create_tube("jobs", "limfifottl", capacity=1)
    jobs.put("a", ttl=5)
    put = waiter(q, lambda: jobs.put("b", timeout=60))
    clock.advance(4.999999)
    assert put.running
    clock.advance(0.000001)
    assert put.result().data == "b"


def test_a_full_tube_has_room_from_the_moment_a_task_expires(q, clock):  # case 98
    jobs = q.create_tube("jobs", "limfifottl", capacity=1)
    jobs.put("a", ttl=5)
    clock.advance(5)
    assert jobs.put("b").data == "b"


def test_a_waiting_put_gives_up_when_its_time_is_over(q, full, clock, waiter):  # case 91, core form
    put = waiter(q, lambda: full.put("c", timeout=0.1))
    clock.advance(0.099999)
    assert put.running
    clock.advance(0.000001)
    with pytest.raises(TubeFull):
        put.result()
    assert total(full) == 2
    assert waiting(getattr(q, "_target", q)) == 0
    full.take().ack()
    assert total(full) == 1


def test_a_put_without_a_limit_waits_for_ever(q, full, clock, waiter):
    put = waiter(q, lambda: full.put("c", timeout=None))
    clock.advance(1_000_000)
    assert put.running
    full.take().ack()
    assert put.result().data == "c"


def test_a_negative_timeout_does_not_wait(full):
    with pytest.raises(TubeFull):
        full.put("c", timeout=-1)


def test_a_put_that_can_wait_does_not_if_there_is_room(full):
    full.take().ack()
    assert full.put("c", timeout=10).data == "c"


def test_waiting_producers_are_served_in_the_order_they_came(q, full, waiter):
    puts = [waiter(q, lambda name=name: full.put(name, timeout=60)) for name in "cdef"]
    for number, put in enumerate(puts, 1):
        full.delete(number)
        assert put.result().id == number + 2
        assert [later.running for later in puts[number:]] == [True] * (4 - number)
    assert [task.data for task in full.take_many(2)] == ["e", "f"]


def test_a_producer_that_gave_up_leaves_its_place_to_the_next(q, full, clock, waiter):
    first = waiter(q, lambda: full.put("first", timeout=1))
    second = waiter(q, lambda: full.put("second", timeout=10))
    clock.advance(1)
    with pytest.raises(TubeFull):
        first.result()
    full.take().ack()
    assert second.result().data == "second"


def test_a_task_of_a_waiting_producer_wakes_a_waiting_taker(q, waiter):
    jobs = q.create_tube("jobs", capacity=1)
    jobs.bury(jobs.put("a").id)
    put = waiter(q, lambda: jobs.put("b", timeout=60))
    take = waiter(q, lambda: jobs.take(timeout=60))
    jobs.delete(1)
    assert put.result().id == take.result().id == 2


def test_a_batch_fills_the_room_there_is_and_names_the_rest(full):
    full.take().ack()
    with pytest.raises(BatchError) as error:
        full.put_many(["c", "d", "e"])
    first, *rest = error.value.results
    assert first.data == "c"
    assert [type(result) for result in rest] == [TubeFull, TubeFull]
    assert total(full) == 2


def test_a_waiting_batch_is_stored_as_room_is_made_and_answered_in_order(q, full, waiter):
    put = waiter(q, lambda: full.put_many(["c", "d", "e"], timeout=60))
    for _ in range(2):
        full.take().ack()
        assert put.running
        assert total(full) == 2
    full.take().ack()
    assert [task.data for task in put.result()] == ["c", "d", "e"]
    assert [task.id for task in full.tasks()] == [4, 5]


def test_a_batch_whose_time_is_over_keeps_what_was_stored(q, full, clock, waiter):
    put = waiter(q, lambda: full.put_many(["c", "d"], timeout=5))
    full.take().ack()
    clock.advance(5)
    with pytest.raises(BatchError) as error:
        put.result()
    stored, refused = error.value.results
    assert (stored.data, type(refused)) == ("c", TubeFull)
    assert [task.data for task in full.tasks()] == ["b", "c"]


def test_release_and_ttr_in_a_full_tube_are_always_accepted(q, clock):  # case 99
    jobs = q.create_tube("jobs", "limfifottl", capacity=2, ttr=5)
    jobs.put_many(["a", "b"])
    jobs.take().release()
    jobs.take()
    clock.advance(5)
    assert jobs.statistics().tasks["ready"] == 2


def test_a_full_tube_takes_tasks_back_by_any_verb_but_put(q):
    jobs = q.create_tube("jobs", "standard", capacity=1, keep=True, retry=0)
    jobs.put("a")
    jobs.take().ack()
    jobs.put("b")
    assert jobs.restart(1).state == State.READY
    assert total(jobs) == 2
    jobs.take().fail("x")
    assert jobs.statistics().tasks["ready"] == 2
    jobs.bury(1)
    assert jobs.kick() == 1
    with pytest.raises(TubeFull):
        jobs.put("c")


def test_the_key_is_looked_at_before_the_room(q):
    jobs = q.create_tube("jobs", capacity=1)
    jobs.put("a", key="k", put_id="p")
    with pytest.raises(DuplicateKey):
        jobs.put("b", key="k")
    assert jobs.put("b", key="k", on_conflict="ignore").outcome == "existing"
    assert jobs.put("b", key="k", on_conflict="replace").outcome == "replaced"
    jobs.delete(1)
    jobs.put("c", put_id="p")
    assert jobs.put("c", put_id="p").outcome == "existing"


def test_more_capacity_lets_waiting_producers_in(q, full, waiter):
    put = waiter(q, lambda: full.put("c", timeout=60))
    full.alter(capacity=3)
    assert put.result().data == "c"
    with pytest.raises(TubeFull):
        full.put("d")
    full.alter(capacity=None)
    assert full.put("d").data == "d"


def test_less_capacity_keeps_what_is_there_and_refuses_until_enough_has_gone(full):
    full.alter(capacity=1)
    assert total(full) == 2
    full.take().ack()
    with pytest.raises(TubeFull):
        full.put("c")
    full.take().ack()
    assert full.put("c").data == "c"


def test_the_capacity_holds_over_sessions_and_runs(bench, full):
    with pytest.raises(TubeFull):
        bench.connect().tube("jobs").put("c")
    with pytest.raises(TubeFull):
        bench.new_run().tube("jobs").put("c")


def test_a_waiting_put_whose_tube_is_dropped_is_told(q, full, waiter):
    put = waiter(q, lambda: full.put("c", timeout=60))
    full.drop()
    with pytest.raises(penstock.TubeNotFound):
        put.result()


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_producer_that_waits_on_a_queue_that_is_closed_is_told_so(bench, full, waiter, timeout):
    other = bench.connect()
    tube = other.tube("jobs")
    put = waiter(other, lambda: tube.put("c", timeout=timeout))
    other.close()
    with pytest.raises(EngineUnavailable, match="was closed while this call waited") as error:
        put.result()
    assert error.value.outcome == "not_done"
    assert total(full) == 2


def test_producers_of_a_closed_queue_know_what_was_stored(bench, full, waiter):
    full.delete(1)
    other = bench.connect()
    tube = other.tube("jobs")
    put = waiter(other, lambda: tube.put_many(["c", "d"], timeout=None, errors="return"))
    other.close()
    stored, refused = put.result()
    assert stored.data == "c"
    assert isinstance(refused, EngineUnavailable)
