"""A connection that breaks in the middle of a call: the call is done once, and nobody notices."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.conftest import Background
from tests.remote.line import Line
from tests.support import remotes
from tests.support.proxy import REPLY, REQUEST
from tests.support.reservation import free_port
from tests.worker.bench import until

import penstock
from penstock import EngineUnavailable, State
from penstock.engines.line import Taker
from penstock.engines.remote import channel
from penstock.model import ops

LOST = pytest.mark.parametrize("what", [REQUEST, REPLY])


@LOST
def test_a_put_is_done_once(q: Any, near: Any, line: Line, what: str) -> None:
    jobs = q.create_tube("jobs")
    line.lose(what, ops.Put)
    task = jobs.put("x")
    line.wait()
    assert task.outcome == "new" and line.made == 2
    assert [found.id for found in near.tube("jobs").tasks()] == [task.id]


@LOST
def test_a_take_gets_one_task_and_no_other_is_held(q: Any, near: Any, line: Line, what: str) -> None:
    jobs = q.create_tube("jobs")
    jobs.put_many([1, 2])
    line.lose(what, ops.Take)
    task = jobs.take()
    line.wait()
    assert (task.data, task.attempt) == (1, 1)
    assert [found.state for found in near.tube("jobs").tasks()] == [State.TAKEN, State.READY]
    assert task.ack().state == State.DONE


@LOST
def test_an_ack_is_done_once(q: Any, near: Any, line: Line, what: str) -> None:
    jobs = q.create_tube("jobs", history=True)
    jobs.put(1)
    task = jobs.take()
    line.lose(what, ops.Ack)
    assert task.ack().state == State.DONE
    line.wait()
    assert [event.event for event in near.history()] == ["put", "take", "ack"]


@LOST
def test_a_take_that_waits_goes_on_waiting(q: Any, near: Any, line: Line, what: str) -> None:
    jobs = q.create_tube("jobs")
    line.lose(what, "wait")
    taking = Background(lambda: jobs.take(timeout=90))
    core = remotes.server(near._engine.name).server.core
    until(lambda: core.waiting == 1)  # for the first time, or, if that request was lost, for the second
    near.tube("jobs").put("soon")
    line.wait()
    task = taking.result()
    assert (task.data, task.attempt) == ("soon", 1)
    assert near.tube("jobs").statistics().tasks["taken"] == 1


@LOST
def test_a_commit_is_done_once(q: Any, near: Any, line: Line, what: str) -> None:
    jobs = q.create_tube("jobs")
    line.lose(what, "commit")
    if what == REPLY:
        with q.transaction() as tx:
            jobs.put(1, transaction=tx)
        assert [task.data for task in near.tube("jobs").tasks()] == [1]
        return
    with pytest.raises(EngineUnavailable) as caught, q.transaction() as tx:
        jobs.put(1, transaction=tx)
    assert caught.value.outcome == "not_done"
    assert near.tube("jobs").tasks() == []


def _put_two(line: Line, jobs: Any, tx: Any) -> None:
    jobs.put(1, transaction=tx)
    line.lose(REQUEST, "in")
    jobs.put(2, transaction=tx)


def test_a_transaction_that_loses_its_connection_is_undone(q: Any, near: Any, line: Line) -> None:
    jobs = q.create_tube("jobs")
    with pytest.raises(EngineUnavailable) as caught, q.transaction() as tx:
        _put_two(line, jobs, tx)
    assert caught.value.outcome == "not_done"
    assert near.tube("jobs").tasks() == []
    assert jobs.put(3).outcome == "new"


def test_a_session_and_its_leases_live_on(q: Any, near: Any, line: Line) -> None:
    jobs = q.create_tube("jobs")
    jobs.put(1)
    task = jobs.take()
    before = q.identify()
    line.break_all()
    assert q.identify() == before
    assert task.touch(5).state == State.TAKEN
    assert task.ack().state == State.DONE
    assert near.tube("jobs").tasks() == []


def test_changes_are_told_over_the_next_connection(q: Any, near: Any, line: Line) -> None:
    jobs = q.create_tube("jobs")
    told: list[str] = []
    jobs.on_task_change(lambda task, event: told.append(event))
    jobs.put(1)
    line.break_all()
    jobs.put(2)
    until(lambda: len(told) >= 2)  # the store's own thread may be about to tell of it
    assert told == ["put", "put"]


EACH = 200


def test_two_threads_do_hundreds_of_things_over_a_line_that_breaks(q: Any, near: Any, line: Line) -> None:
    q.create_tube("jobs")
    done: list[list[Any]] = [[], []]
    errors: list[BaseException] = []

    def work(number: int) -> None:
        jobs = q.tube("jobs")
        try:
            for n in range(EACH):
                done[number].append(jobs.put([number, n]).id)
                if n % 40 == 20 and number == 0:
                    line.break_all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    tasks = near.tube("jobs").tasks(limit=3 * EACH)
    assert sorted(task.id for task in tasks) == sorted(done[0] + done[1])
    assert len({tuple(task.data) for task in tasks}) == len(tasks) == 2 * EACH


@pytest.mark.parametrize("in_real_time", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_who_cannot_connect_again_is_told_in_time(
    url: str, in_real_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "PULSE", 0.05)
    line = Line(int(url.rpartition(":")[2]))
    q = penstock.connect(line.address, session_ttl=1 if in_real_time else 60)
    store = q._engine.store
    assert store._patience() == (1 if in_real_time else 60)
    if not in_real_time:
        monkeypatch.setattr(store.channel, "_patience", lambda: 0.1)
    jobs = q.create_tube("jobs")
    line.close()
    until(lambda: not store.channel.connected)
    with pytest.raises(EngineUnavailable) as caught:
        jobs.put(1)
    assert caught.value.outcome == "not_done"
    with pytest.raises(EngineUnavailable):
        q.close()


def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(EngineUnavailable, match="no server answers"):
        penstock.connect(f"penstock://127.0.0.1:{free_port()}")


def test_a_server_is_found_though_a_caller_cannot_be_told_that_it_is_late(
    q: Any, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = q.create_tube("jobs")
    tries = threading.Event()

    def fail() -> float:
        tries.set()
        raise ValueError("no patience")

    with monkeypatch.context() as patch:
        patch.setattr(q._engine.store.channel, "_patience", fail)
        line.shut()
        line.break_all()
        assert tries.wait(90)
    line.open()
    assert jobs.put(1).outcome == "new"


@pytest.mark.parametrize("what", [REQUEST, REPLY])
def test_a_wait_that_was_left_takes_nothing(q: Any, near: Any, line: Line, what: str) -> None:
    jobs = q.create_tube("jobs")
    line.lose(what, "leave")
    store = q._engine.store
    waiter = Taker(ops.Take("jobs", 1, q._session), None)
    store.enlist(waiter)
    assert store.waiters == 1
    store.withdraw(waiter)
    line.wait()
    assert waiter.answer == []
    jobs.put(1)
    assert near.tube("jobs").take().data == 1


def test_a_wait_can_be_left_though_the_server_has_not_noticed_that_its_connection_is_gone(
    q: Any, near: Any, line: Line
) -> None:
    jobs = q.create_tube("jobs")
    store = q._engine.store
    waiter = Taker(ops.Take("jobs", 1, q._session), None)
    store.enlist(waiter)
    assert store.waiters == 1
    line.break_unnoticed()
    assert jobs.tasks() == []  # by now there is another connection
    waiting = store._waits[waiter]
    store.withdraw(waiter)
    assert waiter.answer == [] and waiting.over.is_set()
    jobs.put(1)
    assert near.tube("jobs").take().data == 1
