"""Runs: what begins anew when a store is opened again, and what goes on."""

from __future__ import annotations

import pytest
from tests.support.engines import Bench
from tests.support.remotes import survivors

import penstock
from penstock import NotWritable, SessionExpired, State
from penstock.model import ops
from penstock.testing import new_run


def detached(bench: Bench, ttl: float):
    """A queue whose session does not end with the run, as one over a connection."""
    queue = bench.connect(session_ttl=ttl)
    target = getattr(queue, "_target", queue)
    engine = getattr(target._engine, "engine", target._engine)
    engine.execute(ops.EndSession(target._session))
    engine.lose(target._session)
    target._session = target._session._replace(direct=False)
    engine.execute(ops.OpenSession(target._session))
    survivors.add(target._session.uuid)
    return queue


def test_taken_tasks_are_ready_in_the_next_run(bench, q):  # cases 153, 251, 317, 350
    jobs = q.create_tube("jobs")
    jobs.put_many(list("abcd"))
    jobs.take_many(3)
    jobs = bench.new_run().tube("jobs")
    assert jobs.statistics().tasks["taken"] == 0
    assert [(task.data, task.attempt) for task in jobs.take_many(4)] == [("a", 2), ("b", 2), ("c", 2), ("d", 1)]


def test_what_has_no_attempts_left_is_buried_as_lost_in_the_next_run(bench, q):
    jobs = q.create_tube("jobs", max_attempts=1)
    jobs.put("x")
    jobs.take()
    task = bench.new_run().tube("jobs").peek(1)
    assert (task.state, task.reason) == (State.BURIED, "lost")


def test_sessions_of_direct_processes_end_with_the_run(bench, q):
    with pytest.raises(SessionExpired):
        bench.new_run().identify(q.identify())


def test_a_session_over_a_connection_outlives_the_run(bench, q, clock):  # cases 154, 339
    q.create_tube("jobs").put_many(list("ab"), ttr=100)
    client = detached(bench, 60)
    client.tube("jobs").take()
    name = client.identify()
    clock.advance(50)
    again = bench.new_run()
    clock.advance(20)
    assert again.tube("jobs").peek(1).state == State.TAKEN
    again.identify(name)
    clock.advance(29)
    assert again.tube("jobs").ack(1).state == State.DONE


def test_the_end_of_a_lease_is_kept_over_a_run(bench, q, clock):  # case 339
    q.create_tube("jobs").put("x", ttr=100)
    detached(bench, 1000).tube("jobs").take()
    clock.advance(50)
    jobs = bench.new_run().tube("jobs")
    clock.advance(49.999999)
    assert jobs.peek(1).state == State.TAKEN
    clock.advance(0.000001)
    assert jobs.peek(1).state == State.READY


def test_a_session_over_a_connection_has_its_time_from_the_start_of_the_run(bench, q, clock):
    q.create_tube("jobs").put("x")
    client = detached(bench, 10)
    client.tube("jobs").take()
    clock.advance(9)
    jobs = bench.new_run().tube("jobs")
    clock.advance(9.999999)
    assert jobs.peek(1).state == State.TAKEN
    clock.advance(0.000001)
    assert jobs.peek(1).state == State.READY


def test_ids_are_never_given_twice_not_even_over_runs(bench, q):  # cases 2, 3, 318
    jobs = q.create_tube("jobs")
    jobs.put_many(list("abc"))
    jobs.take_many(2)
    jobs.delete(3)
    jobs = bench.new_run().tube("jobs")
    assert jobs.put("d").id == 4
    jobs.ack_many(jobs.take_many(10))
    assert bench.new_run().tube("jobs").put("e").id == 5


