"""The connection breaks during a call: what was done is found out, and what cannot be is said to be unknown."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from tests.conftest import Background
from tests.support import postgres
from tests.support.postgres import until
from tests.support.proxy import REPLY, REQUEST, Proxy
from tests.support.wires import reach

import penstock
from penstock import EngineUnavailable, LeaseLost
from penstock.engines.postgres import connections, templates
from penstock.model import ops
from penstock.model.task import Draft
from penstock.testing import waiting


class Line:
    """A place behind a proxy, and two queues on it: one that goes through it and one that does not."""

    def __init__(self, place: str, stack: ExitStack) -> None:
        server = postgres.shared_server()
        parts = urlsplit(place)
        self.database = parts.path[1:]
        (self.schema,) = parse_qs(parts.query)["schema"]
        self.proxy: Proxy = stack.enter_context(Proxy(server.port))
        self.other = stack.enter_context(penstock.connect(place))
        self.other.create_tube("jobs", history=True)
        self.other.create_tube("plain")
        self.q = stack.enter_context(self.connect())

    def connect(self, **options: Any) -> penstock.Queue:
        return penstock.connect(self.proxy.url(self.database, schema=self.schema, notify="off", **options))

    def rows(self, ask: str) -> list[Any]:
        with postgres.shared_server().connect(self.database) as connection:
            connection.execute(f"set search_path to {self.schema}")
            return connection.execute(ask).fetchall()

    def end_backends(self) -> None:
        """The server ends all connections of stores to this place."""
        ours = "datname = current_database() and application_name = 'penstock'"
        self.rows(f"select pg_terminate_backend(pid, 60000) from pg_stat_activity where {ours}")  # noqa: S608


@pytest.fixture
def line(warm: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    monkeypatch.setattr(connections, "reach", reach)  # none that outlives its store: they break here
    with ExitStack() as stack:
        yield Line(warm, stack)


TUBES = pytest.mark.parametrize("name", [pytest.param("plain", marks=pytest.mark.exhaustive), "jobs"])
LOST = pytest.mark.parametrize("lost", [REQUEST, REPLY])
BOTH = pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("plain", REQUEST),
        ("jobs", REPLY),
        *(pytest.param(*it, marks=pytest.mark.exhaustive) for it in (("plain", REPLY), ("jobs", REQUEST))),
    ],
)
"""What is lost, on a tube without a history and on one with it."""


@BOTH
def test_a_put_with_a_put_id_is_repeated_and_stored_once(line, name, lost):
    jobs = line.q.tube(name)
    jobs.put("first")
    line.proxy.lose(lost, "put")
    task = jobs.put("second", put_id="2")
    assert task.data == "second"
    assert [task.data for task in line.other.tube(name).tasks()] == ["first", "second"]


@BOTH
def test_a_plain_put_says_that_nobody_knows(line, name, lost):
    jobs = line.q.tube(name)
    jobs.put("first")
    line.proxy.lose(lost, "put")
    with pytest.raises(EngineUnavailable, match="may have been done") as caught:
        jobs.put("second")
    assert caught.value.outcome == "unknown"
    stored = [task.data for task in line.other.tube(name).tasks()]
    assert stored == (["first"] if lost == REQUEST else ["first", "second"])
    assert jobs.put("third").data == "third", "the queue goes on"


@BOTH
def test_an_ack_is_repeated_and_answered_as_done(line, name, lost):
    jobs = line.q.tube(name)
    jobs.put("work")
    task = jobs.take()
    line.proxy.lose(lost, "ack_")
    assert task.ack().reason == "success"
    assert line.other.tube(name).statistics().tasks["total"] == 0
    assert line.other.tube(name).statistics().calls["ack"] == 1


@LOST
def test_an_ack_of_a_kept_task_has_its_result_and_one_of_many_is_done_too(line, lost):
    kept = line.q.create_tube("kept", keep=True)
    kept.put_many([1, 2])
    task = kept.take()
    line.proxy.lose(lost, "ack_")
    assert task.ack(result="seen").reason == "success"
    assert kept.result(task.id) == "seen"
    line.proxy.lose(lost, "ack_")
    assert [task.reason for task in kept.ack_many(kept.take_many(5))] == ["success"]


def test_an_ack_that_was_not_done_and_whose_lease_is_over_is_a_lost_lease(line):
    jobs = line.q.tube("jobs")
    jobs.put("work")
    task = jobs.take()
    line.other.tube("jobs").snatch(task.id)
    line.proxy.lose(REQUEST, "ack_")
    with pytest.raises(LeaseLost):
        task.ack()


@pytest.mark.parametrize(
    "end", ["release", *(pytest.param(it, marks=pytest.mark.exhaustive) for it in ("bury", "fail"))]
)
def test_other_ends_of_a_lease_are_repeated_if_they_were_not_done(line, end):
    jobs = line.q.create_tube("tries", max_attempts=3)
    jobs.put_many([1, 2])
    for lost in (REQUEST, REPLY):
        task = jobs.take()
        line.proxy.lose(lost, ".act(")
        call = getattr(task, end)
        if lost == REQUEST:
            assert call("no" if end != "release" else None).state != "taken"
        else:
            with pytest.raises(EngineUnavailable) as caught:
                call("no" if end != "release" else None)
            assert caught.value.outcome == "unknown"
        assert line.other.tube("tries").peek(task.id).state != "taken"


@BOTH
def test_what_a_lost_take_was_granted_is_given_back_and_granted_again(line, name, lost):
    jobs = line.q.tube(name)
    jobs.put_many(["a", "b", "c"])
    held = jobs.take()
    line.proxy.lose(lost, "take_")
    tasks = jobs.take_many(2)
    assert [task.data for task in tasks] == ["b", "c"]
    assert [task.attempt for task in tasks] == [1, 1], "what was not offered is no attempt"
    assert held.ack().reason == "success", "what this process knows of is left alone"
    assert [task.ack().reason for task in tasks] == ["success", "success"]


def test_what_another_process_shares_a_session_for_is_not_taken_for_lost(line):
    """A session that was resumed: tokens above ours may be the other's."""
    jobs, others = line.q.tube("plain"), line.other.tube("plain")
    jobs.put_many(["a", "b", "c"])
    line.q.identify(line.other.identify())
    theirs = others.take()
    line.proxy.lose(REPLY, "take_")
    assert jobs.take().data == "c", "b was granted in the lost reply, and stays so until the session ends"
    assert theirs.ack().reason == "success"


