"""drop and truncate."""

from __future__ import annotations

import pytest

from penstock import LeaseLost, State, TaskNotFound, TubeBusy, TubeNotFound

KINDS = ("fifo", "fifottl", "limfifottl", "utube", "utubettl", "standard")


def fill(tube, delayed=True):
    """A task in every state."""
    tube.put_many(range(4), key=None)
    tube.take().ack(keep=True)
    tube.take()
    tube.bury(3)
    if delayed:
        tube.put("later", delay=60)


def test_a_dropped_tube_is_not_there_any_more(q):  # case 15
    a, b = q.create_tube("a"), q.create_tube("b")
    assert [tube.name for tube in q.tubes()] == ["a", "b"]
    a.put("x")
    a.drop()
    assert [tube.name for tube in q.tubes()] == ["b"]
    with pytest.raises(TubeNotFound, match="'a'"):
        q.tube("a")
    assert "a" not in q.statistics()
    assert b.put("y").id == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda tube: tube.put("x"),
        lambda tube: tube.take(),
        lambda tube: tube.peek(1),
        lambda tube: tube.ack(1),
        lambda tube: tube.kick(),
        lambda tube: tube.tasks(),
        lambda tube: tube.statistics(),
        lambda tube: tube.truncate(),
        lambda tube: tube.drop(),
        lambda tube: tube.pause(),
        lambda tube: tube.alter(ttl=5),
        lambda tube: tube.lanes(),
        lambda tube: tube.wait(1, timeout=5),
        lambda tube: tube.take(timeout=5),
    ],
)
def test_every_verb_of_a_dropped_tube_is_refused(q, call):
    tube = q.create_tube("jobs")
    tube.drop()
    with pytest.raises(TubeNotFound, match="'jobs'"):
        call(tube)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tube_can_be_made_again_after_a_drop_and_is_empty(q, kind):  # cases 120, 133
    tube = q.create_tube("jobs", kind)
    tube.put_many(range(3))
    tube.bury(2)
    tube.drop()
    tube = q.create_tube("jobs", kind)
    assert tube.tasks() == []
    assert tube.put("x").id == 1
    assert tube.take().data == "x"


def test_settings_of_lanes_go_with_the_tube(q):
    tube = q.create_tube("jobs")
    tube.lane("a").configure(concurrency=1)
    tube.drop()
    tube = q.create_tube("jobs")
    tube.put_many(list("xy"), lane="a")
    assert len(tube.take_many(2)) == 2


def test_a_tube_with_a_waiting_taker_is_not_dropped(q, waiter):  # case 138
    tube = q.create_tube("jobs")
    take = waiter(q, lambda: tube.take(timeout=60))
    with pytest.raises(TubeBusy, match="1 taker waits"):
        tube.drop()
    tube.put("x")
    assert take.result().data == "x"


def test_a_tube_with_a_taken_task_is_not_dropped(bench, q):
    tube = q.create_tube("jobs")
    tube.put("x")
    task = bench.connect().tube("jobs").take()
    with pytest.raises(TubeBusy, match="1 task is taken"):
        tube.drop()
    task.ack()
    tube.drop()
    assert q.tubes() == []


def test_a_lease_that_is_over_is_in_nobodys_way(q, clock):
    tube = q.create_tube("jobs", ttr=5)
    tube.put("x")
    tube.take()
    clock.advance(5)
    tube.drop()
    assert q.tubes() == []


def test_a_drop_can_be_forced(q, waiter):
    tube = q.create_tube("jobs")
    tube.put("x")
    task = tube.take()
    take = waiter(q, lambda: tube.take(timeout=60))
    tube.drop(force=True)
    with pytest.raises(TubeNotFound):
        take.result()
    with pytest.raises(TubeNotFound):
        task.ack()
    assert q.tubes() == []


def test_time_goes_on_after_a_tube_with_timers_is_dropped(q, clock):  # case 141
    tube = q.create_tube("jobs")
    tube.bury(tube.put("x", ttl=5).id)
    tube.put("y", delay=5)
    other = q.create_tube("other")
    other.put("z", delay=5)
    tube.drop()
    clock.advance(10)
    assert other.take().data == "z"
    q.tick()


@pytest.mark.parametrize("kind", KINDS)
def test_truncate_clears_tasks_in_every_state_and_drop_works_then(q, kind):  # cases 142, 249
    tube = q.create_tube("jobs", kind)
    if kind.startswith("utube"):
        tube.alter(lane_concurrency=None)
    delayed = kind not in ("fifo", "utube")
    fill(tube, delayed)
    assert tube.truncate() == 4 + delayed
    assert tube.tasks() == []
    statistics = tube.statistics()
    assert [statistics.tasks[name] for name in ("ready", "taken", "delayed", "buried", "kept", "total")] == [0] * 6
    tube.drop()
    assert q.tubes() == []


def test_who_held_a_task_of_a_truncated_tube_is_told(q):  # case 143
    tube = q.create_tube("jobs")
    tube.put("x")
    task = tube.take()
    tube.truncate()
    with pytest.raises(LeaseLost) as error:
        task.ack()
    assert error.value.now == "gone"
    with pytest.raises(TaskNotFound):
        tube.ack(1)
    q.close()


def test_ids_keys_and_lanes_after_truncate(q):
    tube = q.create_tube("jobs", lane_concurrency=1, capacity=2)
    tube.put("x", key="k", lane="a", put_id="p")
    tube.put("y", lane="a")
    tube.take()
    tube.truncate()
    task = tube.put("z", key="k", lane="a", put_id="p")
    assert (task.id, task.outcome) == (3, "new")
    assert tube.take().id == 3
    assert tube.take() is None


def test_truncate_leaves_timers_of_the_dead_without_effect(q, clock):
    tube = q.create_tube("jobs")
    tube.put("x", ttl=5)
    tube.put("y", delay=5)
    tube.truncate()
    tube.put("z")
    clock.advance(10)
    statistics = tube.statistics()
    assert (statistics.tasks["ready"], statistics.calls["ttl"], statistics.calls["delay"]) == (1, 0, 0)
    assert tube.tasks()[0].state == State.READY


def test_truncate_is_no_event(q):
    tube = q.create_tube("jobs", history=True)
    tube.put("x")
    tube.truncate()
    assert [row.event for row in q.history()] == ["put"]


def test_a_drained_take_ends_when_the_tube_is_truncated(q, waiter):
    tube = q.create_tube("jobs")
    tube.put("x", delay=60)
    take = waiter(q, lambda: tube.take(timeout=60, drain=True))
    assert take.running
    tube.truncate()
    assert take.result() is None


def test_a_draining_taker_is_told_though_another_goes_on_waiting(q, waiter):  # case 340
    tube = q.create_tube("jobs")
    tube.put("x")
    task = tube.take()
    patient = waiter(q, lambda: tube.take(timeout=60))
    draining = waiter(q, lambda: tube.take(timeout=60, drain=True))
    assert draining.running
    task.ack()
    assert draining.result() is None
    assert patient.running
    tube.put("y")
    assert patient.result().data == "y"
