"""What goes wrong for one caller is nobody else's trouble."""

from __future__ import annotations

import gc
import signal
import sys

import pytest
from tests.support.remotes import behind
from tests.worker.bench import until

import penstock
from penstock import EngineUnavailable, UsageError
from penstock.engines import open_store
from penstock.model import ops
from penstock.testing import ManualClock


@pytest.fixture
def store(bench, q):
    found = open_store(behind(bench.url))
    assert found is not None
    return found


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs")


def test_a_call_that_fails_oddly_fails_alone(store, jobs):
    class Odd(ops.Op):
        weak = False

    puts = [ops.Put("jobs", (penstock.model.task.Draft(str(n)),)) for n in range(3)]
    first, odd, second, third = store.execute_many([puts[0], Odd(), *puts[1:]])
    assert isinstance(odd, KeyError)
    assert [len(answer) for answer in (first, second, third)] == [1, 1, 1]
    assert sorted(task.data for task in jobs.tasks()) == [0, 1, 2]


def test_a_waiter_that_cannot_be_served_does_not_fail_the_put(bench, q, store, jobs, waiter, monkeypatch, caplog):
    taker = waiter(q, lambda: jobs.take(None))
    commit = store.commit

    def failing(requests, strict):
        if any(type(op) is ops.Take for op in requests):
            raise EngineUnavailable("no disk")
        return commit(requests, strict)

    monkeypatch.setattr(store, "commit", failing)
    assert jobs.put("first").outcome == "new"
    assert "could not be served" in caplog.text
    monkeypatch.undo()
    jobs.put("second")
    assert taker.result().data == "first"


def test_what_time_makes_ready_is_for_those_who_wait(q, jobs, clock, waiter):
    jobs.put("late", delay=5)
    taker = waiter(q, lambda: jobs.take(None))
    clock._now += 6_000_000  # nobody is told: the next call notices
    assert jobs.take() is None
    assert taker.result().data == "late"


def test_a_transaction_longer_than_the_sessions_ttl_loses_no_lease(bench, clock):
    q = bench.connect(session_ttl=5)
    jobs = q.create_tube("jobs")
    jobs.put(1)
    task = jobs.take()
    with q.transaction() as tx:
        clock._now += 60_000_000
        task.ack(transaction=tx)
    assert jobs.statistics().tasks["done"] == 1


def test_a_call_longer_than_the_sessions_ttl_loses_no_lease(bench, clock):
    q = bench.connect(session_ttl=5)
    jobs = q.create_tube("jobs")
    jobs.put(1)
    task = jobs.take()
    clock._now += 60_000_000
    assert task.ack().state == "done"


def test_a_queue_cannot_be_closed_inside_its_transaction(bench, q, jobs):
    with q.transaction() as tx:
        with pytest.raises(UsageError, match="inside"):
            q.close()
        jobs.put(1, transaction=tx)
    assert jobs.take().data == 1


@pytest.mark.parametrize("engine", ["memory:", "file"])
def test_an_interrupt_leaves_no_lock_behind(engine, tmp_path):
    """At every call that the lock's owner makes on its way in and out."""
    # Nobody keeps time beside the test, who would have the lock now and then.
    url = str(tmp_path / "tasks.db") if engine == "file" else engine
    q = penstock.connect(url, durability="relaxed", clock=ManualClock())
    jobs = q.create_tube("jobs")
    mutex = q._engine.store._group.mutex
    seen = 0
    for number in range(60):
        steps = iter(range(number))

        def interrupt(frame, event, arg, steps=steps):
            # Not "c_call": the interpreter looks for signals after a call, never just before the lock's __exit__.
            inside = frame.f_code.co_filename.endswith("group.py")
            if inside and event in ("call", "return", "c_return") and next(steps, None) is None:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

        sys.setprofile(interrupt)
        try:
            jobs.put(number)
        except KeyboardInterrupt:
            seen += 1
        finally:
            sys.setprofile(None)
        assert not mutex.locked()
    assert seen > 3
    q.close()


@pytest.mark.parametrize("engine", ["memory:", "file"])
def test_a_dropped_queue_is_no_longer_kept_alive(engine, tmp_path):
    q = penstock.connect(str(tmp_path / "tasks.db") if engine == "file" else engine)
    store = q._engine.store
    q.create_tube("jobs").put(1)
    del q

    def is_forsaken():
        gc.collect()  # does nothing while another thread collects
        return (store.users, store._sessions) == (0, {})

    until(is_forsaken)
    store._keeper.poke()
    until(lambda: store.closed)
