"""put and put_many."""

from __future__ import annotations

from penstock import State


def test_a_task_that_is_put_is_ready_and_has_its_data(q):
    jobs = q.create_tube("jobs", "fifo")
    task = jobs.put({"url": "http://a.example/", "n": [1, 2.5, None, True]})
    assert (task.state, task.id, task.outcome) == (State.READY, 1, "new")
    assert jobs.peek(1).data == {"url": "http://a.example/", "n": [1, 2.5, None, True]}


def test_the_put_of_a_map_leaves_the_map_alone(q):  # case 184
    data = {"b": 1, "a": {"x": []}}
    jobs = q.create_tube("jobs")
    jobs.put(data)
    data["b"] = 2
    assert jobs.peek(1).data == {"b": 1, "a": {"x": []}}
