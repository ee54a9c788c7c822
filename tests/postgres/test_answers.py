"""What comes back from the database is what the store in memory gives: ids of any shape, and the words of refusals."""

from __future__ import annotations

import pytest

import penstock

IDS = [1, "one", (1, "a"), ((1,), 2), ((("deep",), 1), (2, (3,)))]


@pytest.mark.parametrize("task_id", IDS, ids=repr)
def test_ids_come_back_as_they_were_given(place, task_id):
    with penstock.connect(place) as q:
        jobs = q.create_tube("jobs", id="required", history=True)
        assert jobs.put("data", id=task_id).id == task_id
        assert jobs.take().id == task_id
        assert jobs.peek(task_id).id == task_id
        assert [task.id for task in jobs.tasks()] == [task_id]
        assert {event.task_id for event in q.history()} == {task_id}
