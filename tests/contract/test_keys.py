"""Keys, on_conflict and put_id."""

from __future__ import annotations

import pytest
from tests.support.watching import Events, at, elapse

from penstock import DuplicateKey, Entry, Reason, State


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


def in_state(jobs, state, **options):
    """Task 1 with the key k, in that state."""
    jobs.put("old", key="k", pri=3, delay=50 if state == "delayed" else None, **options)
    if state == "taken":
        jobs.take()
    if state == "buried":
        jobs.take().fail("no")


LIVE = ["ready", "taken", "delayed", "buried"]


@pytest.mark.parametrize("state", LIVE)
def test_a_key_of_a_live_task_is_refused(jobs, state):  # case 261
    in_state(jobs, state)
    with pytest.raises(DuplicateKey, match=f"{state} task.*'k'"):
        jobs.put("new", key="k")
    assert [task.data for task in jobs.tasks()] == ["old"]


@pytest.mark.parametrize("state", LIVE)
def test_ignore_answers_the_live_task_unchanged(jobs, state):
    in_state(jobs, state)
    before, events = jobs.peek(1), Events(jobs)
    task = jobs.put("new", key="k", pri=9, on_conflict="ignore")
    assert (task.id, task.outcome, task.data, task.pri) == (1, "existing", "old", 3)
    assert (task.state, task.attempt, events) == (before.state, before.attempt, [])


@pytest.mark.parametrize("state", ["ready", "delayed", "buried"])
def test_replace_is_a_fresh_put_in_the_old_place(jobs, clock, state):
    in_state(jobs, state, ttl=9, max_attempts=1)
    clock.advance(1)
    events = Events(jobs)
    task = jobs.put({"n": 2}, key="k", ttr=7, lane="x", on_conflict="replace")
    assert (task.id, task.outcome, task.state, task.data) == (1, "replaced", State.READY, {"n": 2})
    assert (task.pri, task.ttl, task.ttr, task.lane, task.max_attempts) == (0, None, 7, "x", None)
    assert (task.attempt, task.error, task.errors, task.reason) == (0, None, [], None)
    assert (task.created_at, task.expires_at) == (at(clock), None)
    assert events == [("replace", State.READY, None)]
    assert jobs.take().data == {"n": 2}


def test_a_replaced_task_keeps_its_place_among_equals(jobs):
    jobs.put(1, key="k")
    jobs.put(2)
    jobs.put("one", key="k", on_conflict="replace")
    assert [jobs.take().data for _ in range(2)] == ["one", 2]


def test_replace_with_delay_and_pri(jobs, clock):
    jobs.put(1, key="k")
    task = jobs.put(2, key="k", delay=5, pri=-4, on_conflict="replace")
    assert (task.state, task.pri, task.ready_at) == (State.DELAYED, -4, at(clock, 5))


def test_a_taken_task_is_not_replaced(jobs):
    in_state(jobs, "taken")
    with pytest.raises(DuplicateKey):
        jobs.put("new", key="k", on_conflict="replace")
    assert jobs.peek(1).data == "old"


@pytest.mark.parametrize("state", ["delayed", "buried"])
def test_restart_begins_the_old_task_again(jobs, clock, state):
    in_state(jobs, state, ttl=100)
    clock.advance(1)
    events = Events(jobs)
    task = jobs.put("new", key="k", on_conflict="restart")
    assert (task.id, task.outcome, task.state, task.data) == (1, "restarted", State.READY, "old")
    assert (task.attempt, task.expires_at) == (0, at(clock, 100))
    assert events == [("kick", State.READY, None)]


@pytest.mark.parametrize("state", ["ready", "taken"])
def test_restart_leaves_a_task_that_runs_or_will(jobs, state):
    in_state(jobs, state)
    events = Events(jobs)
    task = jobs.put("new", key="k", on_conflict="restart")
    assert (task.outcome, task.state, task.data, events) == ("existing", state, "old", [])


@pytest.mark.parametrize("mode", ["error", "ignore", "replace", "restart"])
def test_without_conflict_every_mode_is_a_put(jobs, mode):
    assert jobs.put(1, key="k", on_conflict=mode).outcome == "new"


