"""transaction=: puts and acks that become true together with the caller's own statements."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.conftest import Background
from tests.support import invariants

import penstock
from penstock import BatchError, DuplicateKey, LeaseLost, TubeFull, TubeNotFound, UsageError
from penstock.testing import waiting


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def q(path: Path) -> Iterator[penstock.Queue]:
    with penstock.connect(str(path)) as queue:
        yield queue
        invariants.check(str(path))


@pytest.fixture(params=["fifo", "utube", "standard"])
def jobs(q: penstock.Queue, request: pytest.FixtureRequest) -> penstock.Tube:
    return q.create_tube("jobs", request.param)


@pytest.fixture
def own(path: Path, q: penstock.Queue) -> Iterator[apsw.Connection]:
    """A connection of the caller's on the store's file."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(60_000)
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)")
    yield connection
    connection.close()


def begin(connection: apsw.Connection) -> apsw.Connection:
    connection.set_busy_timeout(60_000)  # the queue writes too, now and then
    connection.execute("BEGIN IMMEDIATE")
    return connection


def data(tube: penstock.Tube) -> list[Any]:
    return [task.data for task in tube.tasks()]


# -- on the caller's connection ------------------------------------------------------------------------


def test_a_put_is_there_after_the_commit_of_the_caller(path, jobs, own):
    begin(own)
    own.execute("INSERT INTO orders VALUES (1, 'paid')")
    task = jobs.put("ship", transaction=own)
    assert (task.id, task.outcome) == (1, "new")
    other = apsw.Connection(str(path))
    assert other.execute("SELECT count(*) FROM orders").fetchall() == [(0,)]
    own.execute("COMMIT")
    assert other.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]
    assert data(jobs) == ["ship"]
    assert jobs.statistics().tasks["ready"] == jobs.statistics().calls["put"] == 1
    assert jobs.take().data == "ship"


def test_a_kind_is_not_told_what_a_connection_of_the_caller_ended(q, own):
    class Told(penstock.Kind):
        ended: list[Any] = []

        def on_finish(self, task):
            self.ended.append(task.id)

    q.register_kind("told", Told)
    tube = q.create_tube("told", "told")
    tube.put_many(["a", "b", "c"])
    first, second, third = tube.take_many(3)
    begin(own)
    first.ack(transaction=own)
    tube.ack_many([second], transaction=own)
    own.execute("COMMIT")
    assert Told.ended == []
    third.ack()
    assert Told.ended == [3]


def test_a_put_is_gone_after_the_rollback_of_the_caller(jobs, own):
    jobs.put("before")
    begin(own)
    jobs.put("never", transaction=own)
    jobs.put_many(["nor", "this"], transaction=own)
    own.execute("ROLLBACK")
    assert data(jobs) == ["before"]
    assert jobs.statistics().tasks["total"] == jobs.statistics().calls["put"] == 1
    assert jobs.put("after").id == 2


def test_a_put_that_is_not_committed_is_invisible(path, jobs, own):
    begin(own)
    jobs.put("later", transaction=own)
    with penstock.connect(f"sqlite:///{path}?mode=ro") as reader:
        assert reader.tube("jobs").tasks() == []
        assert reader.tube("jobs").statistics().tasks["ready"] == 0
        own.execute("COMMIT")
        assert data(reader.tube("jobs")) == ["later"]


def test_many_puts_and_acks_share_one_transaction(jobs, own):
    jobs.put_many([1, 2, 3])
    tasks = jobs.take_many(3)
    begin(own)
    assert [task.id for task in jobs.put_many([4, 5], transaction=own)] == [4, 5]
    for task in tasks[:1]:
        task.ack(transaction=own)
    jobs.ack_many(tasks[1:], transaction=own)
    own.execute("COMMIT")
    assert data(jobs)[-2:] == [4, 5]
    assert len(data(jobs)) == 5 - len(tasks)
    assert jobs.statistics().calls["ack"] == len(tasks)


def test_an_ack_is_undone_by_the_rollback_of_the_caller(jobs, own):
    jobs.put("work")
    task = jobs.take()
    begin(own)
    jobs.ack(task.id, transaction=own)
    own.execute("ROLLBACK")
    assert jobs.peek(task.id).state == "taken"
    assert jobs.statistics().tasks["taken"] == 1
    assert jobs.ack(task.id).reason == "success"
    assert jobs.statistics().tasks["total"] == 0


