"""transaction=: puts and acks that become true together with statements on the caller's own psycopg connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.conftest import Background
from tests.support import postgres
from tests.support.invariants import check

import penstock
from penstock import (
    BatchError,
    DuplicateKey,
    Entry,
    LeaseLost,
    NotTaken,
    TubeBusy,
    TubeFull,
    TubeNotFound,
    UsageError,
)
from penstock.engines.postgres.place import Place
from penstock.engines.postgres.templates import channel
from penstock.testing import waiting

Connection = psycopg.Connection[Any]


@pytest.fixture
def url(warm: str) -> str:
    return warm


@pytest.fixture
def q(url: str) -> Iterator[penstock.Queue]:
    with penstock.connect(url) as queue:
        yield queue
        check(url)


@pytest.fixture
def jobs(q: penstock.Queue, request: pytest.FixtureRequest) -> penstock.Tube:
    """A tube, of the kind that a test names."""
    return q.create_tube("jobs", getattr(request, "param", "standard"))


every_kind = pytest.mark.parametrize(
    "jobs", ["fifo", pytest.param("utube", marks=pytest.mark.exhaustive), "standard"], indirect=True
)


@pytest.fixture
def own(url: str) -> Iterator[Connection]:
    """A connection of the caller's on the queue's database, with a table of the caller's."""
    with psycopg.connect(Place.parse(url).conninfo) as connection:
        connection.execute("create temporary table orders (id integer primary key, note text)")
        connection.commit()
        yield connection
        if not connection.closed:
            connection.rollback()


@pytest.fixture
def other(url: str) -> Iterator[Connection]:
    with psycopg.connect(Place.parse(url).conninfo, options="-c lock_timeout=60s") as connection:
        yield connection
        connection.rollback()


def data(tube: penstock.Tube) -> list[Any]:
    return [task.data for task in tube.tasks()]


def orders(connection: Connection) -> int:
    row = psycopg.Cursor(connection).execute("select count(*) from orders").fetchone()
    assert row is not None
    return row[0]


# -- together or not at all ----------------------------------------------------------------------------


@every_kind
def test_a_put_is_there_after_the_commit_of_the_caller(jobs, own):
    own.execute("insert into orders values (1, 'paid')")
    task = jobs.put("ship", transaction=own)
    assert (task.id, task.outcome, task.state, task.data) == (1, "new", "ready", "ship")
    assert data(jobs) == [] and jobs.take() is None
    own.commit()
    assert data(jobs) == ["ship"]
    assert jobs.statistics().tasks["ready"] == jobs.statistics().calls["put"] == 1
    assert jobs.take().data == "ship"


@every_kind
def test_a_put_is_gone_after_the_rollback_of_the_caller(jobs, own):
    jobs.put("before")
    own.execute("insert into orders values (1, 'paid')")
    jobs.put("never", transaction=own)
    jobs.put_many(["nor", "this"], transaction=own)
    jobs.put("nor that", key="k", put_id="p", transaction=own)
    own.rollback()
    assert orders(own) == 0
    assert data(jobs) == ["before"]
    assert jobs.statistics().tasks["total"] == jobs.statistics().calls["put"] == 1
    assert jobs.put("after", key="k", put_id="p").outcome == "new"


@every_kind
def test_many_puts_and_acks_share_one_transaction(q, jobs, own):
    jobs.put_many([1, 2, 3])
    tasks = jobs.take_many(3)
    assert [task.data for task in jobs.put_many([4, 5], transaction=own)] == [4, 5]
    tasks[0].ack(transaction=own)
    jobs.ack_many(tasks[1:], transaction=own)
    own.commit()
    assert data(jobs)[-2:] == [4, 5] and len(data(jobs)) == 5 - len(tasks)
    assert jobs.statistics().calls["ack"] == len(tasks)
    assert len(jobs.take_many(10)) > 0


@pytest.mark.parametrize("keep", [False, True])
def test_an_ack_is_undone_by_the_rollback_of_the_caller(q, own, keep):
    jobs = q.create_tube("jobs", keep=keep)
    jobs.put("work")
    task = jobs.take()
    assert task.ack(result=7, transaction=own).state == "done"
    own.rollback()
    assert jobs.peek(task.id).state == "taken"
    assert jobs.statistics().tasks["taken"] == 1
    jobs.ack(task.id, transaction=own)
    own.commit()
    assert jobs.statistics().tasks["taken"] == 0


@pytest.mark.parametrize(
    "verb", ["ack", "release", *(pytest.param(verb, marks=pytest.mark.exhaustive) for verb in ("fail", "bury"))]
)
def test_a_task_object_whose_ack_was_rolled_back_holds_the_task(jobs, own, verb):
    jobs.put("x")
    task = jobs.take()
    task.ack(transaction=own)
    own.rollback()
    getattr(task, verb)()
    assert jobs.statistics().calls[verb] == 1
    assert own.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@every_kind
