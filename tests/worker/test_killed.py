"""Workers that die, hang or stand still: real processes, and what becomes of their tasks."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from tests.crash.children import Child, Children, family
from tests.worker import roles
from tests.worker.bench import pass_by, until
from tests.worker.conftest import DURABLE, FILES

import penstock


@pytest.fixture
def children() -> Iterator[Children]:
    with family() as children:
        yield children


@pytest.fixture(params=DURABLE, ids=lambda engine: engine.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    url = request.param.url(tmp_path)
    yield url
    request.param.clean(url)


@pytest.fixture
def q(url: str) -> Iterator[Any]:
    with penstock.connect(url, durability="relaxed") as queue:
        yield queue


def made(q: Any, *names: str) -> None:
    """Make the tubes that a test needs: on PostgreSQL to make one takes longer than all the rest."""
    for name in names:
        q.create_tube(name, max_attempts=25)


def started(children: Children, url: str, *tubes: str, **worker: Any) -> tuple[Child, str]:
    """A worker for some tubes, and its session."""
    child = children.start(roles.program, url, {"tubes": tubes, **worker}, {})
    word, session = child.line()
    assert word == "started"
    return child, session


def test_a_killed_worker_costs_each_running_task_one_attempt(q: Any, url: str, children: Children) -> None:
    tubes = ("loop", "thread", "stuck")
    made(q, *tubes)
    tasks = {name: q.tube(name).put(name).id for name in tubes}
    child, session = started(children, url, *tubes)
    assert {child.line()[1] for _ in tubes} == set(tubes)
    child.kill()
    pass_by(q, session)
    for name, id in tasks.items():  # after the session's time, and with nobody's help
        until(lambda name=name, id=id: q.tube(name).peek(id).state == "ready")
        assert q.tube(name).peek(id).attempt == 1
    again, _ = started(children, url, *tubes)
    lines = sorted(again.line() for _ in tubes)
    assert lines == [["began", name, name, 2] for name in sorted(tubes)]


@pytest.mark.parametrize("url", FILES, indirect=True)
def test_a_task_that_kills_its_worker_each_time_is_buried(q: Any, url: str, children: Children) -> None:
    made(q, "stuck")
    task = q.tube("stuck").put(1, max_attempts=2)
    for attempt in (1, 2):
        child, session = started(children, url, "stuck")
        assert child.line() == ["began", "stuck", 1, attempt]
        child.kill()
        pass_by(q, session)
        until(lambda: q.tube("stuck").peek(task.id).state != "taken")
    found = q.tube("stuck").peek(task.id)
    assert (found.state, found.reason) == ("buried", "lost")


def test_a_worker_that_stood_still_beyond_its_leases_is_told_and_works_on(q: Any, url: str, children: Children) -> None:
    made(q, "thread")
    task = q.tube("thread").put(1)
    child, session = started(children, url, "thread", concurrency=1)
    assert child.line() == ["began", "thread", 1, 1]
    until(lambda: stands_still(child, url))
    pass_by(q, session)
    until(lambda: q.tube("thread").peek(task.id).state == "ready")
    os.kill(child.pid, signal.SIGCONT)
    child.tell(roles.SESSION_TTL)
    assert child.line() == ["told", "thread", 1, "lost"]
    assert child.line() == ["began", "thread", 1, 2]
    child.tell("go")
    assert child.line() == ["ran", "thread", 1, 2]
    os.kill(child.pid, signal.SIGTERM)
    assert child.rest()[-1][0] == "ended"


def stands_still(child: Child, url: str) -> bool:
    """Stop a process, but not in the middle of a transaction: nobody gets past what that has locked."""
    os.kill(child.pid, signal.SIGSTOP)
    if free := is_free(url):
        return free
    os.kill(child.pid, signal.SIGCONT)
    return False


def is_free(url: str) -> bool:
    """Whether nobody is in the middle of a transaction; if it is this process that question is asked again."""
    if "://" in url:
        with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
            ask = "select xact_start is null from pg_stat_activity where datname = current_database() and pid <> %s"
            others = connection.execute(ask, [connection.info.backend_pid]).fetchall()
            return all(free for (free,) in others)
    file = apsw.Connection(url)
    try:
        file.execute("BEGIN IMMEDIATE; ROLLBACK")
    except apsw.BusyError:
        return False
    finally:
        file.close()
    return True


@pytest.mark.parametrize("url", FILES, indirect=True)
def test_two_processes_run_a_hundred_tasks_once_each(q: Any, url: str, children: Children) -> None:  # case 286
    made(q, "quick")
    q.tube("quick").put_many(range(100))
    both = [started(children, url, "quick")[0] for _ in range(2)]
    until(lambda: not q.tube("quick").statistics().tasks["total"])
    for child in both:
        os.kill(child.pid, signal.SIGTERM)
    ran = Counter(line[2] for child in both for line in child.rest() if line[0] == "ran")
    assert ran == Counter(range(100))


def test_concurrency_of_a_tube_holds_over_processes(q: Any, url: str, children: Children) -> None:  # case 287
    tube = q.create_tube("few", concurrency=2)
    tube.put_many(range(60))
    several = [children.start(roles.inside, url, "few", {"concurrency": 2}) for _ in range(3)]
    for child in several:
        assert child.line() == ["ready"]
    for child in several:
        child.tell("go")
    most = [line[1] for child in several for line in child.rest() if line[0] == "taken"]
    assert len(most) == 60
    assert max(most) <= 2
    assert tube.statistics().tasks["total"] == 0
