"""wait and result: a producer that wants to know how its task ended."""

from __future__ import annotations

import pytest

from penstock import EngineUnavailable, State, TaskFailed, TaskNotFound, WaitTimeout
from penstock.testing import lose


@pytest.fixture
def jobs(q):
    return q.create_tube("jobs", retry=0)


def test_wait_ends_when_the_task_is_acked_not_when_it_is_released(jobs, q, waiter):  # case 232
    jobs.put("x")
    wait = waiter(q, lambda: jobs.wait(1, timeout=3))
    jobs.take().release()
    assert wait.running
    jobs.take().ack(result={"n": 1})
    task = wait.result()
    assert (task.state, task.reason, task.result) == (State.DONE, "success", {"n": 1})


def test_a_delayed_task_can_be_waited_for(jobs, q, clock, waiter):  # case 189
    jobs.put("x", delay=5)
    wait = waiter(q, lambda: jobs.wait(1, timeout=60))
    clock.advance(5)
    jobs.take().ack()
    assert wait.result().reason == "success"


def test_wait_ends_when_the_task_expires(jobs, q, clock, waiter):  # case 233
    jobs.put("x", ttl=1)
    wait = waiter(q, lambda: jobs.wait(1, timeout=2))
    clock.advance(1)
    assert wait.result().reason == "expired"
    assert jobs.statistics().tasks["total"] == 0


@pytest.mark.parametrize("end", ["bury", "cancel"])
def test_wait_ends_when_the_task_is_set_aside(jobs, q, waiter, end):  # case 234
    jobs.put("x")
    wait = waiter(q, lambda: jobs.wait(1, timeout=2))
    task = getattr(jobs, end)(1)
    assert (wait.result().state, wait.result().reason) == (task.state, task.reason)


def test_wait_ends_when_the_task_has_no_attempts_left(q, waiter):
    jobs = q.create_tube("jobs", max_attempts=2)
    jobs.put("x")
    wait = waiter(q, lambda: jobs.wait(1, timeout=2))
    jobs.take().fail("first")
    assert wait.running
    jobs.take().fail("second")
    assert wait.result().errors == ["first", "second"]


def test_wait_gives_up_when_its_time_is_over(jobs, q, clock, waiter):  # case 235
    jobs.put("x")
    wait = waiter(q, lambda: jobs.wait(1, timeout=0.1))
    clock.advance(0.099999)
    assert wait.running
    clock.advance(0.000001)
    with pytest.raises(WaitTimeout, match="ready"):
        wait.result()
    assert jobs.take().data == "x"


def test_wait_without_time_only_looks(jobs):
    jobs.put("x")
    with pytest.raises(WaitTimeout):
        jobs.wait(1, timeout=0)
    with pytest.raises(WaitTimeout):
        jobs.result(1, timeout=-1)
    jobs.bury(1)
    assert jobs.wait(1, timeout=0).state == State.BURIED


def test_wait_for_a_task_that_has_ended_and_is_kept_answers_at_once(jobs):  # case 236
    jobs.put("x")
    jobs.take().ack(keep=True)
    assert jobs.wait(1).reason == "success"


def test_everybody_who_waits_for_a_task_is_told(bench, jobs, q, waiter):  # case 237
    jobs.put("x")
    other = bench.connect().tube("jobs")
    waits = [waiter(q, lambda tube=tube: tube.result(1, timeout=9)) for tube in (jobs, other, jobs)]
    jobs.take().ack(result=7)
    assert [wait.result() for wait in waits] == [7, 7, 7]


def test_wait_for_a_task_that_is_not_there_is_an_error(jobs):  # case 238
    with pytest.raises(TaskNotFound):
        jobs.wait(1)
    jobs.put("x")
    jobs.take().ack()
    with pytest.raises(TaskNotFound):
        jobs.wait(1)


def test_wait_goes_on_over_the_loss_of_a_worker(bench, jobs, q, clock, waiter):  # case 250
    jobs.put("x")
    wait = waiter(q, lambda: jobs.wait(1, timeout=60))
    worker = bench.connect(session_ttl=5)
    worker.tube("jobs").take()
    lose(worker)
    clock.advance(5)
    assert wait.running
    jobs.take().ack()
    assert wait.result().reason == "success"


