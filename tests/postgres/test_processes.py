"""Several processes on one schema: each task once, each session on its own, and keepers that share their work."""

from __future__ import annotations

import os
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from tests.crash.children import family
from tests.postgres import roles
from tests.sqlite import roles as common
from tests.support import invariants, postgres
from tests.support.postgres import until

import penstock
from penstock import NotOwner
from penstock.testing import ManualClock


@pytest.fixture
def url(lent: str) -> str:
    with penstock.connect(lent) as q:
        q.create_tube("jobs", "fifo")
    return lent


def look(url: str) -> psycopg.Connection[Any]:
    parts = urlsplit(url)
    (schema,) = parse_qs(parts.query)["schema"]
    connection = postgres.shared_server().connect(parts.path[1:])
    connection.execute(f"set search_path to {schema}")
    return connection


def tasks_of(connection: psycopg.Connection[Any], tube: str) -> str:
    """The name of the table of a tube's tasks."""
    row = connection.execute("select 'tasks_' || number from tubes where name = %s", [tube]).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize(
    ("kind", "number"),
    [("fifo", 20), *(pytest.param(kind, 100, marks=pytest.mark.exhaustive) for kind in ("fifo", "utube", "standard"))],
)
def test_four_processes_put_and_take_and_each_task_is_done_once(lent, kind, number):
    with penstock.connect(lent) as q, family() as children:
        q.create_tube("jobs", kind)
        workers = [children.start(common.put_and_take, lent, name, number) for name in "abcd"]
        for worker in workers:
            assert worker.line() == ["ready"]
        for worker in workers:
            worker.tell("go")
        lines = [line for worker in workers for line in worker.rest()]
        assert [worker.exit() for worker in workers] == [0] * 4
        done = Counter(line[1] for line in lines if line[0] == "did")
        assert done == Counter(f"{name}:{n}" for name in "abcd" for n in range(number))
        statistics = q.tube("jobs").statistics()
        assert statistics.tasks["total"] == 0
        assert [statistics.calls[name] for name in ("put", "take", "ack")] == [4 * number] * 3
        invariants.check(lent)


def test_a_killed_holders_tasks_come_back_without_anybodys_help(url):
    """The second process calls nothing: its keeper alone gives the tasks back, as a look at the table shows."""
    with penstock.connect(url) as q, family() as children:
        jobs = q.tube("jobs")
        jobs.put_many([1, 2, 3])
        holder = children.start(common.hold, url, 1000, 2)
        assert holder.line()[1] == [1, 2]
        assert jobs.statistics().tasks["taken"] == 2
        holder.kill()
        with look(url) as connection:
            # The time of its session is over; to wait for it would show no more.
            connection.execute("update sessions set expires_at = 1, ttl = 1 where ttl = 1000000000")
            taken = f"select count(*) from {tasks_of(connection, 'jobs')} where state = 'taken'"  # noqa: S608
            until(lambda: connection.execute(taken).fetchone() == (0,), "the dead keep their tasks")
        assert [task.id for task in jobs.take_many(5)] == [1, 2, 3]
        assert jobs.statistics().calls["release"] == 2


def test_a_killed_holders_task_goes_to_a_taker_that_waits_in_another_process(url):
    with penstock.connect(url) as q, family() as children:
        q.tube("jobs").put("work")
        holder = children.start(common.hold, url, 0.5, 1)
        assert holder.line()[1] == [1]
        taker = children.start(common.take_and_say, url)
        assert taker.line() == ["ready"]
        holder.kill()
        assert taker.line() == ["took", "work"]


def test_a_holder_that_closes_gives_its_tasks_back_at_once(url):
    with penstock.connect(url) as q, family() as children:
        jobs = q.tube("jobs")
        jobs.put("work")
        holder = children.start(common.hold, url, 1000, 1)
        assert holder.line()[0] == "holds"
        with pytest.raises(NotOwner) as caught:
            jobs.ack(1)
        assert caught.value.owner.endswith(f":{holder.pid}")
        holder.tell("close")
        assert holder.line() == ["closed"]
        assert jobs.take().data == "work"