def test_a_refusal_leaves_the_transaction_of_the_caller_usable(q, own):
    jobs = q.create_tube("jobs", capacity=3)
    jobs.put("first", key="k")
    held = jobs.put("held")
    assert jobs.take(timeout=0) is not None
    begin(own)
    own.execute("INSERT INTO orders VALUES (1, 'x')")
    with pytest.raises(DuplicateKey):
        jobs.put("again", key="k", transaction=own)
    with pytest.raises(BatchError) as caught:
        jobs.put_many([penstock.Entry("good", key="new"), penstock.Entry("bad", key="k")], transaction=own)
    assert [type(result).__name__ for result in caught.value.results] == ["Task", "DuplicateKey"]
    with pytest.raises(TubeFull):
        jobs.put("too many", transaction=own)
    with pytest.raises(penstock.NotTaken):
        jobs.ack(held.id, transaction=own)
    with pytest.raises(UsageError):
        jobs.put("no such option", id=7, transaction=own)
    assert own.in_transaction
    own.execute("COMMIT")
    assert own.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]
    assert data(jobs) == ["first", "held", "good"]


def test_a_lost_lease_in_a_transaction_changes_nothing(path, jobs, own):
    jobs.put("work")
    task = jobs.take()
    jobs.snatch(task.id)
    begin(own)
    with pytest.raises(LeaseLost):
        task.ack(transaction=own)
    own.execute("COMMIT")
    assert jobs.peek(task.id).state == "ready"


def test_a_connection_of_pythons_own_sqlite_is_refused(path, jobs, own):
    connection = sqlite3.connect(":memory:")
    connection.execute("BEGIN")
    with pytest.raises(UsageError, match=r"two SQLite libraries"):
        jobs.put(1, transaction=connection)
    connection.close()
    assert data(jobs) == []


@pytest.mark.parametrize("other", ["text", 7, object()])
def test_what_is_no_connection_is_refused(jobs, other):
    with pytest.raises(UsageError, match=r"apsw\.Connection"):
        jobs.put(1, transaction=other)


def test_a_connection_on_another_file_is_refused(tmp_path, jobs):
    connection = begin(apsw.Connection(str(tmp_path / "other.db")))
    with pytest.raises(UsageError, match=r"other\.db"):
        jobs.put(1, transaction=connection)
    connection.close()
    assert data(jobs) == []


def test_a_connection_on_the_same_file_by_another_name_is_taken(tmp_path, path, jobs):
    link = tmp_path / "link.db"
    link.symlink_to(path)
    connection = begin(apsw.Connection(str(link)))
    jobs.put(1, transaction=connection)
    connection.execute("COMMIT")
    connection.close()
    assert data(jobs) == [1]


def test_a_connection_without_a_transaction_is_refused(jobs, own):
    with pytest.raises(UsageError, match="BEGIN"):
        jobs.put(1, transaction=own)
    assert data(jobs) == []


@pytest.mark.parametrize("timeout", [1, None])
def test_a_put_in_a_transaction_cannot_wait(jobs, own, timeout):
    begin(own)
    with pytest.raises(UsageError, match="timeout"):
        jobs.put(1, timeout=timeout, transaction=own)
    with pytest.raises(UsageError, match="timeout"):
        jobs.put_many([1], timeout=timeout, transaction=own)
    own.execute("COMMIT")
    assert data(jobs) == []


def in_line(q: penstock.Queue, call: Any) -> Background:
    before = waiting(q)
    background = Background(call)
    pause = threading.Event()
    while waiting(q) == before and background.running:
        pause.wait(0.001)
    return background


def test_a_waiting_taker_is_woken_by_the_commit_of_the_caller(q, jobs, own):
    taker = in_line(q, lambda: jobs.take(timeout=60))
    begin(own)
    jobs.put("wake up", transaction=own)
    assert taker.running
    own.execute("COMMIT")
    assert taker.result().data == "wake up"


def test_a_waiting_producer_is_woken_by_an_ack_in_the_commit_of_the_caller(q, own):
    small = q.create_tube("small", capacity=1)
    small.put("first")
    task = small.take()
    producer = in_line(q, lambda: small.put("second", timeout=60))
    begin(own)
    task.ack(transaction=own)
    own.execute("COMMIT")
    assert producer.result().data == "second"


def test_a_store_with_temporary_tubes_takes_part_with_its_other_tubes(q, jobs, own):
    cache = q.create_tube("cache", temporary=True)
    begin(own)
    jobs.put("lasting", transaction=own)
    with pytest.raises(UsageError, match="temporary"):
        cache.put("fleeting", transaction=own)
    own.execute("COMMIT")
    assert data(jobs) == ["lasting"] and data(cache) == []


def test_an_unknown_tube_leaves_the_transaction_usable(q, jobs, own):
    gone = q.create_tube("gone")
    gone.drop()
    begin(own)
    with pytest.raises(TubeNotFound):
        gone.put(1, transaction=own)
    jobs.put(2, transaction=own)
    own.execute("COMMIT")
    assert data(jobs) == [2]


# -- q.transaction() -----------------------------------------------------------------------------------


def test_puts_and_acks_of_a_transaction_happen_together(jobs, q):
    jobs.put("work")
    task = jobs.take()
    with q.transaction() as tx:
        jobs.put_many(["a", "b"], transaction=tx)
        task.ack(transaction=tx)
        tx.connection.execute("CREATE TABLE notes (x)")
    assert data(jobs) == ["a", "b"]
    assert jobs.statistics().tasks["total"] == 2