def test_the_end_of_a_watched_task_can_be_read_for_a_while_in_a_tube_that_keeps_nothing(jobs, q, clock, waiter):
    jobs.put("x")
    wait = waiter(q, lambda: jobs.wait(1, timeout=60))
    jobs.take().ack(result="ok")
    assert wait.result().result == "ok"
    assert jobs.result(1) == "ok"
    clock.advance(60)
    with pytest.raises(TaskNotFound):
        jobs.peek(1)


def test_a_task_whose_watcher_gave_up_is_not_kept(jobs, q, clock, waiter):
    jobs.put("x")
    wait = waiter(q, lambda: jobs.wait(1, timeout=5))
    clock.advance(5)
    with pytest.raises(WaitTimeout):
        wait.result()
    jobs.take().ack()
    with pytest.raises(TaskNotFound):
        jobs.peek(1)


def test_result_answers_what_ack_was_given(jobs, q, waiter):
    jobs.put("x")
    result = waiter(q, lambda: jobs.result(1, timeout=9))
    jobs.take().ack(result=[1, {"a": None}])
    assert result.result() == [1, {"a": None}]


def test_result_of_an_ack_without_one_is_none(jobs):
    jobs.put("x")
    jobs.take().ack(keep=True)
    assert jobs.result(1) is None


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda jobs, clock: jobs.bury(1, "look"), "asked"),
        (lambda jobs, clock: jobs.take().fail("bad", abort=True), "aborted"),
        (lambda jobs, clock: jobs.cancel(1), "cancelled"),
        (lambda jobs, clock: clock.advance(60), "expired"),
    ],
    ids=["buried", "aborted", "cancelled", "expired"],
)
def test_result_of_a_task_that_ended_badly_raises(jobs, q, clock, waiter, end, reason):
    jobs.put("x", ttl=60)
    result = waiter(q, lambda: jobs.result(1, timeout=100))
    end(jobs, clock)
    with pytest.raises(TaskFailed, match=reason) as error:
        result.result()
    assert error.value.task.reason == reason


def test_result_of_a_task_that_is_deleted_raises(jobs, q, waiter):
    jobs.put("x")
    result = waiter(q, lambda: jobs.result(1, timeout=100))
    jobs.delete(1)
    with pytest.raises(TaskFailed):
        result.result()


def test_result_gives_up_when_its_time_is_over(jobs, q, clock, waiter):
    jobs.put("x")
    result = waiter(q, lambda: jobs.result(1, timeout=5))
    clock.advance(5)
    with pytest.raises(WaitTimeout):
        result.result()


def test_wait_without_a_limit_waits_for_ever(jobs, q, clock, waiter):
    jobs.put("x")
    wait = waiter(q, lambda: jobs.wait(1))
    clock.advance(1_000_000)
    assert wait.running
    jobs.take().ack()
    assert wait.result().reason == "success"


def test_waiting_for_one_task_is_not_ended_by_another(jobs, q, waiter):
    jobs.put_many(list("ab"))
    wait = waiter(q, lambda: jobs.wait(2, timeout=9))
    jobs.take().ack()
    assert wait.running
    jobs.take().ack(result=2)
    assert wait.result().id == 2


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_call_that_waits_on_a_queue_that_is_closed_is_told_so(bench, jobs, waiter, timeout):
    jobs.put("x")
    other = bench.connect()
    tube = other.tube("jobs")
    wait = waiter(other, lambda: tube.wait(1, timeout=timeout))
    other.close()
    with pytest.raises(EngineUnavailable, match="was closed while this call waited") as error:
        wait.result()
    assert error.value.outcome == "not_done"
    assert jobs.take().ack().state == State.DONE


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_result_is_not_waited_for_on_a_queue_that_is_closed(bench, jobs, waiter, timeout):
    jobs.put("x")
    other = bench.connect()
    tube = other.tube("jobs")
    wait = waiter(other, lambda: tube.result(1, timeout=timeout))
    other.close()
    with pytest.raises(EngineUnavailable, match="was closed"):
        wait.result()
