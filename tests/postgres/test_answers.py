"""What comes back from the database is what the store in memory gives: ids of any shape, and the words of refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock

IDS = [1, "one", (1, "a"), ((1,), 2), ((("deep",), 1), (2, (3,)))]


@pytest.fixture
def place(warm: str) -> str:
    return warm


@pytest.mark.parametrize("task_id", IDS, ids=repr)
def test_ids_come_back_as_they_were_given(place, task_id):
    with penstock.connect(place, session_ttl=1000) as q:  # a sign of life on its way would hold back the history
        jobs = q.create_tube("jobs", id="required", history=True)
        assert jobs.put("data", id=task_id).id == task_id
        assert jobs.take().id == task_id
        assert jobs.peek(task_id).id == task_id
        assert [task.id for task in jobs.tasks()] == [task_id]
        assert {event.task_id for event in q.history()} == {task_id}


# -- refusals ------------------------------------------------------------------------------------------


class Case:
    """A tube with a task that has got somewhere, and a second queue of the same store."""

    def __init__(self, url: str) -> None:
        self.q, self.other = penstock.connect(url), penstock.connect(url)
        self.jobs = self.q.create_tube("jobs", keep=True, id="required")

    def begin(self, task_id: str) -> None:
        self.jobs.truncate()
        self.id = self.jobs.put("data", id=task_id, key="k'\"").id
        self.task: penstock.Task | None = None

    def take(self) -> None:
        self.task = self.jobs.take()

    def lose(self) -> None:
        self.take()
        self.jobs.snatch(self.id)

    def lose_to_another(self) -> None:
        self.lose()
        self.other.tube("jobs").take()

    def finish(self) -> None:
        self.take()
        self.jobs.ack(self.id)

    def replace(self) -> None:
        self.finish()
        self.jobs.put("the same key", id="another", key="k'\"")

    def delete(self) -> None:
        self.take()
        self.jobs.delete(self.id)

    def close(self) -> None:
        self.q.close()
        self.other.close()


STATES: dict[str, Callable[[Case], Any]] = {
    "ready": lambda case: None,
    "delayed": lambda case: case.jobs.switch(case.id, "delayed", delay=600),
    "taken": Case.take,
    "taken by another": lambda case: case.other.tube("jobs").take(),
    "buried": lambda case: case.jobs.bury(case.id),
    "lost": Case.lose,
    "lost to another": Case.lose_to_another,
    "done": Case.finish,
    "done and put again": Case.replace,
    "gone": Case.delete,
}
VERBS: dict[str, Callable[[Case], Any]] = {
    **{
        name: lambda case, name=name: getattr(case.jobs, name)(case.id)
        for name in ("ack", "release", "bury", "fail", "peek", "dig", "delete", "snatch", "restart", "cancel")
    },
    "touch": lambda case: case.jobs.touch(case.id, 1),
    "switch to ready": lambda case: case.jobs.switch(case.id, "ready"),
    "switch to done": lambda case: case.jobs.switch(case.id, "done"),
    "cancel by key": lambda case: case.jobs.cancel(key="k'\""),
    "put": lambda case: case.jobs.put("more", id="more", key="k'\""),
    "tasks": lambda case: case.jobs.tasks(after=case.id),
    **{
        f"{name} a lease": lambda case, name=name: case.task and getattr(case.task, name)()
        for name in ("ack", "release", "bury", "fail")
    },
    "touch a lease": lambda case: case.task and case.task.touch(1),
}


def said(case: Case, state: str, verb: str) -> tuple[str, str] | None:
    case.begin(verb)
    STATES[state](case)
    try:
        VERBS[verb](case)
    except penstock.PenstockError as error:
        return type(error).__name__, str(error)
    return None


IN_EVERY_RUN = ("ready", "taken by another", "lost to another", "done and put again", "gone")


@pytest.mark.parametrize(
    "state", [pytest.param(state, marks=() if state in IN_EVERY_RUN else pytest.mark.exhaustive) for state in STATES]
)
def test_refusals_are_worded_as_in_memory(place, state):
    answers = []
    for url in (f"memory:refusals-{state.replace(' ', '-')}", place):
        case = Case(url)
        answers.append({verb: said(case, state, verb) for verb in VERBS})
        case.close()
    assert answers[0] == answers[1]