def transaction_that_fails(q: penstock.Queue, inside: Any) -> BaseException:
    """What comes out of a transaction in which something is raised."""
    try:
        with q.transaction() as tx:
            inside(tx)
            raise ZeroDivisionError
    except (ZeroDivisionError, apsw.Error, penstock.PenstockError) as error:
        return error


def test_an_exception_undoes_a_transaction_and_what_is_remembered_of_it(path, jobs, q):
    jobs.put("before")
    jobs.take()
    before = jobs.statistics()
    failing = transaction_that_fails(
        q, lambda tx: (jobs.put_many(["a", "b"], transaction=tx), jobs.ack(1, transaction=tx))
    )
    assert isinstance(failing, ZeroDivisionError)
    assert jobs.statistics() == before
    assert jobs.peek(1).state == "taken"
    assert jobs.put("after").id == 2
    invariants.check(str(path))


def test_an_error_of_the_callers_own_statement_stays_what_it_is(q, jobs):
    failing = transaction_that_fails(
        q, lambda tx: (jobs.put("never", transaction=tx), tx.connection.execute("SELECT * FROM nothing"))
    )
    assert isinstance(failing, apsw.SQLError)
    assert data(jobs) == []
    jobs.put("goes on")


def test_a_refusal_leaves_a_transaction_usable(q):
    jobs = q.create_tube("jobs")
    jobs.put("first", key="k")
    with q.transaction() as tx:
        with pytest.raises(DuplicateKey):
            jobs.put("again", key="k", transaction=tx)
        jobs.put("second", transaction=tx)
    assert data(jobs) == ["first", "second"]


def test_calls_of_the_same_thread_without_transaction_are_refused(q, jobs):
    with q.transaction() as tx:
        jobs.put("in", transaction=tx)
        for call in (lambda: jobs.put("out"), jobs.take, q.statistics, lambda: q.transaction().__enter__()):
            with pytest.raises(UsageError, match="transaction="):
                call()
    assert data(jobs) == ["in"]


def test_calls_of_other_threads_wait_for_the_end_of_a_transaction(q, jobs):
    begun = threading.Event()

    def put_outside() -> Any:
        begun.set()
        return jobs.put("out")

    with q.transaction() as tx:
        jobs.put("in", transaction=tx)
        others = [Background(put_outside) for _ in range(4)]
        assert begun.wait(90)
        line = q._engine.store._group._pending
        while len(line) < len(others):
            assert all(other.running for other in others)
        jobs.put("in too", transaction=tx)
    assert sorted(other.result().id for other in others) == [3, 4, 5, 6]
    assert data(jobs) == ["in", "in too", "out", "out", "out", "out"]


def test_transactions_of_many_threads_take_turns(q, jobs):
    def pair(n: int) -> None:
        with q.transaction() as tx:
            jobs.put([n, 1], transaction=tx)
            jobs.put([n, 2], transaction=tx)

    threads = [Background(lambda n=n: pair(n)) for n in range(20)]
    for thread in threads:
        thread.result()
    found = data(jobs)
    assert len(found) == 40
    assert all(found[i][0] == found[i + 1][0] for i in range(0, 40, 2))


def test_a_waiting_taker_is_served_after_the_commit_of_a_transaction(q, jobs):
    taker = in_line(q, lambda: jobs.take(timeout=60))
    with q.transaction() as tx:
        jobs.put("x", transaction=tx)
        assert taker.running
    assert taker.result().data == "x"


def test_a_transaction_that_has_ended_takes_nothing_more(path, q, jobs):
    with q.transaction() as tx:
        jobs.put("in", transaction=tx)
    with pytest.raises(UsageError, match="ended"):
        jobs.put("late", transaction=tx)
    with pytest.raises(ZeroDivisionError), q.transaction() as tx:
        raise ZeroDivisionError
    with pytest.raises(UsageError, match="ended"):
        jobs.put("late", transaction=tx)
    assert data(jobs) == ["in"]
    invariants.check(str(path))


def test_a_transaction_of_another_store_is_refused(tmp_path, q, jobs):
    with penstock.connect(str(tmp_path / "other.db")) as other:
        there = other.create_tube("jobs")
        with q.transaction() as tx, pytest.raises(UsageError, match=r"other\.db"):
            there.put(1, transaction=tx)
        assert data(there) == []


def test_a_transaction_sees_what_another_process_has_done(path, q, jobs, own):
    """Nothing that is remembered from before outlives a change by somebody else."""
    jobs.put("a")
    begin(own)
    jobs.put("b", transaction=own)
    own.execute("COMMIT")
    with q.transaction() as tx:
        assert jobs.put("c", transaction=tx).id == 3
    assert jobs.statistics().tasks["ready"] == 3
