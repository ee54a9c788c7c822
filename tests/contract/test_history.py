"""history=True: a row for each event, in the same transaction."""

from __future__ import annotations

import pytest

import penstock
from penstock import UsageError
from penstock.testing import lose

FIELDS = (
    "seq at tube task_id event from_state to_state reason attempt pri lane key worker error_class error "
    "ready_at taken_at delay data"
)


def roll_back(q, tube):
    """A put that never happened."""
    with q.transaction() as tx:
        tube.put("x", transaction=tx)
        raise ZeroDivisionError


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs", history=True, retry=7)


def seconds(row, start):
    return (row.at - start).total_seconds()


def test_a_row_has_the_fields_of_the_contract_and_never_a_session_or_token():
    assert penstock.HistoryEvent._fields == tuple(FIELDS.split())


def test_a_life_is_written_down_step_by_step(jobs, q, clock):
    start = jobs.put("x", pri=3, lane="l", key="k", delay=2).created_at
    clock.advance(2)
    task = jobs.take()
    clock.advance(1)
    task.fail(ValueError("no route"))
    clock.advance(7)
    jobs.take().ack(keep=True)
    put, delay, take, fail, again, take2, ack = q.history()
    assert [row.event for row in (put, delay, take, fail, again, take2, ack)] == [
        "put", "delay", "take", "fail", "delay", "take", "ack",
    ]  # fmt: skip
    assert [seconds(row, start) for row in q.history()] == [0, 2, 2, 3, 10, 10, 10]
    assert [row.seq for row in q.history()] == sorted({row.seq for row in q.history()})
    assert {(row.tube, row.task_id, row.pri, row.lane, row.key) for row in q.history()} == {("jobs", 1, 3, "l", "k")}
    assert [(row.from_state, row.to_state) for row in q.history()] == [
        (None, "delayed"), ("delayed", "ready"), ("ready", "taken"), ("taken", "delayed"), ("delayed", "ready"),
        ("ready", "taken"), ("taken", "done"),
    ]  # fmt: skip
    assert [row.attempt for row in q.history()] == [0, 0, 1, 1, 1, 2, 2]
    assert [row.reason for row in q.history()] == [None] * 6 + ["success"]
    assert [row.delay for row in q.history()] == [2, None, None, 7, None, None, None]
    assert (fail.error_class, put.error_class, ack.error) == ("ValueError", None, None)
    assert "no route" in fail.error
    assert [row.taken_at and (row.taken_at - start).total_seconds() for row in q.history()] == [
        None, None, 2, 2, None, 10, 10,
    ]  # fmt: skip
    assert (put.ready_at - start).total_seconds() == 2
    assert (fail.ready_at - start).total_seconds() == 10


@pytest.mark.parametrize("verb", ["fail", "bury"])
def test_an_end_without_an_error_does_not_repeat_the_one_before(jobs, q, verb):
    jobs.put("x")
    jobs.take().fail(ValueError("no route"), delay=0)
    task = getattr(jobs.take(), verb)()
    assert "no route" in task.error
    first, second = (row for row in q.history() if row.event in ("fail", "bury"))
    assert (first.error_class, "no route" in first.error) == ("ValueError", True)
    assert (second.error_class, second.error) == (None, None)


def test_the_same_error_is_written_down_every_time(jobs, q):
    jobs.put("x")
    for _ in range(25):
        jobs.take().fail("again", delay=0)
    assert [row.error for row in q.history(limit=100) if row.event == "fail"] == ["again"] * 25


class Odd_Error1(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ValueError("a: b"), "ValueError"),
        (KeyError(), "KeyError"),
        (Odd_Error1("x"), "Odd_Error1"),
        ("apsw.BusyError: locked", "apsw.BusyError"),
        ("cannot open http://x", None),
        ("http://x/ is down", None),
        ("12:30 was too late", None),
        ("no such page\nValueError: x", None),
        ("two words: b", None),
        ("timeout", None),
        ("", None),
    ],
)
def test_the_class_of_an_error_is_a_name_or_nothing(jobs, q, error, name):
    jobs.put("x")
    jobs.take().fail(error)
    assert q.history()[-1].error_class == name