def test_a_process_that_was_stopped_for_longer_than_its_session_has_lost_its_lease(url):
    with penstock.connect(url) as q, family() as children:
        jobs = q.tube("jobs")
        jobs.put("work")
        holder = children.start(common.stop_and_go, url, 0.3)
        assert holder.line() == ["holds", 1]
        until(lambda: is_stopped(holder.pid), "it goes on")
        task = jobs.take(timeout=60)
        assert task.data == "work" and task.attempt == 2
        os.kill(holder.pid, signal.SIGCONT)
        assert holder.line() == ["lost", "taken"]
        assert holder.line() == ["put", 2]
        assert task.ack().reason == "success"


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_holder_that_computes_for_longer_than_its_session_lives_keeps_it(url):
    """Nobody else has the place open, who would end a session that a slow machine keeps alive too late."""
    with penstock.connect(url) as q:
        q.tube("jobs").put("work")
    with family() as children, look(url) as connection:
        holder = children.start(roles.compute, url, 0.4)
        assert holder.line() == ["holds", 1]
        ask = "select expires_at from sessions"
        born = connection.execute(ask).fetchone()[0]
        until(lambda: connection.execute(ask).fetchone()[0] > born + 400_000, "the session gets no heartbeat")
        os.kill(holder.pid, signal.SIGUSR1)
        assert holder.line() == ["acked", "success"]
        assert holder.exit() == 0
    with penstock.connect(url) as q:
        assert q.tube("jobs").statistics().calls["release"] == 0


def test_a_change_of_tubes_in_one_process_is_seen_by_another(url):
    with penstock.connect(url) as q, family() as children:
        putter = children.start(common.put_when_told, url)
        putter.line()
        q.tube("jobs").drop()
        q.create_tube("jobs", "standard", capacity=100)
        putter.tell("new tube")
        assert putter.line() == ["put", 1]
        assert q.tube("jobs").take().data == "new tube"
        q.tube("jobs").pause()
        putter.tell("x")
        assert putter.line() == ["put", 2]
        assert q.tube("jobs").take() is None


# -- keepers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("processes", "sweeps"), [(4, 2), pytest.param(8, 12, marks=pytest.mark.exhaustive)])
def test_of_many_keepers_one_sweeps(url, processes, sweeps):
    """Several processes tick every second; what they write is what one of them would."""
    with family() as children, look(url) as connection:
        waiters = [children.start(roles.wait_for_ever, url) for _ in range(processes)]
        for waiter in waiters:
            assert waiter.line() == ["ready"]
        ask = "select swept_at from marker"
        seen = {connection.execute(ask).fetchone()[0]}

        def swept_often() -> bool:
            seen.add(connection.execute(ask).fetchone()[0])
            return len(seen) > sweeps

        until(swept_often, "nobody sweeps")
        moments = sorted(seen)
        gaps = [later - earlier for earlier, later in pairwise(moments[1:])]
        assert min(gaps) >= 500_000, "nothing was due, so nobody had to sweep sooner"


def test_a_keeper_leaves_to_another_what_that_is_doing(url):
    """While one sweeps, another neither waits for it nor sweeps too."""
    with look(url) as one, look(url) as two:
        one.execute("begin")
        one.execute("select keep_time('{}', '{}')")
        rows = two.execute("select info, at > 0 from keep_time('{}', '{}')").fetchall()
        assert rows == [("next", True)]
        one.execute("commit")


def test_a_manual_clock_always_sweeps(lent):
    clock = ManualClock()
    with penstock.connect(lent, clock=clock) as q:
        jobs = q.create_tube("jobs")
        with look(lent) as connection:
            for n in range(3):
                jobs.put(n, delay=0.1)
                clock.advance(0.1)
                states = connection.execute(f"select distinct state from {tasks_of(connection, 'jobs')}").fetchall()  # noqa: S608
                assert states == [("ready",)]


def test_a_due_task_that_somebody_has_locked_does_not_keep_the_keeper_busy(url, monkeypatch):
    with penstock.connect(url) as q:
        later = q.create_tube("later")
        task = later.put("x", delay=1000)
        with look(url) as connection:
            tasks = tasks_of(connection, "later")
            connection.execute(f"update {tasks} set due_at = 1; commit; begin; select from {tasks} for update")  # noqa: S608
            store: Any = q._engine.store
            ticks: list[int] = []
            tick = type(store).tick
            monkeypatch.setattr(store, "tick", lambda: (ticks.append(store.clock.now()), tick(store))[1])
            until(lambda: len(ticks) > 2, "the keeper makes no ticks")
            connection.execute("commit")
        gaps = [later - earlier for earlier, later in pairwise(ticks)]
        assert min(gaps) >= 10_000
        until(lambda: later.peek(task.id).state == "ready", "it is never ready")