def test_a_waiting_take_goes_on_over_a_lost_reply(line):
    jobs = line.q.tube("plain")
    taker = Background(lambda: jobs.take(timeout=60))
    until(lambda: waiting(line.q) == 1, "nobody waits")
    line.proxy.lose(REPLY, "take_")
    line.other.tube("plain").put("work")
    line.proxy.wait()
    assert taker.result().data == "work"


def test_a_grant_that_is_committed_after_the_reconnect_is_found_too(line, monkeypatch):
    """The client is gone, but its backend still waits: it commits when nobody listens any more."""
    monkeypatch.setattr(connections, "LOCK_PATIENCE", 100_000)
    line.proxy.break_all()  # connections that are made from now on wait for locks for as long as that
    slow = line.q.create_tube("slow", concurrency=10)
    slow.put("work")
    number = line.rows("select number from tubes where name = 'slow'")[0][0]
    with postgres.shared_server().connect(line.database) as blocker:
        lock = templates.lock(line.schema, number) + 1
        blocker.execute("select pg_advisory_lock(%s)", (lock,))
        taker = Background(lambda: slow.take(timeout=60))
        blocked = f"select count(*) from pg_locks where not granted and objid = {lock & 0xFFFFFFFF}"  # noqa: S608
        until(lambda: line.rows(blocked)[0][0] == 1, "the take does not wait")
        line.proxy.break_all()
        until(lambda: line.rows(blocked)[0][0] == 2, "the take is not repeated")
        blocker.execute("select pg_advisory_unlock(%s)", (lock,))
    task = taker.result()
    assert task.data == "work"
    assert line.other.tube("slow").statistics().tasks["taken"] == 1
    assert task.ack().reason == "success"


def test_reads_are_repeated(line):
    jobs = line.q.tube("jobs")
    task = jobs.put("x")
    for at, read in [
        (".act(", lambda: jobs.peek(task.id).data == "x"),
        ("list_tasks", lambda: len(jobs.tasks()) == 1),
        ("statistics", lambda: jobs.statistics().tasks["ready"] == 1),
        ("state()", lambda: line.q.state() == "RUNNING"),
        ("tubes", lambda: len(line.q.tubes()) == 2),
    ]:
        line.proxy.lose(REPLY, at)
        assert read()
        line.proxy.wait()


def test_ops_of_several_threads_are_each_told_what_became_of_theirs(line):
    """A group whose commit is lost: what has a put id is repeated, the plain put is not stored twice."""
    store = line.q._engine.store
    requests = [
        ops.Put("plain", (Draft('"a"', put_id="a"),)),
        ops.Put("plain", (Draft('"b"'),)),
        ops.Take("plain", 1, line.q._session),
    ]
    line.proxy.lose(REPLY, "COMMIT")
    first, second, third = store.execute_many(requests)
    assert first[0].outcome == "existing"
    assert isinstance(second, EngineUnavailable) and second.outcome == "unknown"
    assert [record.data for record in third] == ['"a"']
    assert [task.data for task in line.other.tube("plain").tasks()] == ["a", "b"]