def test_the_worker_is_named_and_nothing_that_is_a_secret(jobs, q):
    jobs.put("secret data")
    task = jobs.take()
    token = task.token
    task.ack()
    put, take, ack = q.history()
    assert put.worker is None
    assert take.worker == ack.worker
    assert take.worker
    text = repr(q.history())
    assert q.identify() not in text
    assert str(token) not in text
    assert "secret data" not in text


def test_the_data_is_written_down_only_when_asked_for(q):
    tube = q.create_tube("jobs", history=True, history_data=True)
    tube.put({"n": 1})
    tube.take().release(data={"n": 2})
    assert [row.data for row in q.history()] == [{"n": 1}, {"n": 1}, {"n": 2}]


def test_without_the_option_nothing_is_written_down(q):
    jobs = q.create_tube("jobs")
    jobs.put("x")
    jobs.take().ack()
    assert q.history() == []


def test_history_can_be_switched_on_and_off(q):
    jobs = q.create_tube("jobs")
    jobs.put("x")
    jobs.alter(history=True)
    task = jobs.take()
    jobs.alter(history=False)
    task.ack()
    assert [row.event for row in q.history()] == ["take"]


def test_history_is_read_a_page_at_a_time(jobs, q):
    jobs.put_many(range(5))
    first = q.history(limit=2)
    second = q.history(after=first[-1].seq, limit=2)
    third = q.history(after=second[-1].seq)
    assert [row.task_id for row in first + second + third] == [1, 2, 3, 4, 5]
    assert q.history(after=third[-1].seq) == []
    with pytest.raises(UsageError, match="limit"):
        q.history(limit=0)


def test_history_of_one_tube(jobs, q):
    other = q.create_tube("other", history=True)
    jobs.put("x")
    other.put("y")
    jobs.put("z")
    assert [row.tube for row in q.history()] == ["jobs", "other", "jobs"]
    rows = q.history(tube="jobs", limit=1)
    assert [row.task_id for row in rows + q.history(tube="jobs", after=rows[-1].seq)] == [1, 2]


def test_what_time_does_is_written_down_at_its_own_moment(bench, jobs, q, clock):
    start = jobs.put("x", ttr=5, ttl=50).created_at
    jobs.take()
    jobs.put("y")
    lost = bench.connect(session_ttl=9)
    lost.tube("jobs").take()
    lose(lost)
    clock.advance(100)
    assert [(row.task_id, row.event, seconds(row, start)) for row in q.history()[4:]] == [
        (1, "ttr", 5), (2, "release", 9), (1, "ttl", 50),
    ]  # fmt: skip


def test_what_is_rolled_back_leaves_no_history(jobs, q):
    with pytest.raises(ZeroDivisionError):
        roll_back(q, jobs)
    assert q.history() == []


def test_history_is_there_in_the_next_run(bench, jobs, q):
    jobs.put("x")
    jobs.take()
    again = bench.new_run()
    assert [row.event for row in again.history()] == ["put", "take", "release"]
    again.tube("jobs").put("y")
    seqs = [row.seq for row in again.history()]
    assert seqs == sorted(set(seqs))
    assert len(seqs) == 4


def test_history_of_a_temporary_tube_can_be_read(q):
    tube = q.create_tube("jobs", temporary=True, history=True)
    tube.put("x")
    tube.take().ack()
    assert [row.event for row in q.history()] == ["put", "take", "ack"]
    assert [row.event for row in q.history(tube="jobs")] == ["put", "take", "ack"]


def test_ids_of_every_mode_are_written_down(q):
    tube = q.create_tube("jobs", id="required", history=True)
    tube.put("x", id="a")
    tube.put("y", id=7)
    assert [row.task_id for row in q.history()] == ["a", 7]
