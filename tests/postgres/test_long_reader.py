"""One reads for hours in one snapshot: what is done meanwhile stays in the tables, but takes do not step over it."""

from __future__ import annotations

from contextlib import contextmanager

import psycopg
import pytest
from tests.plans.test_postgres_plans import Meter
from tests.postgres.callers import Caller

import penstock
from penstock.model import ops
from penstock.model.task import Draft

ROUNDS, BATCH = 10, 1000


@pytest.fixture
def place(lent: str) -> str:
    return lent


@contextmanager
def reader(caller: Caller):
    """An open snapshot that has seen the tube and keeps all that it saw."""
    with psycopg.connect(caller.place.conninfo) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute(f"select count(*) from {caller.schema}.tasks_{caller.number}")  # noqa: S608
        yield connection


def work_off(caller: Caller, rounds: int, batch: int = BATCH) -> None:
    for _ in range(rounds):
        caller.put(*[Draft("1")] * batch)
        taken = caller.take(batch)
        assert len(taken) == batch
        caller.ack(*taken)
        caller.tick()


def raised(caller: Caller) -> None:
    """As many ticks as a mark takes to follow."""
    for _ in range(4):
        caller.tick()


@pytest.fixture(params=[pytest.param("fifo", marks=pytest.mark.exhaustive), "fifottl"])
def caller(request, place):
    with penstock.connect(place, durability="relaxed") as q:
        q.create_tube("jobs", request.param)
    caller = Caller(place, "jobs")
    yield caller
    caller.close()


def test_takes_do_not_step_over_what_was_done_under_a_long_reader(caller, place):
    meter = Meter(place)
    take = ops.Take("jobs", 1, meter.caller.session)
    meter.of("take", lambda: [ops.Put("jobs", (Draft("1"),)), take])
    with reader(caller):
        work_off(caller, ROUNDS)
        meter.of("take under a reader", lambda: [ops.Put("jobs", (Draft("1"),)), take])
        meter.of("take of nothing", lambda: [take])
    meter.caller.close()
    print(meter.costs)
    # Two batches are behind the mark, on about fifty pages each; all of them would be hundreds.
    assert meter.costs["take under a reader"] < meter.costs["take"] + 200
    assert meter.costs["take of nothing"] < meter.costs["take"] + 200


def test_what_comes_back_below_the_mark_is_found_in_its_order(caller, place):
    caller.put(*[Draft(str(n)) for n in range(8)])
    first, second, third, fourth, fifth = caller.take(5)
    caller.put(*[Draft("1")] * 3000)
    caller.ack(*caller.take(3000))
    raised(caller)
    mark = caller.connection.execute(f"select seq from {caller.schema}.marks_{caller.number}").fetchone()  # noqa: S608
    assert mark is not None and mark[0] > fifth.id
    caller.release(third)
    caller.bury(first)
    caller.bury(fourth)
    assert caller.kick(1) == 1
    caller.release(second)
    assert [record.id for record in caller.take(2)] == [first.id, second.id]
    raised(caller)
    assert [record.id for record in caller.take(1)] == [third.id]
    assert caller.kick(1) == 1
    assert caller.take(1)[0].id == fourth.id
    assert caller.ack(fifth)[0] is not None


def test_a_put_of_an_open_transaction_is_found_below_any_mark(caller, place):
    other = Caller(place, "jobs")
    with other.transaction():
        (early,) = other.put(Draft("1"), joined=True)
        work_off(caller, 3)
        raised(caller)
    assert caller.take(1)[0].id == early.id
    other.close()


def test_a_put_with_a_better_priority_is_found_below_the_mark(place):
    with penstock.connect(place, durability="relaxed") as q:
        q.create_tube("jobs", "fifottl")
    caller = Caller(place, "jobs")
    work_off(caller, 3)
    raised(caller)
    low, high = caller.put(Draft("1", pri=1))[0], caller.put(Draft("1", pri=-1))[0]
    assert [record.id for record in caller.take(2)] == [high.id, low.id]
    caller.close()