def test_a_task_object_whose_ack_was_committed_is_over(jobs, own):
    jobs.put("x")
    task = jobs.take()
    task.ack(transaction=own)
    assert task.ack(transaction=own).state == "done"
    own.commit()
    assert task.ack().state == "done"
    with pytest.raises(LeaseLost):
        task.release()
    assert jobs.statistics().calls["ack"] == 1


@every_kind
def test_a_rollback_to_a_savepoint_undoes_what_came_after_it(jobs, own):
    jobs.put("held")
    task = jobs.take()
    own.execute("savepoint here")
    jobs.put("after", transaction=own)
    jobs.ack(task.id, transaction=own)
    own.execute("rollback to here")
    with own.transaction() as nested:
        jobs.put("nested", transaction=nested)
        raise psycopg.Rollback(nested)
    with own.transaction() as nested:
        jobs.put("stays", transaction=nested)
    own.commit()
    assert sorted(data(jobs)) == ["held", "stays"]
    assert jobs.statistics().tasks["total"] == jobs.statistics().calls["put"] == 2


def test_a_transaction_spans_tubes_and_queues_of_two_schemas(q, jobs, own):
    info = own.info
    place = f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}?schema=elsewhere"
    try:
        with penstock.connect(place) as elsewhere:
            there = elsewhere.create_tube("there", "utube")
            jobs.put(1, transaction=own)
            there.put(2, lane="a", transaction=own)
            own.rollback()
            assert data(jobs) == data(there) == []
            jobs.put(1, transaction=own)
            there.put(2, lane="a", transaction=own)
            own.commit()
            assert (data(jobs), there.take().data) == ([1], 2)
    finally:
        postgres.drop_place(place)


def test_every_option_of_a_put_arrives(q, own):
    jobs = q.create_tube("jobs", id="required", payload="bytes", keep=60)
    entry = Entry(
        b"\x00\xff", pri=-3, ttl=100, ttr=5, delay=7, lane="é", key="☃", put_id="p", id="i", max_attempts=2, repeat=9
    )
    (task,) = jobs.put_many([entry], transaction=own)
    own.commit()
    stored = jobs.peek("i")
    for name in ("id", "data", "pri", "lane", "key", "state", "ttl", "ttr", "max_attempts", "created_at", "expires_at"):
        assert getattr(task, name) == getattr(stored, name), name
    assert stored.data == b"\x00\xff"


@pytest.mark.parametrize("id", ["auto", pytest.param("time64", marks=pytest.mark.exhaustive), "uuid"])
def test_ids_are_given_and_found(q, own, id):
    jobs = q.create_tube("jobs", id=id)
    first, second = jobs.put_many(["a", "b"], transaction=own)
    own.commit()
    assert [task.id for task in jobs.tasks()] == [first.id, second.id]
    held = jobs.take()
    held.ack(transaction=own)
    own.rollback()
    held.ack(transaction=own)
    own.commit()
    assert data(jobs) == ["b"]


def test_a_kind_and_a_callback_are_not_told_what_a_connection_of_the_caller_did(q, own):
    class Told(penstock.Kind):
        ended: list[Any] = []

        def on_finish(self, task):
            self.ended.append(task.id)

    q.register_kind("told", Told)
    tube = q.create_tube("told", "told")
    tube.put_many(["a", "b"])
    first, second = tube.take_many(2)
    events: list[str] = []
    tube.on_task_change(lambda task, event: events.append(event))
    tube.put("c", transaction=own)
    first.ack(transaction=own)
    own.commit()
    assert (Told.ended, events) == ([], [])
    second.ack()
    assert (Told.ended, events) == ([second.id], ["ack"])


# -- refusals leave the transaction usable -------------------------------------------------------------


def test_a_refusal_leaves_the_transaction_of_the_caller_usable(q, own):
    jobs = q.create_tube("jobs", capacity=3)
    gone = q.create_tube("gone")
    gone.drop()
    jobs.put("first", key="k")
    jobs.put("held")
    late = jobs.take()
    jobs.snatch(late.id)
    own.execute("insert into orders values (1, 'x')")
    for refused, error in {
        lambda: jobs.put("again", key="k", transaction=own): DuplicateKey,
        lambda: jobs.put_many(["in", Entry("not", key="k")], transaction=own): BatchError,
        lambda: jobs.put("too many", transaction=own): TubeFull,
        lambda: jobs.put({1}, transaction=own): UsageError,
        lambda: jobs.put("x", id="mine", transaction=own): UsageError,
        lambda: jobs.ack(1, transaction=own): NotTaken,
        lambda: late.ack(transaction=own): LeaseLost,
        lambda: gone.put(1, transaction=own): TubeNotFound,
        lambda: jobs.put(1, timeout=5, transaction=own): UsageError,
        lambda: jobs.put_many([1], timeout=None, transaction=own): UsageError,
    }.items():
        with pytest.raises(error):
            refused()
        assert orders(own) == 1
    own.commit()
    assert data(jobs) == ["first", "held", "in"]


