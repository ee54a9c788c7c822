"""Behind a pooler that lends a connection for one transaction: nothing may depend on having the same one again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from tests.conftest import Background
from tests.crash.children import family
from tests.sqlite import roles as common
from tests.support import postgres
from tests.support.postgres import until
from tests.support.proxy import Pooler

import penstock
from penstock.testing import waiting


@pytest.fixture
def pooler() -> Iterator[Pooler]:
    with Pooler(postgres.shared_server().port, number=2) as pooler:
        yield pooler


@pytest.fixture
def url(lent: str, pooler: Pooler) -> str:
    parts = urlsplit(lent)
    (schema,) = parse_qs(parts.query)["schema"]
    return pooler.url(parts.path[1:], schema=schema, notify="off", prepare="off")


def test_the_pooler_of_these_tests_gives_another_connection_each_time(pooler):
    with psycopg.connect(pooler.url(), autocommit=True) as first, psycopg.connect(pooler.url(), autocommit=True):
        ask = "select pg_backend_pid()"
        assert len({first.execute(ask).fetchone()[0] for _ in range(4)}) == 2
        with first.transaction():
            assert len({first.execute(ask).fetchone()[0] for _ in range(4)}) == 1


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("fifo", "utube")), "standard"]
)
def test_a_queue_works_behind_a_pooler(url, pooler, kind):
    with penstock.connect(url) as q, penstock.connect(url) as other:
        jobs = q.create_tube("jobs", kind, history=True)
        with q.transaction() as tx:
            jobs.put("a", transaction=tx)
            jobs.put("b", transaction=tx)
        with pytest.raises(ZeroDivisionError), q.transaction() as tx:  # noqa: PT012
            jobs.put("undone", transaction=tx)
            raise ZeroDivisionError
        jobs.put_many(["c", "d"])
        tasks = [jobs.take(), *other.tube("jobs").take_many(5)]
        while more := jobs.take():
            tasks.append(more)
        if kind == "utube":
            assert [task.data for task in tasks] == ["a"]
        else:
            assert sorted(task.data for task in tasks) == ["a", "b", "c", "d"]
        assert [task.ack().reason for task in tasks] == ["success"] * len(tasks)
        assert q.statistics()["jobs"].calls["ack"] == len(tasks)
        assert pooler.lent > 20


def test_ids_by_time_capacity_and_limits_need_no_session_of_the_server(url):
    with penstock.connect(url) as q:
        times = q.create_tube("times", id="time64", capacity=3)
        ids = [times.put(n).id for n in range(3)]
        assert ids == sorted(set(ids))
        with pytest.raises(penstock.TubeFull):
            times.put(4)
        few = q.create_tube("few", concurrency=1)
        few.put_many([1, 2])
        assert len(few.take_many(5)) == 1


def test_waiting_takes_look_for_what_others_put(url):
    with penstock.connect(url) as q, family() as children:
        jobs = q.create_tube("jobs", "fifo")
        taker = Background(lambda: jobs.take(timeout=60))
        until(lambda: waiting(q) == 1, "nobody waits")
        putter = children.start(common.put_when_told, url)
        assert putter.line() == ["ready"]
        putter.tell("x")
        assert taker.result().data == "x"


def test_processes_share_two_connections_and_do_each_task_once(url, pooler):
    with penstock.connect(url) as q, family() as children:
        q.create_tube("jobs", "standard")
        workers = [children.start(common.put_and_take, url, name, 20) for name in "abc"]
        for worker in workers:
            assert worker.line() == ["ready"]
        for worker in workers:
            worker.tell("go")
        lines = [line for worker in workers for line in worker.rest()]
        assert [worker.exit() for worker in workers] == [0] * 3
        done = Counter(line[1] for line in lines if line[0] == "did")
        assert done == Counter(f"{name}:{n}" for name in "abc" for n in range(20))
        until(lambda: backends(url) <= 2, "there are more of them")  # who has closed one is there for a moment still


def backends(url: str) -> Any:
    """Connections of the pooler: the only ones that are called penstock in this database."""
    with postgres.shared_server().connect(urlsplit(url).path[1:]) as connection:
        ask = """
            select count(*) from pg_stat_activity
            where application_name = 'penstock' and datname = current_database()
            """
        return connection.execute(ask).fetchone()[0]
