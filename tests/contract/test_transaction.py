"""q.transaction(): puts and acks that happen together or not at all."""

from __future__ import annotations

import pytest
from tests.support.watching import Events

from penstock import BatchError, DuplicateKey, Entry, LeaseLost, NotTaken, State, TubeFull, UsageError


class Undo(Exception):
    """Raised by a test to roll back."""


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


@pytest.fixture
def rolled_back(q):
    """Do something in a transaction that is then undone."""

    def undone(work):
        with q.transaction() as tx:
            work(tx)
            raise Undo

    def run(work):
        with pytest.raises(Undo):
            undone(work)

    return run


def test_what_is_committed_is_there(q, jobs):  # case 258
    with q.transaction() as tx:
        first = jobs.put("a", transaction=tx)
        rest = jobs.put_many(["b", "c"], transaction=tx)
    assert [task.id for task in (first, *rest)] == [1, 2, 3]
    assert [task.data for task in jobs.tasks()] == ["a", "b", "c"]


def test_what_is_rolled_back_never_was(jobs, rolled_back):  # case 258
    events = Events(jobs)
    jobs.put("old")

    def work(tx):
        jobs.put("new", key="k", put_id="p", delay=5, transaction=tx)
        jobs.put_many([1, 2], transaction=tx)

    rolled_back(work)
    assert [task.data for task in jobs.tasks()] == ["old"]
    assert jobs.statistics().calls["put"] == 1
    assert jobs.statistics().tasks["total"] == 1
    assert events.names == ["put"]
    assert jobs.put("again", key="k", put_id="p").outcome == "new"


def test_an_ack_and_its_put_are_one(q, jobs):
    jobs.put("in")
    task = jobs.take()
    with q.transaction() as tx:
        jobs.put("out", transaction=tx)
        assert task.ack(transaction=tx).state == State.DONE
    assert [task.data for task in jobs.tasks()] == ["out"]


@pytest.mark.parametrize("keep", [False, True])
def test_an_ack_that_is_rolled_back_leaves_the_lease(q, rolled_back, keep):
    jobs = q.create_tube("jobs", keep=keep)
    jobs.put("x")
    task = jobs.take()
    rolled_back(lambda tx: jobs.ack(task.id, transaction=tx))
    assert jobs.peek(1).state == State.TAKEN
    assert task.ack().state == State.DONE
    assert jobs.statistics().tasks["taken"] == 0


@pytest.mark.parametrize("verb", ["ack", "release", "fail", "bury", "touch"])
def test_a_task_object_whose_ack_was_rolled_back_holds_the_task(jobs, rolled_back, verb):
    jobs.put("x", ttr=60)
    task = jobs.take()
    rolled_back(lambda tx: task.ack(transaction=tx))
    getattr(task, verb)(*([5] if verb == "touch" else []))
    assert jobs.statistics().calls[verb] == 1


def test_ack_many_that_was_rolled_back_can_be_done_again(jobs, rolled_back):
    jobs.put_many([1, 2])
    tasks = jobs.take_many(2)
    rolled_back(lambda tx: jobs.ack_many(tasks, transaction=tx))
    assert jobs.statistics().tasks["taken"] == 2
    assert [task.state for task in jobs.ack_many(tasks)] == [State.DONE, State.DONE]
    assert jobs.statistics().tasks["taken"] == 0


def test_a_task_acked_in_a_transaction_gives_the_same_answer_again(q, jobs):
    jobs.put("x")
    task = jobs.take()
    with q.transaction() as tx:
        task.ack(result=1, transaction=tx)
        assert task.ack(result=2, transaction=tx).result == 1
    assert task.ack(result=3).result == 1
    with pytest.raises(LeaseLost):
        task.release()
    assert jobs.statistics().calls["ack"] == 1


def test_a_task_whose_transaction_failed_is_failed_by_its_block(q, jobs):
    jobs.put("x")

    def work():
        with jobs.take() as task, q.transaction() as tx:
            task.ack(transaction=tx)
            raise Undo

    with pytest.raises(Undo):
        work()
    assert jobs.peek(1).state == State.BURIED