def test_all_tasks_and_their_options_are_there_in_the_next_run(bench, q, clock):  # cases 318, 88
    jobs = q.create_tube("jobs", keep=True, max_attempts=3, retry=[1, 2])
    jobs.put("ready", pri=5, ttl=1000, ttr=7, lane="l", key="k")
    jobs.put("delayed", delay=50)
    jobs.put("mortal", ttl=50)
    jobs.bury(jobs.put("buried").id, "why")
    jobs.put("done", pri=-1)
    jobs.take().ack(result={"n": 1})
    before = [task._record for task in map(untangled, jobs.tasks())]
    jobs = bench.new_run().tube("jobs")
    assert [task._record for task in map(untangled, jobs.tasks())] == before
    assert jobs.options["retry"] == (1.0, 2.0)
    clock.advance(50)
    assert [task.state for task in jobs.tasks()] == ["ready", "ready", "done", "buried", "done"]


def untangled(task):
    return getattr(task, "_target", task)


def test_what_came_due_while_nobody_was_there_is_done_at_its_own_moment(bench, q, clock):  # case 88
    jobs = q.create_tube("jobs", history=True)
    jobs.put("mortal", ttl=5)
    jobs.put("delayed", delay=3)
    start = jobs.peek(1).created_at
    meanwhile(bench, clock, 60)
    again = bench.connect()
    assert again.tube("jobs").statistics().tasks["ready"] == 1
    rows = again.history()[2:]
    assert [(row.event, (row.at - start).total_seconds()) for row in rows] == [("delay", 3.0), ("ttl", 5.0)]


def meanwhile(bench, clock, seconds):
    """The store is closed, the time goes on."""
    new_run(bench.url)
    bench._queues.clear()
    clock.advance(seconds)


def test_calls_and_done_count_from_the_start_of_the_run(bench, q):  # case 134
    jobs = q.create_tube("jobs", keep=True)
    jobs.put_many(list("abcd"))
    jobs.take().ack()
    jobs.take()
    jobs.bury(3)
    statistics = bench.new_run().tube("jobs").statistics()
    assert set(statistics.calls.values()) == {0}
    assert statistics.tasks == {
        "ready": 2, "taken": 0, "delayed": 0, "buried": 1, "kept": 1, "done": 0, "total": 3,
    }  # fmt: skip


def test_tubes_their_options_and_pauses_are_there_in_the_next_run(bench, q):
    q.create_tube("a", "utube", max_attempts=5)
    q.create_tube("b", "fifottl", ttl=60).pause()
    b = q.tube("b")
    b.alter(ttr=7)
    b.put("x")
    again = bench.new_run()
    assert [(tube.name, tube.kind) for tube in again.tubes()] == [("a", "utube"), ("b", "fifottl")]
    assert again.tube("a").options["max_attempts"] == 5
    assert (again.tube("b").options["ttl"], again.tube("b").options["ttr"]) == (60, 7)
    assert again.tube("b").take() is None
    again.tube("b").resume()
    assert again.tube("b").take().data == "x"


def test_a_callback_is_not_there_in_the_next_run(bench, q):  # case 19
    seen = []
    q.create_tube("jobs").on_task_change(lambda task, event: seen.append(event))
    jobs = bench.new_run().tube("jobs")
    jobs.put("x")
    assert seen == []
    assert jobs.on_task_change(None) is None


def test_an_open_store_is_running(bench, q):
    assert q.state() == "RUNNING"
    assert bench.new_run().state() == "RUNNING"


def test_a_store_that_can_only_be_read_says_so(tmp_path, clock):  # case 156
    with penstock.connect(str(tmp_path / "tasks.db"), clock=clock) as q:
        q.create_tube("jobs").put("x")
        with penstock.connect(f"sqlite:///{tmp_path}/tasks.db?mode=ro", clock=clock) as reader:
            jobs = reader.tube("jobs")
            for call in (
                lambda: jobs.put("y"),
                lambda: jobs.take(),
                lambda: jobs.take(timeout=5),
                lambda: jobs.delete(1),
                lambda: reader.create_tube("other"),
            ):
                with pytest.raises(NotWritable):
                    call()
            assert reader.state() == "WAITING"
            assert jobs.peek(1).data == "x"
            assert jobs.statistics().tasks["ready"] == 1
