"""Statistics: how many tasks there are, and what was done in this run."""

from __future__ import annotations

from collections import Counter

import pytest

import penstock
from penstock import State


def roll_back(q, tube):
    """A put that never happened."""
    with q.transaction() as tx:
        tube.put("x", transaction=tx)
        raise ZeroDivisionError


def used(statistics):
    """The calls that were made at all."""
    return {event: number for event, number in statistics.calls.items() if number}


def work(tube):
    tube.put_many(range(5))
    tube.delete(5)
    tube.take().release()
    tube.take().ack()
    tube.bury(2)
    tube.bury(3)
    assert tube.kick(1) == 1
    tube.take()


@pytest.mark.parametrize("kind", ["fifo", "utube", "fifottl", "limfifottl", "utubettl", "standard"])
def test_tasks_and_calls_are_counted(q, kind):  # case 129
    tube = q.create_tube("jobs", kind)
    if kind.startswith("utube"):
        tube.alter(lane_concurrency=None)
    work(tube)
    statistics = tube.statistics()
    assert statistics.tasks == {
        "ready": 1, "taken": 1, "delayed": 0, "buried": 1, "kept": 0, "done": 2, "total": 3,
    }  # fmt: skip
    assert used(statistics) == {"put": 5, "delete": 1, "take": 3, "release": 1, "ack": 1, "bury": 2, "kick": 1}


@pytest.mark.parametrize("kind", ["fifottl", "limfifottl", "standard"])
def test_delayed_tasks_are_counted(q, kind):  # case 130
    tube = q.create_tube("jobs", kind)
    work(tube)
    tube.put("later", delay=1000)
    statistics = tube.statistics()
    assert (statistics.tasks["delayed"], statistics.tasks["total"], statistics.calls["put"]) == (1, 4, 6)


def test_a_take_that_finds_nothing_is_not_counted(q, clock, waiter):  # case 131
    jobs = q.create_tube("jobs")
    assert jobs.take() is None
    take = waiter(q, lambda: jobs.take(timeout=5))
    clock.advance(5)
    assert take.result() is None
    assert used(jobs.statistics()) == {}


def test_an_expiry_is_counted_as_one(q, clock):  # case 132
    jobs = q.create_tube("jobs")
    jobs.put("x", ttl=5)
    clock.advance(5)
    statistics = jobs.statistics()
    assert used(statistics) == {"put": 1, "ttl": 1}
    assert (statistics.tasks["done"], statistics.tasks["total"]) == (1, 0)


def test_a_new_tube_of_an_old_name_counts_from_zero(q):  # case 133
    jobs = q.create_tube("jobs")
    jobs.put_many(list("ab"))
    jobs.drop()
    statistics = q.create_tube("jobs").statistics()
    assert set(statistics.tasks.values()) | set(statistics.calls.values()) == {0}


def test_statistics_of_all_tubes_are_by_name(q):  # case 135
    q.create_tube("a").put("x")
    q.create_tube("b")
    assert {name: found.tasks["ready"] for name, found in q.statistics().items()} == {"a": 1, "b": 0}
    gone = q.tube("b")
    gone.drop()
    with pytest.raises(penstock.TubeNotFound, match="'b'"):
        gone.statistics()


def test_burying_a_buried_task_is_not_counted(q):  # cases 46, 137
    jobs = q.create_tube("jobs")
    jobs.put("x")
    jobs.bury(1)
    assert jobs.bury(1).state == State.BURIED
    assert jobs.statistics().calls["bury"] == 1


def test_one_touch_is_counted_as_one(q):  # case 85
    jobs = q.create_tube("jobs", ttr=60)
    jobs.put("x")
    jobs.take().touch(5)
    assert jobs.statistics().calls["touch"] == 1


def test_kept_tasks_are_counted_apart_until_they_are_purged(q, clock):
    jobs = q.create_tube("jobs", keep=5)
    jobs.put_many(list("ab"))
    jobs.take().ack()
    tasks = jobs.statistics().tasks
    assert (tasks["kept"], tasks["done"], tasks["total"]) == (1, 1, 1)
    clock.advance(5)
    tasks = jobs.statistics().tasks
    assert (tasks["kept"], tasks["done"], tasks["total"]) == (0, 1, 1)


