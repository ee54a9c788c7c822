"""Takers that wait for a lane which its rate has shut are served at the rate's pace, not at the next look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.conftest import Background

import penstock
from penstock.engines.line import Taker
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.testing import waiting


@pytest.fixture
def place(warm: str) -> str:
    return warm


@pytest.fixture
def q(place: str) -> Iterator[penstock.Queue]:
    """A queue whose keeper is still: what is known of the time was learned by the calls."""
    with penstock.connect(place, session_ttl=100_000) as queue:
        store = queue._engine.store
        store._keeper.stop()
        store.tick()
        yield queue


def stand_in_line(q: penstock.Queue, tube: str) -> Taker:
    store = q._engine.store
    taker = Taker(ops.Take(tube, 1, q._session), store.clock.now() + 600 * SECOND)
    store.enlist(taker)
    assert not taker.done
    return taker


def moment(q: penstock.Queue, tube: str, column: str, table: str) -> Any:
    store = q._engine.store
    with psycopg.connect(store.place.conninfo) as connection:
        source = sql.Identifier(store.place.schema, f"{table}_{store._tubes[tube].number}")
        ask = sql.SQL("select min({}) from {}").format(sql.Identifier(column), source)
        row = connection.execute(ask).fetchone()
    assert row is not None and row[0] is not None
    return row[0]


def test_a_taker_in_line_knows_when_the_lane_opens(q):
    jobs = q.create_tube("jobs", lane_rate=0.001)
    jobs.put_many([penstock.Entry(data, lane="a") for data in range(2)])
    assert jobs.take(timeout=0).data == 0
    stand_in_line(q, "jobs")
    assert q._engine.store._next_tick == moment(q, "jobs", "at", "tickets")


def test_a_put_into_a_shut_lane_lets_takers_know(q):
    jobs = q.create_tube("jobs", lane_rate=0.001)
    jobs.put("first", lane="a")
    jobs.take(timeout=0).ack()
    taker = stand_in_line(q, "jobs")
    jobs.put("second", lane="a")
    store = q._engine.store
    while store._to_ask:  # it was asked a moment ago, so the keeper asks again in another one
        store.beat()
    assert not taker.done
    assert store._next_tick == moment(q, "jobs", "at", "tickets")


def test_a_taker_in_line_knows_what_another_has_delayed(q):
    jobs = q.create_tube("jobs")
    with psycopg.connect(q._engine.store.place.conninfo) as connection:
        jobs.put("later", delay=1000, transaction=connection)
    stand_in_line(q, "jobs")
    assert q._engine.store._next_tick == moment(q, "jobs", "due_at", "tasks")


def test_many_puts_do_not_ask_each(q):
    jobs = q.create_tube("jobs", lane_rate=0.001)
    jobs.put("first", lane="a")
    jobs.take(timeout=0).ack()
    stand_in_line(q, "jobs")
    store = q._engine.store
    store._asked_at["jobs"] = far = store.clock.now() + 600 * SECOND
    for data in range(20):
        jobs.put(data, lane="a")
    assert store._asked_at == {"jobs": far} and store._to_ask == {"jobs"}


@pytest.mark.parametrize("notify", ["on", pytest.param("off", marks=pytest.mark.exhaustive)])
def test_a_rated_lane_is_drained_by_waiting_takes(place, notify):
    with penstock.connect(f"{place}&notify={notify}") as q:
        jobs = q.create_tube("jobs", lane_rate=10)
        jobs.put_many([penstock.Entry(data, lane="a") for data in range(6)])
        assert [jobs.take(timeout=60).data for _ in range(6)] == list(range(6))
        taker = Background(lambda: jobs.take(timeout=60))
        jobs.put("last", lane="a")
        assert taker.result().data == "last"
        assert waiting(q) == 0