@pytest.mark.parametrize("outer", ["task", "transaction"])
def test_a_task_acked_by_a_transaction_is_left_alone_by_its_block(q, jobs, outer):
    jobs.put("x")
    task = jobs.take()
    if outer == "task":
        with task, q.transaction() as tx:
            task.ack(transaction=tx)
    else:
        with q.transaction() as tx, task:
            task.ack(transaction=tx)
    assert (jobs.tasks(), jobs.statistics().calls["ack"]) == ([], 1)


def test_nothing_is_announced_or_given_before_the_commit(q, jobs, waiter):
    taker = waiter(q, lambda: jobs.take(None))
    events = Events(jobs)
    with q.transaction() as tx:
        jobs.put(1, transaction=tx)
        assert (taker.running, events) == (True, [])
    assert taker.result().data == 1
    assert events.names == ["put", "take"]


def test_room_made_in_a_transaction_is_for_who_waits(q, waiter):
    jobs = q.create_tube("small", capacity=1)
    jobs.put(1)
    task = jobs.take()
    producer = waiter(q, lambda: jobs.put(2, timeout=None))
    with q.transaction() as tx:
        task.ack(transaction=tx)
    assert producer.result().data == 2


def test_a_refusal_leaves_the_transaction_usable(q, jobs):
    jobs.put(1, key="k")
    with q.transaction() as tx:
        with pytest.raises(DuplicateKey):
            jobs.put(2, key="k", transaction=tx)
        with pytest.raises(NotTaken):
            jobs.ack(1, transaction=tx)
        with pytest.raises(BatchError):
            jobs.put_many([3, Entry(4, key="k")], transaction=tx)
        with pytest.raises(UsageError):
            jobs.put({5}, transaction=tx)
        jobs.put(6, transaction=tx)
    assert [task.data for task in jobs.tasks()] == [1, 3, 6]


def test_capacity_counts_what_the_transaction_has_put(q):
    jobs = q.create_tube("small", capacity=1)
    with q.transaction() as tx:
        jobs.put(1, transaction=tx)
        with pytest.raises(TubeFull):
            jobs.put(2, transaction=tx)


def test_a_put_in_a_transaction_cannot_wait(q, jobs):
    with q.transaction() as tx:
        for timeout in (5, None):
            with pytest.raises(UsageError, match="cannot wait"):
                jobs.put(1, timeout=timeout, transaction=tx)
            with pytest.raises(UsageError, match="cannot wait"):
                jobs.put_many([1], timeout=timeout, transaction=tx)
    assert jobs.tasks() == []


def test_a_call_without_the_transaction_is_refused_inside_it(q, jobs):
    with q.transaction() as tx:
        for call in (lambda: jobs.put(1), lambda: jobs.take(), lambda: jobs.tasks()):
            with pytest.raises(UsageError, match="transaction="):
                call()
        jobs.put(2, transaction=tx)
    assert [task.data for task in jobs.tasks()] == [2]


def test_a_transaction_that_has_ended_takes_nothing(q, jobs):
    with q.transaction() as tx:
        jobs.put(1, transaction=tx)
    with pytest.raises(UsageError, match="ended"):
        jobs.put(2, transaction=tx)
    assert len(jobs.tasks()) == 1


@pytest.mark.parametrize("thing", ["tx", 5, object()])
def test_what_is_no_transaction_is_refused(jobs, thing):
    with pytest.raises(UsageError, match=type(thing).__name__):
        jobs.put(1, transaction=thing)
    assert jobs.tasks() == []


def test_a_transaction_spans_tubes(q, jobs, rolled_back):
    other = q.create_tube("other", "utube")
    jobs.put("x")
    task = jobs.take()

    def work(tx):
        task.ack(transaction=tx)
        other.put("y", lane="a", transaction=tx)

    rolled_back(work)
    assert (other.tasks(), jobs.peek(1).state) == ([], State.TAKEN)
    with q.transaction() as tx:
        work(tx)
    assert (other.take().data, jobs.tasks()) == ("y", [])


def test_an_id_of_a_transaction_undone_is_given_to_no_two_tasks(q, jobs, rolled_back):
    ids = []
    rolled_back(lambda tx: jobs.put(1, transaction=tx))
    for _ in range(2):
        with q.transaction() as tx:
            ids.append(jobs.put(1, transaction=tx).id)
        ids.append(jobs.put(1).id)
    assert ids == sorted(set(ids))
