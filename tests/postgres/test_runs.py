"""A run begins after a crash, a promotion and a restore, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conftest import Background
from tests.support.postgres import Server, until

import penstock
from penstock import LeaseLost
from penstock.engines.postgres import migrate
from penstock.testing import ManualClock


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start(synchronous_commit="off", wal_writer_delay="10s") as server:
        server.create_database("model")
        migrate.run(server.url("model"))
        yield server


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    """A database with the schema, which takes long to make, and nothing in it."""
    server.create_database("here", template="model")
    yield server.url("here")
    server.drop_database("here")


def ask(server: Server, text: str, database: str = "here") -> Any:
    with server.connect(database) as connection:
        return connection.execute(text).fetchone()[0]


def epoch(server: Server) -> int:
    return ask(server, "select epoch from penstock.store")


def test_a_crash_begins_a_run(server, url):
    with penstock.connect(url, session_ttl=60) as q:
        jobs = q.create_tube("jobs", "fifo")
        cache = q.create_tube("cache", "fifo", temporary=True)
        jobs.put_many([1, 2, 3])
        cache.put_many([1, 2])
        held = jobs.take()
        jobs.put(4)
        first = epoch(server)
        server.restart("immediate")
        assert q.state() == "RUNNING"
        assert epoch(server) > first
        statistics = q.statistics()
        assert statistics["cache"].tasks["total"] == 0 and cache.take() is None
        assert statistics["jobs"].tasks["total"] == 4
        assert [statistics["jobs"].calls[name] for name in ("put", "take")] == [0, 0]
        assert statistics["jobs"].tasks["done"] == 0
        assert jobs.take().token > held.token
        assert held.ack().reason == "success", "its session lives on, and so does its lease"
        assert jobs.statistics().tasks["done"] == 1
        assert cache.put("new").data == "new"
        assert cache.take().data == "new"


def test_an_orderly_restart_begins_none(server, url):
    with penstock.connect(url) as q:
        q.create_tube("cache", "fifo", temporary=True).put("kept")
        first = epoch(server)
        server.restart("fast")
        assert q.tube("cache").take().data == "kept"
        assert q.tube("cache").statistics().calls["put"] == 1
        assert epoch(server) == first


def test_closing_and_connecting_begins_none(server, url):
    for n in range(3):
        with penstock.connect(url) as q:
            tube = q.create_tube("cache", "fifo", temporary=True, if_not_exists=True)
            assert tube.statistics().tasks["ready"] == n
            tube.put(n)


@pytest.mark.parametrize("crashes", [2, pytest.param(9, marks=pytest.mark.exhaustive)])
def test_tokens_never_repeat_however_often_the_server_crashes_and_forgets(server, url, crashes):
    """Nothing is synced here but the beginnings of runs: a crash forgets grants, and the counter of tokens."""
    tokens: list[int] = []
    with penstock.connect(url, durability="relaxed", session_ttl=60) as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.put_many(range(200))
        with server.connect("here") as admin:
            admin.execute("checkpoint")
        forgotten = 0
        for _ in range(crashes):
            taken = jobs.take_many(20)
            server.restart("immediate")
            tokens += [task.token for task in taken]
            last = f"select count(*) from penstock.tasks_1 where token >= {taken[0].token}"  # noqa: S608
            forgotten += 20 - ask(server, last)
        tokens += [task.token for task in jobs.take_many(20)]
        assert len(set(tokens)) == len(tokens) == 20 * (crashes + 1)
        assert tokens == sorted(tokens)
        assert forgotten > 0, "nothing was forgotten, so nothing is proved"


@pytest.mark.exhaustive
def test_sessions_have_their_time_from_the_beginning_of_the_run(server, url):
    """A crash takes longer than a session lives; nobody could have given a sign of life meanwhile."""
    with penstock.connect(url, session_ttl=0.5) as q:
        jobs = q.create_tube("jobs", "fifo", history=True)
        jobs.put("work")
        held = jobs.take()
        jobs.put("synced")
        keeper = q._engine.store._keeper
        keeper.stop()
        until(lambda: not keeper._thread.is_alive(), "a sign of life is on its way")
        q._engine.lose(q._session)
        server.stop("immediate")
        expired = q._engine.clock.now() + 500_000
        until(lambda: q._engine.clock.now() > expired, "time stands still")
        server.start_again()
        until(lambda: jobs.peek(held.id).state == "ready", "the dead keep their tasks")
        release = "select at - began_at from penstock.events, penstock.marker where event = 'release'"
        assert ask(server, release) == 500_000, "exactly when its time, counted from the run's beginning, was over"
        with pytest.raises(LeaseLost):
            held.ack()


def test_a_copy_of_the_database_begins_a_run_of_its_own(server, url):
    with penstock.connect(url) as q:
        q.create_tube("jobs", "fifo").put(1)
        q.create_tube("cache", "fifo", temporary=True).put(1)
        token = q.tube("jobs").take().token
        q.tube("jobs").put(2)
    first = epoch(server)
    server.create_database("copy", template="here")
    try:
        with penstock.connect(server.url("copy")) as q:
            assert ask(server, "select epoch from penstock.store", "copy") > first
            assert q.tube("jobs").take_many(5)[-1].token > token
            assert q.tube("cache").statistics().tasks["total"] == 0
            assert q.tube("jobs").statistics().calls["put"] == 0
    finally:
        server.drop_database("copy")


def test_a_store_whose_run_nobody_has_begun_starts_up(server, url):
    """What one sees of a standby that was promoted a moment ago. A manual clock has no keeper to begin the run."""
    clock = ManualClock()
    with penstock.connect(url, clock=clock) as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.put(1)
        assert q.state() == "RUNNING"
        with server.connect("here") as admin:
            admin.execute("delete from penstock.marker")
        assert q.state() == "STARTUP"
        assert jobs.take().data == 1
        assert q.state() == "RUNNING"


def test_the_keeper_begins_a_run_that_nobody_has_begun(server, url):
    """Behind a pooler nobody's connection breaks when the server crashes."""
    with penstock.connect(url) as q:
        first = epoch(server)
        with server.connect("here") as admin:
            admin.execute("delete from penstock.marker")
        until(lambda: epoch(server) > first, "nobody begins a run")
        assert q.state() == "RUNNING"


def test_two_processes_that_find_no_run_begin_one(server, url):
    penstock.connect(url).close()
    first = epoch(server)
    with server.connect("here") as one, server.connect("here") as two:
        one.execute("begin")
        one.execute("delete from penstock.marker")
        one.execute("commit")
        one.execute("begin")
        assert one.execute("select penstock.begin_run(null)").fetchone() == (True,)
        other = Background(lambda: two.execute("select penstock.begin_run(null)").fetchone())
        waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%%begin_run%%'"
        until(lambda: ask(server, waits) == 1, "the second does not wait")
        one.execute("commit")
        assert other.result() == (False,)
    assert epoch(server) > first