def test_a_task_that_is_done_twice_is_counted_twice(q):
    jobs = q.create_tube("jobs", keep=True)
    jobs.put("x")
    jobs.take().ack()
    jobs.restart(1)
    jobs.take().ack()
    tasks = jobs.statistics().tasks
    assert (tasks["done"], tasks["kept"]) == (2, 1)
    jobs.delete(1)
    assert jobs.statistics().tasks["done"] == 2, "it was done already"


def test_what_is_due_is_counted_as_done(q, clock):
    jobs = q.create_tube("jobs")
    jobs.put("later", delay=5)
    jobs.put("mortal", ttl=5)
    jobs.put("held", pri=-1, ttr=5)
    jobs.take()
    clock.advance(5)
    assert q.statistics()["jobs"].tasks == {
        "ready": 2, "taken": 0, "delayed": 0, "buried": 0, "kept": 0, "done": 1, "total": 2,
    }  # fmt: skip


def test_many_things_that_are_due_at_one_moment_are_all_done(q, clock):  # cases 89, 255
    jobs = q.create_tube("jobs")
    jobs.put_many(range(1500), delay=5)
    jobs.put_many(range(1500), ttl=5)
    clock.advance(5)
    tasks = jobs.statistics().tasks
    assert (tasks["ready"], tasks["done"]) == (1500, 1500)


def test_counts_are_the_rows_after_any_sequence(q, clock):  # case 351
    jobs = q.create_tube("jobs", keep_failed=True, retry=3, ttr=8)
    for n in range(60):
        jobs.put(n, delay=n % 4, ttl=10 + n % 7, pri=n % 3)
        if task := jobs.take():
            [task.ack, task.release, task.bury, task.fail, task.touch][n % 5](*([1] if n % 5 == 4 else []))
        if n % 6 == 0:
            jobs.kick(2)
        if n % 11 == 0:
            clock.advance(3)
        rows = Counter(task.state.value for task in jobs.tasks(limit=1000))
        tasks = jobs.statistics().tasks
        assert {state: tasks[state] for state in ("ready", "taken", "delayed", "buried")} == {
            state: rows[state] for state in ("ready", "taken", "delayed", "buried")
        }
        assert tasks["kept"] == rows["done"]
        assert tasks["total"] == sum(rows.values()) - rows["done"]
    jobs.truncate()
    tasks = jobs.statistics().tasks
    assert (tasks["total"], tasks["kept"]) == (0, 0)


def test_calls_go_on_over_truncate(q):
    jobs = q.create_tube("jobs")
    jobs.put_many(list("abc"))
    jobs.take().ack()
    assert jobs.truncate() == 2
    statistics = jobs.statistics()
    assert used(statistics) == {"put": 3, "take": 1, "ack": 1}
    assert (statistics.tasks["done"], statistics.tasks["total"]) == (1, 0)


def test_batches_are_counted_task_by_task(q):  # case 245
    jobs = q.create_tube("jobs")
    jobs.put_many(range(10))
    tasks = jobs.take_many(10)
    jobs.ack_many(tasks[:5])
    for task in tasks[5:]:
        task.release()
    for task in jobs.take_many(5):
        task.release(delay=60)
    statistics = jobs.statistics()
    assert used(statistics) == {"put": 10, "take": 15, "ack": 5, "release": 10}
    assert (statistics.tasks["delayed"], statistics.tasks["total"]) == (5, 5)


def test_what_is_rolled_back_is_not_counted(q):
    jobs = q.create_tube("jobs")
    with pytest.raises(ZeroDivisionError):
        roll_back(q, jobs)
    assert used(jobs.statistics()) == {}
    assert jobs.statistics().tasks["total"] == 0


def test_counts_have_readable_names(q):  # case 248
    """xqueue's stats(pretty) names Ready, Taken, Waiting, Buried, Zombie, Done; here they are always words."""
    jobs = q.create_tube("jobs")
    jobs.put_many(range(5))
    jobs.put("waits", delay=60)
    jobs.take().ack()
    jobs.take().ack(keep=60)
    jobs.take().bury()
    jobs.take()
    tasks = jobs.statistics().tasks
    assert {name: tasks[name] for name in ("ready", "taken", "delayed", "buried", "kept", "done")} == {
        "ready": 1, "taken": 1, "delayed": 1, "buried": 1, "kept": 1, "done": 2,
    }  # fmt: skip
