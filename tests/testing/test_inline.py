"""inline(): puts run their tasks."""

from __future__ import annotations

import asyncio

import pytest
from tests.testing.bench import inlined

import penstock
from penstock import UsageError
from penstock.testing import ManualClock, inline


@pytest.fixture
def memory():
    with penstock.connect("memory:", clock=ManualClock()) as q:
        yield q


def test_a_put_runs_its_task_before_it_returns(every_q):
    seen = []
    sync = every_q.handler("sync")(seen.append)

    @every_q.handler("async")
    async def awaited(n: int) -> None:
        await asyncio.sleep(0)
        seen.append(n)

    sync.put(0)
    with inlined(every_q):
        assert seen == []
        sync.put(1)
        assert seen == [0, 1], "what was ready before comes first"
        awaited.put(2)
        every_q.tube("sync").put_many([3, 4])
        every_q.tube("sync").load([5, 6])
        every_q.tube("async").put(7, timeout=1)
        assert seen == [0, 1, 2, 3, 4, 5, 6, 7]
    sync.put(8)
    assert seen[-1] == 7
    assert [task.data for task in every_q.tube("sync").tasks()] == [8]


def test_what_a_handler_raises_reaches_who_puts(every_q):
    @every_q.handler("halves", max_attempts=2, retry=5)
    def halve(n: int) -> float:
        return 1 / n

    with inlined(every_q), pytest.raises(ZeroDivisionError):
        halve.put(0)
    (task,) = every_q.tube("halves").tasks()
    assert (task.state, task.attempt) == ("delayed", 1)


def test_what_handlers_put_runs_once_they_are_over(memory):
    steps = []
    part = memory.handler("parts")(steps.append)

    @memory.handler("wholes")
    def whole(n: int) -> None:
        part.put_many(range(n))
        steps.append("over")

    with inline(memory):
        whole.put(2)
    assert steps == ["over", 0, 1]


def test_async_handlers_put_too():
    async def main():
        async with await penstock.aconnect("memory:") as q:
            steps = []

            @q.handler("down")
            async def down(n: int) -> None:
                if n:
                    await down.put(n - 1)
                steps.append(n)

            async with inline(q):
                await down.put(3)
            assert steps == [3, 2, 1, 0]
            await down.put(3)
            assert steps == [3, 2, 1, 0]

    asyncio.run(main())


def test_a_child_that_fails_is_told_to_the_first_caller_alone(memory):
    told = []

    @memory.handler("children", max_attempts=1)
    def child(data: None) -> None:
        raise ValueError("odd")

    @memory.handler("parents", keep=True)
    def parent(data: None) -> None:
        try:
            child.put(None)
        except ValueError:
            told.append("a put does not fail because its task will")

    with inline(memory), pytest.raises(ValueError, match="odd"):
        parent.put(None)
    assert told == []
    assert memory.tube("parents").tasks()[0].state == "done"


def test_puts_of_a_transaction_run_when_it_is_committed(every_q):
    seen = []
    every_q.handler("jobs")(seen.append).put(0)
    jobs = every_q.tube("jobs")
    with inlined(every_q):
        with every_q.transaction() as tx:
            jobs.put(1, transaction=tx)
            assert seen == []
        assert seen == [0, 1]
        with pytest.raises(UsageError), every_q.transaction() as tx:
            jobs.put_many([jobs.put(2, transaction=tx).id], transaction=tx, errors="never")
        assert seen == [0, 1]
    assert jobs.tasks() == []


def test_delayed_tasks_and_tubes_without_handlers_are_left_alone(q):
    seen = []
    job = q.handler("jobs")(seen.append)
    others = q.create_tube("others")
    with inlined(q):
        job.put(1, delay=60)
        others.put(2)
    assert seen == []
    assert [task.state for task in (*q.tube("jobs").tasks(), *others.tasks())] == ["delayed", "ready"]


def test_only_puts_through_that_queue_run():
    with penstock.connect("memory:inlined") as q, penstock.connect("memory:inlined") as other:
        seen = []
        q.handler("jobs")(seen.append).put(1)
        with inline(q):
            other.tube("jobs").put(2)
            assert seen == []
            with inline(q):
                q.tube("jobs").put(3)
            assert seen == [1, 2, 3]
            q.tube("jobs").put(4)
            assert seen == [1, 2, 3, 4]
        q.tube("jobs").put(5)
        assert seen == [1, 2, 3, 4]
        q.tube("jobs").drop(force=True)


def test_it_is_left_as_it_was_after_an_error(memory):
    job = memory.handler("jobs")(lambda n: n)
    with pytest.raises(KeyError), inline(memory):
        raise KeyError
    job.put(1)
    assert len(memory.tube("jobs").tasks()) == 1
    assert set(vars(memory._engine)) & {"execute", "wait", "transaction"} == set()


def test_middleware_is_around_it(memory):
    steps = []

    @memory.middleware
    async def note(run, go_on):
        steps.append(run.task.tube)
        return await go_on()

    job = memory.handler("jobs")(steps.append)
    with inline(memory):
        job.put(1)
    assert steps == ["jobs", 1]


def test_nothing_is_stored_that_could_not_be_run(memory):
    @memory.handler("jobs")
    async def job(n: int) -> None:
        raise AssertionError

    async def main():
        with inline(memory), pytest.raises(UsageError, match="an event loop runs here"):
            job.put(1)

    memory.create_tube("jobs")
    asyncio.run(main())
    assert memory.tube("jobs").tasks() == []


def test_each_colour_has_its_own_with(memory):
    async def main():
        async with await penstock.aconnect("memory:") as q:
            with pytest.raises(UsageError, match="async with"), inline(q):
                pass
        with pytest.raises(UsageError, match="`with"):
            async with inline(memory):
                pass

    asyncio.run(main())
