"""How tubes share the slots of one worker, and what a worker does when its store does not answer."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.worker.bench import PATIENCE, Working, until, work

import penstock.testing
from penstock import Entry, Worker, worker
from penstock.model.duration import SECOND
from penstock.schedules import SCHEDULES
from penstock.worker import fetch, lines
from penstock.worker.app import App


@pytest.mark.parametrize("limits", [{"concurrency": 1}, {"lane_concurrency": 1}, {"lane_rate": 100_000.0}], ids=str)
@pytest.mark.parametrize("slots", [1, 4])
def test_a_tube_with_limits_has_its_share_beside_one_without(memory, limits, slots):
    ran = Counter[str]()
    enough = threading.Event()

    def count(tube: str) -> None:
        ran[tube] += 1
        if ran.total() >= 2000 or min(ran["plain"], ran["limited"]) >= 20:
            enough.set()

    @memory.handler("plain")
    async def plain(n: int) -> None:
        count("plain")

    @memory.handler("limited", **limits)
    async def limited(n: int) -> None:
        count("limited")

    plain.put_many(range(2000))
    limited.put_many([Entry(n, lane=f"lane {n % 50}") for n in range(100)])
    with Working(memory, concurrency=slots):
        enough.wait(PATIENCE)
        found = ran.copy()
    # One at a time needs a way to the store and back for each, so how large its share is depends on the machine.
    assert min(found["plain"], found["limited"]) >= 20, found


@pytest.mark.parametrize("moment", ["before the store is asked", "after it has answered"])
def test_a_task_that_ends_while_the_next_is_asked_for_makes_room_for_it(memory, monkeypatch, moment):
    """It does not matter when it ends: its tube is asked at once, not when somebody looks into tubes by chance."""
    monkeypatch.setattr(fetch, "PROBE", 1e6)
    began, go_on = threading.Semaphore(0), threading.Semaphore(0)
    ran = list[int]()
    most = 30

    @memory.handler("plain")
    async def plain(n: int) -> None:
        await asyncio.to_thread(plain.put, n)

    @memory.handler("limited", concurrency=1)
    def limited(n: int) -> None:
        began.release()
        assert go_on.acquire(timeout=PATIENCE)
        ran.append(n)

    plain.put_many(range(50))
    limited.put_many(range(most))
    with Working(memory, concurrency=2, prefetch=0) as working:
        until(lambda: working.worker._slots)
        fetcher = working.worker._slots.fetcher

        def ends() -> None:
            """The task of the tube with limits ends, in the middle of what the fetcher does."""
            if began.acquire(blocking=False):
                go_on.release()
                until(lambda: fetcher.lines["limited"].held == 0)

        if moment == "before the store is asked":
            checks = fetcher._checks
            monkeypatch.setattr(fetcher, "_checks", lambda: (ends(), checks())[1])
        else:
            ask = fetcher._engine.execute_many
            monkeypatch.setattr(fetcher._engine, "execute_many", lambda requests: (ask(requests), ends())[0])
        until(lambda: len(ran) == most)


def test_tasks_with_little_time_are_not_fetched_before_there_is_a_slot(memory, monkeypatch):
    monkeypatch.setattr(lines, "SHORT", 1000 * SECOND)
    blocked, go_on = threading.Event(), threading.Event()

    @memory.handler("jobs", attempt_limit=900, max_attempts=1)
    async def job(n: int) -> None:
        if n == 300:
            blocked.set()
            await asyncio.to_thread(go_on.wait, PATIENCE)

    job.put_many(range(320))
    with Working(memory, concurrency=1):
        assert blocked.wait(PATIENCE)
        taken = memory.tube("jobs").statistics().tasks["taken"]
        go_on.set()
        until(lambda: memory.tube("jobs").statistics().tasks["total"] == 0)
    assert taken == 1


def test_one_slot_keeps_no_task_of_many_tubes_that_have_limits(memory):
    ran, go_on = threading.Event(), threading.Event()
    names = [f"tube{n}" for n in range(20)]

    async def job(n: int) -> None:
        ran.set()
        await asyncio.to_thread(go_on.wait, PATIENCE)

    for name in names:
        memory.handler(name, concurrency=1)(partial(job))
    with Working(memory, concurrency=1) as working:
        until(lambda: penstock.testing.waiting(memory) == len(names) + 1)  # the schedules are waited for too
        tubes = [memory.tube(name) for name in names]
        with memory.transaction() as tx:
            for tube in tubes:
                tube.put(1, transaction=tx)
        assert ran.wait(PATIENCE)
        until(lambda: sum(memory.statistics()[name].tasks["taken"] for name in names) == 1)
        go_on.set()
        until(lambda: working.tally.ok == len(names))


def test_a_store_that_does_not_answer_does_not_keep_a_worker_from_stopping(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(worker.worker, "LAST_WORDS", 0.2)
    path = tmp_path / "tasks.db"
    ran, go_on = threading.Event(), threading.Event()
    with penstock.connect(path) as q:

        @q.handler("jobs")
        def job(n: int) -> None:
            ran.set()
            go_on.wait(PATIENCE)

        job.put(1)
        working = Working(q, grace=0.1).start()
        assert ran.wait(PATIENCE)
        other = apsw.Connection(str(path))
        other.set_busy_timeout(int(PATIENCE * 1000))  # the worker may be writing at this moment
        other.execute("BEGIN IMMEDIATE")
        try:
            go_on.set()
            until(lambda: working.tally.ok == 1)
            working.stop()
        finally:
            other.execute("ROLLBACK")
            other.close()


def test_what_on_start_raises_ends_the_worker_and_nothing_else(memory):
    @memory.handler("jobs")
    def job(n: int) -> None: ...

    def refuse() -> None:
        raise OSError("no more room")

    before = set(threading.enumerate())  # one that a store did not let go may still be on its way

    stopped = Worker(memory)
    stopped.on_start = refuse
    with pytest.raises(OSError, match="no more room"):
        stopped.run(signals=False)
    until(lambda: not [new for new in set(threading.enumerate()) - before if new.name == "penstock fetcher"])
    job.put(1)
    assert work(memory).ok == 1


def test_of_schedules_that_are_due_the_one_that_has_waited_longest_comes_first(memory):
    for name in ("a", "b"):
        made = memory.schedule(name, "jobs", every=60)
        (task,) = [task for task in memory.tube(SCHEDULES).tasks() if task.key == name]
        assert task.pri == made.next


def test_an_idle_worker_lets_go_of_the_queue_of_old_code(tmp_path: Path, monkeypatch):
    (tmp_path / "sixth_app.py").write_text(
        "import penstock\nq = penstock.connect('memory:sixth')\n@q.handler('jobs')\ndef job(n: int) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    app = App("sixth_app:q")
    old = weakref.ref(app.load())
    reloading: Any = Worker(old())
    reloading.app = app
    gc.disable()
    try:
        thread = threading.Thread(target=reloading.run, kwargs={"signals": False})
        started = threading.Event()
        reloading.on_start = started.set
        thread.start()
        assert started.wait(PATIENCE)
        asyncio.run_coroutine_threadsafe(reloading._reload(app), reloading._loop).result(PATIENCE)
        until(lambda: old() is None)
        reloading.stop()
        thread.join(PATIENCE)
    finally:
        gc.enable()