def test_a_group_that_breaks_before_its_commit_is_simply_done_again(line):
    requests = [ops.Put("plain", (Draft(f'"{n}"'),)) for n in range(3)]
    line.q.tube("plain").put("first")
    line.proxy.lose(REPLY, "put")
    answers = line.q._engine.store.execute_many(requests)
    line.proxy.wait()
    assert [answer[0].outcome for answer in answers] == ["new"] * 3
    assert [task.data for task in line.other.tube("plain").tasks()] == ["first", "0", "1", "2"]


# -- transactions of the caller's -----------------------------------------------------------------------


@TUBES
def test_the_outcome_of_a_transaction_whose_commit_was_lost_is_asked_for(line, name):
    jobs = line.q.tube(name)
    line.proxy.lose(REPLY, "COMMIT")
    with line.q.transaction() as tx:
        jobs.put("kept", transaction=tx)
    line.proxy.wait()
    line.proxy.lose(REQUEST, "COMMIT")
    with pytest.raises(EngineUnavailable) as caught, line.q.transaction() as tx:
        jobs.put("undone", transaction=tx)
    assert caught.value.outcome == "not_done"
    assert [task.data for task in line.other.tube(name).tasks()] == ["kept"]


def test_a_transaction_that_breaks_in_the_middle_was_not_done(line):
    jobs = line.q.tube("plain")
    with pytest.raises(EngineUnavailable) as caught, line.q.transaction() as tx:  # noqa: PT012
        jobs.put("undone", transaction=tx)
        line.proxy.break_all()
        jobs.put("undone", transaction=tx)
    assert caught.value.outcome == "not_done"
    assert jobs.put("after").data == "after"
    assert [task.data for task in jobs.tasks()] == ["after"]


def test_errors_of_the_callers_own_statements_stay_theirs(line):
    jobs = line.q.tube("plain")
    with pytest.raises(psycopg.errors.DivisionByZero), line.q.transaction() as tx:  # noqa: PT012
        jobs.put("undone", transaction=tx)
        tx.connection.execute("select 1 / 0")
    assert jobs.tasks() == []


def test_a_reply_that_is_late_is_waited_for(line):
    jobs = line.q.tube("plain")
    jobs.put_many(["first"])
    jobs.put("prepares")
    jobs.put("the statement")
    line.proxy.stall()
    try:
        call = Background(lambda: jobs.put("late").data)
        until(lambda: len(line.other.tube("plain").tasks()) == 4, "the put is not done")
        assert call.running
    finally:
        line.proxy.go_on()
    assert call.result() == "late"


# -- lost while nobody called ---------------------------------------------------------------------------


def stop_keeper(q: penstock.Queue) -> None:
    """Stop the keeper thread, so that only the test makes calls."""
    keeper = q._engine.store._keeper
    keeper.stop()
    until(lambda: not keeper._thread.is_alive(), "the keeper does not stop")


def test_a_connection_that_was_lost_while_idle_is_replaced_before_a_put(line):
    jobs = line.q.tube("plain")
    # A keeper might replace it before the put, or be about to connect: then its backend is not there to be ended.
    stop_keeper(line.q)
    for end_all in (line.proxy.break_all, line.end_backends):
        jobs.put("x")
        before = set(line.proxy._lines)
        assert before
        end_all()
        until(lambda before=before: not before & line.proxy._lines, "the end of a backend is not passed on")
        assert jobs.put("y").data == "y"


def test_a_connection_that_breaks_before_it_is_ready_is_made_anew(line):
    jobs = line.q.tube("plain")
    stop_keeper(line.q)
    jobs.put("x")
    line.proxy.lose(REQUEST, "set lock_timeout")
    line.proxy.break_all()
    assert jobs.put("y", put_id="y").data == "y"
    line.proxy.wait()


def test_a_server_that_cannot_be_reached_has_done_nothing(line):
    line.q.close()
    with line.connect(patience="0.1") as q:
        jobs = q.tube("plain")
        line.proxy.shut()
        line.proxy.break_all()
        another = functools.partial(line.connect, patience="0.1")
        for call in (lambda: jobs.put("x"), jobs.take, jobs.statistics, another, q.transaction().__enter__):
            with pytest.raises(EngineUnavailable, match="cannot be reached") as caught:
                call()
            assert caught.value.outcome == "not_done"
        line.proxy.open()
        assert jobs.tasks() == []
