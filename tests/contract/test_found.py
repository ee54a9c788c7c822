"""Small histories that an engine has once answered otherwise than the others: what random ones have found."""

from __future__ import annotations

import penstock


def ids(tasks):
    return [task.id for task in tasks]


def test_putting_nothing_is_no_error(q):
    assert q.create_tube("jobs").put_many([]) == []


def test_none_is_stored_as_such_where_a_put_looks_at_each_task(q):
    jobs = q.create_tube("jobs", capacity=3)
    assert jobs.put(None).data is None
    assert jobs.put(None, key="k").data is None
    assert jobs.take().data is None


def test_a_session_that_was_lost_ends_with_the_run(bench, q):
    q.create_tube("jobs").put("a")
    lost = bench.connect()
    lost.tube("jobs").take()
    penstock.testing.lose(lost)
    assert bench.new_run().tube("jobs").take().id == 1


def test_what_was_due_is_told_before_a_put(q):
    jobs = q.create_tube("jobs", history=True)
    told = []
    jobs.on_task_change(lambda task, event: told.append((task.id, event)))
    jobs.put("dead", ttl=0)
    jobs.put("b")
    assert told == [(1, "put"), (1, "ttl"), (2, "put")]
    assert [(row.task_id, row.event) for row in q.history()] == told


def test_a_strict_lane_that_its_first_task_had_shut_joins_at_the_back(q):
    jobs = q.create_tube("jobs", lane_order="strict")
    jobs.put("a1", lane="a")
    jobs.bury(1)
    jobs.put("a2", lane="a")
    jobs.put("b1", lane="b")
    jobs.dig(1)
    jobs.put("c1", lane="c")
    assert ids(jobs.take_many(9)) == [3, 1, 4, 2]


def test_a_put_that_opens_a_strict_lane_joins_at_the_back(q):
    jobs = q.create_tube("jobs", lane_order="strict")
    jobs.put("a1", lane="a", delay=60)
    jobs.put("a2", lane="a")
    jobs.put("b1", lane="b", pri=-1)
    jobs.put("a3", lane="a", pri=-1)
    assert ids(jobs.take_many(9)) == [3, 4]


def test_a_batch_stands_in_the_line_in_its_order_with_and_without_lanes(q):
    jobs = q.create_tube("jobs")
    entries = [penstock.Entry(n, lane=lane) for n, lane in enumerate(["b", "b", None, "a", None])]
    jobs.put_many(entries)
    assert ids(jobs.take_many(4)) == [1, 3, 4, 5]


def test_lanes_that_a_batch_of_acks_opens_join_in_the_order_in_which_it_opens_them(q):
    jobs = q.create_tube("jobs")
    jobs.put_many([penstock.Entry(lane, lane=lane) for lane in "abababc"])
    held = jobs.take_many(4)
    assert ids(held) == [1, 2, 7, 3]
    jobs.alter(lane_concurrency=1)
    jobs.put("c", lane="c")
    jobs.ack_many(held)
    assert ids(jobs.take_many(9)) == [4, 8, 5]


def test_lanes_that_a_batch_of_acks_opens_join_in_its_order_also_if_one_of_its_tasks_is_kept(q):
    jobs = q.create_tube("jobs", lane_concurrency=1)
    jobs.put_many([penstock.Entry(lane, lane=lane) for lane in "abc"])
    held = jobs.take_many(3)
    jobs.put_many([penstock.Entry(lane, lane=lane) for lane in "abc"])
    kept = jobs.put("d", lane="d", keep=60)
    held.insert(1, jobs.take())
    jobs.put("d", lane="d")
    assert held[1].id == kept.id
    jobs.ack_many(held)
    assert ids(jobs.take_many(9)) == [4, 8, 5, 6]


def test_a_task_that_ends_again_in_one_step_counts_again(q):
    jobs = q.create_tube("jobs", keep=60)
    jobs.put("dead", ttl=0)
    assert jobs.statistics().tasks["done"] == 1
    assert jobs.switch(1, "buried").reason == "expired"
    assert jobs.statistics().tasks["done"] == 2
