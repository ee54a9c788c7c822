"""Very much at once: no call holds a lock for each of very many lanes, or works row by row where it need not."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from tests.support.postgres import Server

import penstock
from penstock import Entry
from penstock.testing import ManualClock, lose

LANES = 1600
SETTINGS = {
    "max_connections": "20",
    "max_locks_per_transaction": "32",
    # Each of these would bring room for more locks.
    "max_wal_senders": "0",
    "max_worker_processes": "0",
    "autovacuum_worker_slots": "1",
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with room for fewer locks than there are lanes."""
    with Server.start(**SETTINGS) as server:
        with server.connect() as connection, pytest.raises(psycopg.errors.OutOfMemory):
            connection.execute("select count(pg_advisory_lock(i)) from generate_series(1, %s) i", [LANES])
        yield server.url("postgres")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def q(url: str, clock: ManualClock) -> Iterator[penstock.Queue]:
    with penstock.connect(url, clock=clock, durability="relaxed") as q:
        try:
            yield q
        finally:
            for tube in q.tubes():
                tube.drop(force=True)


@pytest.mark.parametrize(
    ("pick", "lanes"),
    [("order", 500), *(pytest.param(pick, 5500, marks=pytest.mark.exhaustive) for pick in ("order", "turns"))],
)
def test_delays_of_very_many_lanes_end_at_once(lent, clock, pick, lanes):
    """Not on the server with little room: lanes whose tasks become ready are locked, up to 5000 at a time."""
    with penstock.connect(lent, clock=clock, durability="relaxed") as q:
        jobs = q.create_tube("jobs", lane_pick=pick, lane_concurrency=1)
        jobs.put_many([Entry(n, lane=f"lane {n}") for n in range(lanes)], delay=5)
        clock.advance(5)
        assert jobs.statistics().tasks["ready"] == lanes
        assert len({task.lane for task in jobs.take_many(lanes)}) == lanes
        assert jobs.take() is None


@pytest.mark.exhaustive
def test_a_lost_session_gives_back_tasks_of_very_many_lanes(q, url, clock):
    jobs = q.create_tube("jobs", "utube")
    jobs.load(Entry(n, lane=f"lane {n}") for n in range(LANES))
    with penstock.connect(url, clock=clock, session_ttl=5) as other:
        assert len(other.tube("jobs").take_many(LANES)) == LANES
        lose(other)
        clock.advance(5)
        assert jobs.statistics().tasks["ready"] == LANES
        assert sorted(task.data for task in jobs.take_many(LANES)) == list(range(LANES))


def test_a_closed_queue_gives_back_and_counts_what_it_held(q, url, clock):
    jobs = q.create_tube("jobs", "fifottl", max_attempts=1)
    jobs.load(range(300))
    with penstock.connect(url, clock=clock) as other:
        assert len(other.tube("jobs").take_many(300)) == 300
    statistics = jobs.statistics()
    assert (statistics.tasks["ready"], statistics.tasks["taken"], statistics.calls["release"]) == (300, 0, 300)
    assert [task.data for task in jobs.take_many(3)] == [0, 1, 2]


def test_what_cannot_be_given_back_plainly_is_decided_one_by_one(q, url, clock):
    jobs = q.create_tube("jobs", "fifottl", ttl=30)
    jobs.load(range(100))
    jobs.load(range(100, 110), max_attempts=1)
    with penstock.connect(url, clock=clock, session_ttl=5) as other:
        held = other.tube("jobs").take_many(110, ttr=60)
        jobs.cancel(held[0].id)
        lose(other)
        clock.advance(5)
        tasks = jobs.statistics().tasks
        assert (tasks["ready"], tasks["buried"], tasks["done"]) == (99, 10, 1)


@pytest.mark.exhaustive
def test_rates_of_very_many_lanes_open_at_once(q, clock):
    jobs = q.create_tube("jobs", lane_rate=1)
    more = LANES // 4
    jobs.put_many([Entry(n, lane=f"lane {n % LANES}") for n in range(LANES + more)])
    assert len(jobs.take_many(2 * LANES)) == LANES
    assert jobs.take() is None
    clock.advance(1)
    assert len(jobs.take_many(2 * LANES)) == more


def test_very_many_lanes_are_acked_kicked_and_released_at_once(q):
    jobs = q.create_tube("jobs", "utubettl")
    jobs.load(Entry(n, lane=f"lane {n}") for n in range(LANES))
    for task in jobs.take_many(3):
        task.bury()
    held = jobs.take_many(LANES)
    assert jobs.release_all() == LANES - 3
    assert jobs.plow() == 3
    assert len(held) == LANES - 3
    assert len(jobs.ack_many(jobs.take_many(LANES))) == LANES
    assert jobs.statistics().tasks["total"] == 0


def test_a_put_in_a_transaction_is_not_refused_room_by_what_is_over(q, url, clock):
    jobs = q.create_tube("jobs", "limfifottl", capacity=1)
    jobs.put("old", ttl=5)
    now = clock.now() + 6_000_000
    with q.transaction() as tx:
        clock._now = now  # nobody has looked yet
        assert jobs.put("new", transaction=tx).outcome == "new"
    assert [task.data for task in jobs.tasks()] == ["new"]
