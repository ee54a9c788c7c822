"""Stores that are restarted, locked, full or gone while a worker works: nothing is lost, and nobody has to help."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.support.postgres import Server
from tests.worker.bench import PATIENCE, Working, until

import penstock
from penstock.engines.sqlite import database
from penstock.worker import slots, worker


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A PostgreSQL of its own, for restarting."""
    with Server.start() as server:
        yield server


@pytest.fixture
def q(server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    if not server.is_running:
        server.start_again()
    schema = f"s{abs(hash(request.node.name))}"
    with penstock.connect(server.url(schema=schema, patience=30)) as queue:
        yield queue


def give_up_soon(q: Any) -> None:
    """From now on a call that finds no server fails soon; in the URL that would end calls on a slow machine too."""
    connections = q._engine.store._connections
    connections._place = connections._place._replace(patience=0.05)


def counted(q: Any, ran: Counter[int]) -> Any:
    @q.handler("jobs", retry=0)
    async def job(n: int) -> None:
        ran[n] += 1
        await asyncio.sleep(0)

    return job


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_database_may_be_restarted_while_a_worker_works(q: Any, server: Server, mode: str) -> None:  # case 312
    ran: Counter[int] = Counter()
    job = counted(q, ran)
    job.put_many(range(300))
    with Working(q, concurrency=4, prefetch=0) as working:
        until(lambda: working.tally.ok > 20)
        server.restart(mode)
        until(lambda: _is_empty(q))
        until(lambda: _put(job, 300))  # and it waits again
        until(lambda: ran[300])
    assert set(ran) == set(range(301))


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_finish_that_failed_is_tried_again(q: Any, server: Server, mode: str, caplog: Any) -> None:  # case 314
    inside, go_on = threading.Event(), threading.Event()

    @q.handler("jobs", keep=True)
    def job(n: int, run: penstock.Run) -> int:
        inside.set()
        assert go_on.wait(PATIENCE)
        return run.attempt

    task = job.put(1)
    with Working(q) as working:
        assert inside.wait(PATIENCE)
        give_up_soon(q)
        server.stop(mode)
        go_on.set()
        until(lambda: "could not be ended yet" in caplog.text)
        assert working.running
        server.start_again()
        until(lambda: _state(q, task.id) == "done")
    assert until(lambda: _state(q, task.id)) and q.tube("jobs").result(task.id) == 1
    assert caplog.text.count("could not be ended yet") == 1


def _state(q: Any, id: Any) -> str | None:
    try:
        return str(q.tube("jobs").peek(id).state)
    except penstock.EngineUnavailable:
        return None


def test_a_worker_starts_to_wait_again_after_a_long_time_without_a_store(q: Any, server: Server, caplog: Any) -> None:
    ran: Counter[int] = Counter()
    job = counted(q, ran)
    job.put(1)
    with Working(q):
        until(lambda: ran[1])
        give_up_soon(q)
        server.stop()
        until(lambda: "cannot be reached" in caplog.text or "no tasks can be taken" in caplog.text)
        server.start_again()
        until(lambda: _put(job, 2))
        until(lambda: ran[2])


def _put(job: Any, n: int) -> bool:
    try:
        job.put(n)
    except penstock.EngineUnavailable:
        return False
    return True


@pytest.mark.parametrize("again", [False, True])
def test_a_worker_ends_although_the_store_is_gone(q: Any, server: Server, monkeypatch: Any, again: bool) -> None:
    for module in (slots, worker):
        monkeypatch.setattr(module, "LAST_WORDS", 0.1)
    inside = threading.Event()

    @q.handler("jobs")
    async def job(n: int) -> None:
        inside.set()
        await asyncio.Event().wait()

    job.put(1)
    with Working(q, grace=0) as working:
        assert inside.wait(PATIENCE)
        give_up_soon(q)
        server.stop("immediate")
        working.stop(now=again)
    assert working.tally.given_back == 1
    server.start_again()


def test_worker_runs_a_task_that_comes_after_the_server_was_lost_while_it_stood_in_line(
    q: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiter that is in line when its call fails would be granted the task, and nobody would know."""
    ran: Counter[int] = Counter()
    job = counted(q, ran)
    store = q._engine.store
    learn, main = store._learn, store._connections.main
    lost = threading.local()

    def learn_without_a_server(names: set[str]) -> None:
        lost.now = True
        try:
            learn(names)
        finally:
            lost.now = False

    def unreached() -> Any:
        if getattr(lost, "now", False):
            raise penstock.EngineUnavailable("the server is gone")
        return main()

    with monkeypatch.context() as broken:
        broken.setattr(store, "_learn", learn_without_a_server)
        broken.setattr(store._connections, "main", unreached)
        with Working(q) as working:
            until(lambda: working.worker._slots)
            fetcher = working.worker._slots.fetcher  # type: ignore[union-attr]
            until(lambda: any(line.waiter or line.pause for line in fetcher.lines.values()))
            job.put(1)
            until(lambda: ran[1])


def test_one_shot_mode_survives_a_restart(q: Any, server: Server) -> None:
    ran: Counter[int] = Counter()
    job = counted(q, ran)
    job.put_many(range(50))
    q.tube("jobs").pause()  # until the server is back
    worker = penstock.Worker(q)
    outcome: list[Any] = []
    begun = threading.Event()
    worker.on_start = begun.set
    thread = threading.Thread(target=lambda: outcome.append(worker.run(until_empty=True)), daemon=True)
    thread.start()
    assert begun.wait(PATIENCE)
    server.restart("immediate")
    until(lambda: _resumed(q))
    thread.join(PATIENCE)
    assert [tally.ok for tally in outcome] == [50]


def _resumed(q: Any) -> bool:
    try:
        q.tube("jobs").resume()
    except penstock.EngineUnavailable:
        return False
    return True


def test_backends_that_are_ended_one_after_the_other_do_no_harm(q: Any, server: Server) -> None:
    ran: Counter[int] = Counter()
    job = counted(q, ran)
    job.put_many(range(200))
    with Working(q, concurrency=4) as working:
        for n in range(3):
            until(lambda n=n: working.tally.ok > 20 * n)
            server.kill_backends("postgres")
        until(lambda: _is_empty(q))
    assert set(ran) == set(range(200))


def _is_empty(q: Any) -> bool:
    try:
        return not q.tube("jobs").statistics().tasks["total"]
    except penstock.EngineUnavailable:
        return False


# -- a file ----------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Any]:
    with penstock.connect(tmp_path / "tasks.db") as queue:
        yield queue


def test_a_file_may_be_locked_by_another_program_for_a_while(
    file: Any, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    inside, go_on = threading.Event(), threading.Event()

    @file.handler("jobs", keep=True)
    def job(n: int, run: penstock.Run) -> int:
        inside.set()
        assert go_on.wait(PATIENCE)
        return run.attempt

    first = job.put(1)
    other = apsw.Connection(str(tmp_path / "tasks.db"))
    with Working(file):
        assert inside.wait(PATIENCE)
        until(lambda: _locked(other))
        go_on.set()
        until(lambda: "could not be ended yet" in caplog.text)
        other.execute("ROLLBACK")
        until(lambda: file.tube("jobs").peek(first.id).state == "done")
        second = job.put(2)
        assert file.tube("jobs").result(second.id, timeout=PATIENCE) == 1
    other.close()


def _locked(other: apsw.Connection) -> bool:
    try:
        other.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        return False
    return True


def test_a_full_disk_holds_results_back_until_there_is_room(file: Any, caplog: Any) -> None:
    inside, go_on = threading.Event(), threading.Event()

    @file.handler("jobs", keep=True)
    def job(n: int) -> str:
        inside.set()
        assert go_on.wait(PATIENCE)
        return "x" * 500_000

    task = job.put(1)
    store = file._engine.store
    connection = store._main.connection
    with Working(file):
        assert inside.wait(PATIENCE)
        with store._group.alone():
            connection.pragma("max_page_count", connection.pragma("page_count") + 2)
        go_on.set()
        until(lambda: "could not be ended yet" in caplog.text)
        with store._group.alone():
            connection.pragma("max_page_count", 1_000_000)
        assert len(file.tube("jobs").result(task.id, timeout=PATIENCE)) == 500_000
