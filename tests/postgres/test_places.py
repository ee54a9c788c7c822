"""Places that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.support import postgres

import penstock
from penstock.engines.postgres import migrations
from penstock.testing import ManualClock

PARTS = (
    "select relname from pg_class where relnamespace = 'place'::regnamespace and relname like 'tasks\\_%' order by 1"
)


@pytest.fixture(scope="module", autouse=True)
def _new_ones() -> Iterator[None]:
    """Those that others have left may be lent for the last time here, and there may be several."""
    before = postgres._free[:]
    postgres._free.clear()
    yield
    postgres._free.extend(before)


def test_a_place_that_was_given_back_has_nothing_of_the_last_test_in_its_url():
    url = postgres.lent_place()
    penstock.connect(url).close()
    postgres.give_back(f"{url}&options=-csearch_path%3Dnowhere")
    again = postgres.lent_place()
    assert again == url
    postgres.give_back(again)


def warm() -> str:
    with postgres.warmth():
        return postgres.lent_place(warm=True)


def number(q: penstock.Queue, tube: str) -> int:
    store: Any = q._engine.store  # type: ignore[attr-defined]
    with store._group.alone():
        found: int = store.known(tube, store._connections.main()).number
        return found


def test_a_tube_in_a_warm_place_is_new_although_its_parts_are_not():
    url = warm()
    with penstock.connect(url) as q:
        tube = q.create_tube("jobs", keep=True, history=True)
        tube.put_many(range(9), lane="a")
        tube.take().ack()
        tube.take().bury()
        tube.lane("a").configure(concurrency=1)
        parts = number(q, "jobs")
    postgres.give_back(url)
    assert warm() == url
    with penstock.connect(url) as q:
        tube = q.create_tube("other")
        assert number(q, "other") == parts
        assert (tube.statistics().tasks["total"], list(tube.lanes()), list(q.history())) == (0, [], [])
        assert set(tube.statistics().calls.values()) <= {0}
        assert tube.put(1, lane="a").id == 1
        assert len(tube.take_many(5)) == 1
    postgres.give_back(url)


def test_what_an_alteration_has_added_is_not_for_the_next_tube():
    url = warm()
    with penstock.connect(url) as q, psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        q.create_tube("jobs")
        before = connection.execute(PARTS).fetchall()
        tube = q.create_tube("altered")
        tube.alter(lane_order="strict")
        altered = {number(q, "altered")}
        tube.alter(lane_order="skip")
        assert ("tasks_{}_stand".format(*altered),) in connection.execute(PARTS).fetchall() and before
    postgres.give_back(url)
    assert warm() == url
    with penstock.connect(url) as q:
        for name in ("jobs", "altered"):
            q.create_tube(name)
            assert number(q, name) not in altered
    postgres.give_back(url)


def test_a_warm_place_whose_functions_were_made_anew_is_not_lent_again():
    url = warm()
    postgres.give_back(url)
    assert warm() == url
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        migrations.migrate(connection, postgres.PLACE, force=True)
    postgres.give_back(url)
    again = warm()
    assert again != url
    postgres.give_back(again)


def test_a_connection_that_outlives_its_store_has_nothing_of_it():
    url = warm()
    pids = []
    for _ in range(2):
        with penstock.connect(url, clock=ManualClock()) as q:
            store: Any = q._engine.store  # type: ignore[attr-defined]
            main = store._connections.main()
            assert main.execute("select to_regclass('pg_temp.mine'), current_setting('work_mem')").fetchone() == (
                None,
                "4MB",
            )
            locks = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
            assert main.execute(locks).fetchone() == (0,)
            main.execute("create temp table mine (n integer)")
            main.execute("set work_mem = '5MB'")
            main.execute("select pg_advisory_lock(1)")
            pids.append(main.info.backend_pid)
        assert main.closed
    postgres.give_back(url)
    assert pids[0] == pids[1]
