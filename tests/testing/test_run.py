"""run(): a Run for a handler that is called by hand."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import penstock
from penstock import UsageError, testing


def test_a_handler_with_a_run_can_be_called() -> None:
    q = penstock.connect("memory:")

    @q.handler("jobs")
    def job(n: int, run: penstock.Run) -> tuple[Any, int, bool]:
        return run.task.id, run.attempt, run.last_attempt

    assert job(3, run=testing.run()) == (1, 1, False)
    assert job(3, run=testing.run(id="a", attempt=3, max_attempts=3)) == ("a", 3, True)
    q.close()


def test_it_knows_what_it_was_told() -> None:
    run = testing.run({"n": 1}, tube="mails", id=7, attempt=2, max_attempts=5, lane="a", key="k", time_left=3600)
    task = run.task
    assert isinstance(run, penstock.Run)
    assert (run.data, task.tube, task.id, task.attempt, task.max_attempts) == ({"n": 1}, "mails", 7, 2, 5)
    assert (task.lane, task.key, task.state) == ("a", "k", "taken")
    assert run.time_left is not None and 0 < run.time_left <= 3600
    assert not run.cancelled


def test_without_a_limit_there_is_time() -> None:
    assert testing.run().time_left is None
    assert testing.run(time_left=0).time_left == 0


def test_it_can_be_told_to_stop() -> None:
    run = testing.run()
    run.check()
    run.tell("cancelled")
    assert run.cancelled and run.why == "cancelled" and run.wait(30)
    with pytest.raises(Exception, match="is to stop: cancelled"):
        run.check()


def test_a_handler_that_waits_is_woken() -> None:
    run, answers = testing.run(), list[bool]()
    thread = threading.Thread(target=lambda: answers.append(run.wait(90)))
    thread.start()
    run.tell("stopping")
    thread.join(90)
    assert answers == [True]


def test_its_task_can_be_ended_by_hand() -> None:
    run = testing.run()
    run.task.ack()
    assert (run.task._ended, run.task.state) == ("ack", "done")


def test_its_task_can_be_ended_by_an_async_handler() -> None:
    async def handler(data: Any, run: penstock.Run) -> None:
        await run.atask.release()

    run = testing.run()
    asyncio.run(handler(1, run))
    assert run.task._ended == "release"


def test_code_deeper_down_finds_it() -> None:
    def deeper() -> int:
        return penstock.current_run().attempt

    with testing.run(attempt=4) as run:
        assert deeper() == run.attempt == 4
    with pytest.raises(LookupError):
        deeper()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attempt": 0}, "attempt must be a whole number from 1"),
        ({"attempt": 3, "max_attempts": 2}, "attempt 3 of 2"),
        ({"time_left": "soon"}, "time_left"),
    ],
)
def test_what_no_run_can_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        testing.run(**options)