@pytest.mark.parametrize("mode", ["error", "ignore", "replace", "restart"])
@pytest.mark.parametrize("end", ["ack", "kept", "delete", "expired", "cancel"])
def test_the_key_of_an_ended_task_is_free(jobs, clock, end, mode):  # case 263
    jobs.put(1, key="k", ttl=5)
    if end in ("ack", "kept"):
        jobs.take().ack(keep=end == "kept")
    elif end == "delete":
        jobs.delete(1)
    elif end == "cancel":
        jobs.cancel(key="k")
    else:
        elapse(clock, 5)
    task = jobs.put(2, key="k", on_conflict=mode)
    assert (task.id, task.outcome) == (2, "new")


def test_an_empty_key_is_none(jobs):  # case 264
    tasks = jobs.put_many([1, 2], key="")
    assert [task.key for task in tasks] == [None, None]


def test_keys_of_tubes_are_independent(q, jobs):  # case 265
    jobs.put(1, key="k")
    assert q.create_tube("other").put(1, key="k").outcome == "new"


@pytest.mark.parametrize("key", ["k" * 255, "ä", "a b", "'; DROP TABLE", "\u2028", "7"])
def test_any_text_is_a_key(jobs, key):
    assert jobs.put(1, key=key).key == key
    with pytest.raises(DuplicateKey):
        jobs.put(2, key=key)
    assert jobs.cancel(key=key).reason == Reason.CANCELLED


def test_a_key_is_there_after_a_restart(q, bench, jobs):
    jobs.put(1, key="k")
    with pytest.raises(DuplicateKey):
        bench.new_run().tube("jobs").put(2, key="k")


def test_a_duplicate_is_told_before_a_full_tube(q):
    jobs = q.create_tube("full", capacity=1)
    jobs.put(1, key="k")
    with pytest.raises(DuplicateKey):
        jobs.put(2, key="k")
    for mode, outcome in (("ignore", "existing"), ("replace", "replaced"), ("restart", "existing")):
        assert jobs.put(2, key="k", on_conflict=mode).outcome == outcome


def test_keys_count_inside_one_batch(jobs):
    tasks = jobs.put_many([Entry(1, key="k"), Entry(2, key="k"), Entry(3)], on_conflict="ignore")
    assert [(task.data, task.outcome) for task in tasks] == [(1, "new"), (1, "existing"), (3, "new")]


# -- put_id --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", LIVE)
def test_a_repeated_put_answers_the_first(jobs, state):
    jobs.put("x", put_id="p", delay=50 if state == "delayed" else None)
    if state in ("taken", "buried"):
        jobs.take()
    if state == "buried":
        jobs.bury(1)
    task = jobs.put("x", put_id="p")
    assert (task.id, task.outcome, task.state) == (1, "existing", state)
    assert jobs.statistics().calls["put"] == 1


def test_a_put_id_is_known_while_the_task_is_kept(jobs, clock):
    jobs.put("x", put_id="p")
    jobs.take().ack(keep=5)
    assert jobs.put("x", put_id="p").outcome == "existing"
    elapse(clock, 5)
    assert jobs.put("x", put_id="p").outcome == "new"


def test_a_put_id_is_free_once_the_task_is_gone(jobs):
    jobs.put("x", put_id="p")
    jobs.take().ack()
    assert jobs.put("x", put_id="p").outcome == "new"


def test_a_repeated_put_is_no_duplicate_key(jobs):
    jobs.put("x", put_id="p", key="k")
    assert jobs.put("x", put_id="p", key="k").outcome == "existing"


def test_a_repeated_put_fits_into_a_full_tube(q):
    jobs = q.create_tube("full", capacity=1)
    jobs.put("x", put_id="p")
    assert jobs.put("x", put_id="p").outcome == "existing"


def test_a_put_id_is_known_after_a_restart(q, bench, jobs):
    jobs.put("x", put_id="p")
    assert bench.new_run().tube("jobs").put("x", put_id="p").outcome == "existing"