def test_a_key_that_another_has_committed_meanwhile_is_a_refusal(q, own):
    jobs = q.create_tube("jobs")
    own.execute("insert into orders values (1, 'x')")
    jobs.put("mine", key="a", transaction=own)
    jobs.put("theirs", key="b")
    with pytest.raises(DuplicateKey):
        jobs.put("mine", key="b", transaction=own)
    assert jobs.put("mine", key="b", on_conflict="ignore", transaction=own).outcome == "existing"
    assert jobs.put("mine", key="b", on_conflict="replace", transaction=own).outcome == "replaced"
    own.commit()
    assert sorted(data(jobs)) == ["mine", "mine"]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_two_puts_of_one_key_wait_for_each_other_and_neither_transaction_fails(q, own, other, end):
    jobs = q.create_tube("jobs")
    other.execute("create temporary table orders (id integer)")
    jobs.put("first", key="k", transaction=own)
    second = Background(lambda: jobs.put("second", key="k", transaction=other))
    until_blocked(own, other, second)
    getattr(own, end)()
    if end == "commit":
        with pytest.raises(DuplicateKey):
            second.result()
    else:
        assert second.result().outcome == "new"
    assert orders(other) == 0
    other.commit()
    assert data(jobs) == ["first" if end == "commit" else "second"]


def until_blocked(holder: Connection, blocked: Connection, call: Background) -> None:
    ask = "select %s = any (pg_blocking_pids(%s))"
    with psycopg.connect(holder.info.dsn, autocommit=True) as watcher:
        postgres.until(
            lambda: (
                not call.running
                or watcher.execute(ask, [holder.info.backend_pid, blocked.info.backend_pid]).fetchone() == (True,)
            ),
            "nobody waits",
        )
    assert call.running


def test_capacity_counts_what_is_committed_and_ones_own(q, own, other):
    jobs = q.create_tube("jobs", capacity=2)
    jobs.put(1)
    jobs.put(2, transaction=own)
    jobs.put(3, transaction=other)
    for mine in (own, other):
        with pytest.raises(TubeFull):
            jobs.put(4, transaction=mine)
    jobs.put(5)
    own.rollback()
    other.rollback()
    assert data(jobs) == [1, 5]
    with pytest.raises(TubeFull):
        jobs.put(6, transaction=own)


def test_a_tube_that_was_dropped_and_made_anew_elsewhere_is_found(url, q, jobs, own):
    jobs.put("old")
    before = q._engine.store._tubes["jobs"]
    jobs.drop()
    again = q.create_tube("jobs", "fifo")
    q._engine.store._tubes["jobs"] = before  # as in a process that has not heard of it
    own.execute("insert into orders values (1, 'x')")
    again.put("new", transaction=own)
    assert orders(own) == 1
    own.commit()
    assert data(again) == ["new"]


def test_an_altered_tube_is_seen(q, jobs, own):
    jobs.put("y")
    before = q._engine.store._tubes["jobs"]
    jobs.alter(max_attempts=7)
    q._engine.store._tubes["jobs"] = before
    assert jobs.put("x", transaction=own).max_attempts == 7


# -- waking --------------------------------------------------------------------------------------------


def in_line(q: penstock.Queue, call: Any) -> Background:
    before = waiting(q)
    background = Background(call)
    pause = threading.Event()
    while waiting(q) == before and background.running:
        pause.wait(0.001)
    return background


@every_kind
def test_a_waiting_taker_is_woken_by_the_commit_of_the_caller(q, jobs, own):
    taker = in_line(q, lambda: jobs.take(timeout=60))
    jobs.put("wake up", transaction=own)
    assert taker.running
    own.commit()
    assert taker.result().data == "wake up"


def heard(listener: Connection) -> list[int]:
    return [int(note.payload) for note in listener.notifies(timeout=60, stop_after=1)]


def test_a_joined_put_and_ack_notify_although_nobody_waits_yet(url, q, jobs, own):
    jobs.put("held")
    task = jobs.take()
    number = q._engine.store._tubes["jobs"].number
    place = Place.parse(url)
    with psycopg.connect(place.conninfo, autocommit=True) as listener:
        listener.execute(sql.SQL("listen {}").format(sql.Identifier(channel(place.schema))))
        jobs.put("x", transaction=own)
        own.commit()
        assert heard(listener) == [number]
        task.ack(transaction=own)
        own.commit()
        assert heard(listener) == [number]


def test_a_waiting_producer_is_woken_by_an_ack_in_the_commit_of_the_caller(q, own):
    small = q.create_tube("small", capacity=1)
    small.put("first")
    task = small.take()
    producer = in_line(q, lambda: small.put("second", timeout=60))
    task.ack(transaction=own)
    own.commit()
    assert producer.result().data == "second"


def test_a_drop_does_not_wait_for_a_transaction_that_is_open(jobs, own):
    jobs.put("x", transaction=own)
    with pytest.raises(TubeBusy, match="open transaction"):
        jobs.drop()
    own.commit()
    assert data(jobs) == ["x"]
    jobs.drop()
