"""Every verb in every state, made from the tables of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import State
from penstock.model.state import TRANSITIONS, VERBS, Event, Reason, Transition

COLUMNS = ("ready", "taken", "other", "delayed", "buried", "done")
CALLS: dict[str, Callable[[Any, int], Any]] = {
    "ack": lambda jobs, id: jobs.ack(id),
    "release": lambda jobs, id: jobs.release(id),
    "bury": lambda jobs, id: jobs.bury(id),
    "fail": lambda jobs, id: jobs.fail(id, "no route"),
    "touch": lambda jobs, id: jobs.touch(id, 5),
    "peek": lambda jobs, id: jobs.peek(id),
    "dig": lambda jobs, id: jobs.dig(id),
    "delete": lambda jobs, id: jobs.delete(id),
    "snatch": lambda jobs, id: jobs.snatch(id),
    "switch": lambda jobs, id: jobs.switch(id, "buried"),
    "restart": lambda jobs, id: jobs.restart(id),
    "cancel": lambda jobs, id: jobs.cancel(id),
}


def bring(jobs: Any, others: Any, column: str) -> Any:
    """A task in the state of a column; answers the lease of whoever holds it."""
    if column == "delayed":
        jobs.put("x", delay=60)
        return None
    jobs.put("x")
    if column == "buried":
        jobs.bury(1)
    elif column == "taken":
        return jobs.take()
    elif column == "other":
        return others.take()
    elif column == "done":
        jobs.take().ack()
    return None


def edges(q: Any) -> list[Transition]:
    """What the history of a queue says has happened."""
    return [
        Transition(
            Event(row.event),
            None if row.from_state is None else State(row.from_state),
            State(row.to_state),
            None if row.reason is None else Reason(row.reason),
        )
        for row in q.history(limit=100_000)
    ]


def test_the_table_of_verbs_names_every_verb_and_state_once():
    assert VERBS.keys() == CALLS.keys()
    assert all(tuple(answers) == COLUMNS for answers in VERBS.values())


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("verb", CALLS)
def test_a_verb_answers_in_a_state_what_the_table_says(bench, q, verb, column):
    jobs = q.create_tube("jobs", keep=True, history=True)
    lease = bring(jobs, bench.connect().tube("jobs"), column)
    before = jobs.peek(1)
    events_before = len(q.history())
    answer = VERBS[verb][column]
    if answer[0].isupper():
        with pytest.raises(getattr(penstock, answer)):
            CALLS[verb](jobs, 1)
        after = jobs.peek(1)
        assert (after.state, after.reason, after.attempt) == (before.state, before.reason, before.attempt)
        assert len(q.history()) == events_before
        if lease is not None:
            assert lease.ack().state == State.DONE
    elif answer == "gone":
        assert CALLS[verb](jobs, 1).state == State.DONE
        with pytest.raises(penstock.TaskNotFound):
            jobs.peek(1)
    else:
        assert CALLS[verb](jobs, 1).state == State(answer)
        assert jobs.peek(1).state == State(answer)
        if lease is not None and verb in ("snatch", "ack", "release", "bury", "fail"):
            with pytest.raises(penstock.LeaseLost):
                lease.ack()
    assert set(edges(q)) <= TRANSITIONS


@pytest.mark.parametrize("verb", CALLS)
def test_a_verb_on_a_task_that_is_not_there_is_task_not_found(q, verb):  # case 40
    jobs = q.create_tube("jobs")
    with pytest.raises(penstock.TaskNotFound, match="17"):
        CALLS[verb](jobs, 17)


def restarted(jobs: Any, clock: Any) -> None:
    jobs.put("a", ttl=1000)
    jobs.switch(1, "buried")
    jobs.restart(1)
    jobs.touch(1, 5)
    jobs.switch(1, "delayed", delay=5)
    jobs.restart(1, delay=5)
    jobs.restart(1)
    jobs.switch(1, "done")
    jobs.restart(1)
    jobs.switch(1, "done")
    jobs.restart(1, delay=5)
    jobs.switch(1, "done")
    jobs.switch(1, "buried")
    jobs.dig(1, delay=5)
    jobs.switch(1, "buried")


def replaced(jobs: Any, clock: Any) -> None:
    for first in ("ready", "delayed", "buried"):
        for delay in (None, 9):
            task = jobs.put("a", key="k", on_conflict="replace")
            jobs.switch(task.id, first, delay=9 if first == "delayed" else None)
            jobs.put("b", key="k", on_conflict="replace", delay=delay)
            jobs.delete(task.id)


def failed(jobs: Any, clock: Any) -> None:
    jobs.put_many(list("abcdef"), max_attempts=2, ttr=1000)
    jobs.take().fail("x", delay=0)
    jobs.take().fail("x")
    jobs.take().fail("x", delay=5)
    jobs.take().fail("x", abort=True)
    jobs.take().fail("x", abort="unknown_handler")
    jobs.take().bury()
    jobs.take().touch(1)
    jobs.touch(6, 1)


def timed(jobs: Any, clock: Any) -> None:
    jobs.put("ready", ttl=1)
    jobs.put("delayed", delay=1, ttl=5)
    jobs.bury(jobs.put("buried", ttl=1).id)
    jobs.put("lost", pri=-1, ttr=1, max_attempts=1)
    jobs.put("late", pri=-1, ttr=1)
    jobs.put("retried too late", pri=-2, ttl=3, max_attempts=2)
    jobs.take().fail("x", delay=8)
    jobs.take_many(2)
    clock.advance(20)


def ended(jobs: Any, clock: Any) -> None:
    jobs.put_many(list("abcd"), keep=True)
    jobs.put("e", repeat=5)
    for task in jobs.take_many(5):
        task.ack()
    jobs.delete(1)
    jobs.put_many(list("fghi"))
    jobs.bury(6)
    jobs.cancel(6)
    jobs.delete(jobs.take().id)
    jobs.delete(jobs.put("j", delay=5).id)
    jobs.delete(jobs.bury(jobs.put("k").id).id)
    jobs.cancel(jobs.put("l", delay=5).id)
    jobs.cancel(jobs.put("m").id)
    jobs.delete(jobs.put("n", pri=9).id)
    task = jobs.take()
    jobs.cancel(task.id)
    task.release()
    task = jobs.take()
    task.release(delay=5)


LIVES = (restarted, replaced, failed, timed, ended)


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_every_event_of_a_life_is_an_edge_of_the_table(q, clock, life):
    jobs = q.create_tube("jobs", history=True, keep_failed=True)
    life(jobs, clock)
    seen = edges(q)
    assert seen
    assert set(seen) <= TRANSITIONS


def test_every_edge_of_the_table_can_happen(bench, clock):
    q = bench.connect()
    for life in LIVES:
        life(q.create_tube(life.__name__, history=True, keep_failed=True), clock)
    mortal = q.create_tube("mortal", history=True, max_attempts=1)
    mortal.put("x")
    lost = bench.connect(session_ttl=1)
    lost.tube("mortal").take()
    penstock.testing.lose(lost)
    clock.advance(1)
    assert mortal.peek(1).reason == "lost"
    assert TRANSITIONS - set(edges(q)) == set()
