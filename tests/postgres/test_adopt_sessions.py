"""Adopted tables that several sessions write at once, in transactions of their own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.support.shop import TIMED

import penstock
from penstock import LeaseLost, State, UsageError

AUTO = {"id": "auto", **TIMED}


def filled(shop, number=1, **options):
    orders = shop.orders(AUTO, **options)
    orders.put_many([{"item": "tea"}] * number)
    return orders


def test_an_edit_counts_when_it_is_committed_and_not_before(shop):
    orders = filled(shop, 2)
    with shop.connect() as clerk, clerk.transaction():
        clerk.execute("update orders set status = 'B' where id = 1")
        clerk.execute("insert into orders (id, status) values (7, 'R')")
        assert shop.counted(orders) == {"R": 2}
        assert [task.id for task in orders.tasks("ready")] == [1, 2]
    assert shop.counted(orders) == shop.shown() == {"R": 2, "B": 1}


def test_an_edit_that_is_rolled_back_leaves_nothing(shop):
    orders = filled(shop, 3, lane_concurrency=1)
    held = orders.take()
    before = shop.side(), orders.statistics()
    with shop.connect() as clerk:
        clerk.execute("begin")
        clerk.execute("update orders set status = 'B', branch = 'x', prio = 4")
        clerk.execute("delete from orders where id = 2")
        clerk.execute("insert into orders (id, status) values (9, 'R')")
        clerk.execute("rollback")
    assert (shop.side(), orders.statistics()) == before
    assert held.ack().state == State.DONE


def test_a_row_that_is_being_edited_is_passed_by(shop):
    orders = filled(shop, 3)
    with shop.connect() as clerk, clerk.transaction():
        clerk.execute("update orders set item = 'milk' where id = 1")
        assert [task.id for task in orders.take_many(5)] == [2, 3]
        assert orders.peek(1).data["item"] == "tea"
    assert orders.take().data["item"] == "milk"


@pytest.mark.parametrize("branch", [None, "north"])
def test_time_does_not_wait_for_a_row_that_is_being_edited(shop, branch):
    orders = shop.orders(AUTO)
    for _ in range(2):
        orders.put({"branch": branch}, delay=5)
    with shop.connect() as clerk, clerk.transaction():
        clerk.execute("update orders set item = 'milk' where id = 1")
        shop.bench.clock.advance(5)
        assert shop.counted(orders) == {"W": 1, "R": 1}
        assert orders.take().id == 2
    assert orders.take().id == 1


def test_a_verb_waits_for_the_edit_of_its_row_and_then_knows_better(shop):
    orders = filled(shop)
    held = orders.take()
    with shop.connect() as clerk, ThreadPoolExecutor(1) as pool:
        with clerk.transaction():
            clerk.execute("update orders set item = 'milk' where id = 1")
            ack = pool.submit(held.ack)
            wait_for_lock(shop)
            # The row first, then the task, on both sides: nobody waits in a circle.
            clerk.execute("update orders set status = 'B' where id = 1")
        with pytest.raises(LeaseLost):
            ack.result(90)
    assert shop.counted(orders) == shop.shown() == {"B": 1}


def wait_for_lock(shop):
    """Until somebody waits for a lock in this database."""
    pause = threading.Event()
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    while not shop.connection.execute(waiting).fetchone()[0]:
        pause.wait(0.002)


def test_two_sessions_edit_one_row_one_after_the_other(shop):
    orders = filled(shop)
    with shop.connect() as one, shop.connect() as two, ThreadPoolExecutor(1) as pool:
        with one.transaction():
            one.execute("update orders set status = 'B', prio = 3 where id = 1")
            second = pool.submit(two.execute, "update orders set status = 'R', tries = 5 where id = 1")
            wait_for_lock(shop)
        second.result(90)
    task = orders.take()
    assert (task.pri, task.attempt) == (3, 6)
    assert shop.counted(orders) == shop.shown() == {"T": 1}


def test_sessions_that_insert_text_keys_at_once_do_not_wait_for_each_other(shop):
    shop.sql("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT)")
    orders = shop.orders({"id": "required"}, {"status": "status"})
    with shop.connect() as one, shop.connect() as two:
        for session in (one, two):
            session.execute("set lock_timeout = '60s'")
            session.execute("begin")
        one.execute("insert into orders values ('b', 'R')")
        two.execute("insert into orders values ('a', 'R')")
        orders.put({}, id="d")
        two.execute("insert into orders values ('c', 'R')")
        one.execute("insert into orders values ('e', 'R')")
        two.execute("commit")
        assert [task.id for task in orders.tasks()] == ["a", "c", "d"]
        one.execute("commit")
    assert [task.id for task in orders.take_many(9)] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("number", [60, pytest.param(600, marks=pytest.mark.exhaustive)])
def test_workers_and_clerks_at_once_lose_nothing(shop, number):
    """Real time: workers take and finish while two clerks put, revive and delete rows by hand."""
    orders = shop.orders({**AUTO, "keep": True}, lane_concurrency=2)
    shop.q.close()
    done: list[int] = []
    edited = threading.Event()

    def work() -> None:
        with penstock.connect(shop.bench.url) as q:
            tube = q.tube("orders")
            over = False
            while not over:
                over = edited.is_set()
                while (task := tube.take(timeout=0 if over else 0.1)) is not None:
                    try:
                        done.append(task.ack(update={"amount": 2}).id)
                    except LeaseLost:
                        pass

    def edit(seed: int) -> None:
        with shop.connect() as clerk:
            for id in range(seed, number, 2):
                insert = "insert into orders (id, status, branch) values (%s, 'R', %s)"
                clerk.execute(insert, (id, f"lane{id % 3}"))
                clerk.execute("update orders set prio = 1 where id in (%s, %s)", (id - 4, id - 3))
                if id % 10 == seed:
                    clerk.execute("update orders set status = 'R' where id = %s and status = 'T'", (id - 2,))

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work), pool.submit(work)]
        try:
            for clerk in [pool.submit(edit, 0), pool.submit(edit, 1)]:
                clerk.result(100)
        finally:
            edited.set()
        for worker in workers:
            worker.result(100)
    orders = shop.bench.connect(clock=None).tube("orders")
    assert set(done) == set(range(number))
    assert shop.letters() == {"D": number}
    assert shop.counted(orders) == {"ZD": number}


def test_what_a_table_refuses_in_a_transaction_leaves_the_rest_of_it(shop):
    shop.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, status TEXT, item TEXT CHECK (item <> 'poison'))")
    orders = shop.orders({"id": "auto"}, {"status": "status"})
    other = shop.q.create_tube("other")
    with shop.q.transaction() as tx:
        other.put(1, transaction=tx)
        with pytest.raises(UsageError, match="refuses this"):
            orders.put({"item": "poison"}, transaction=tx)
        orders.put({"item": "tea"}, transaction=tx)
    assert (other.take().data, orders.take().data) == (1, {"item": "tea"})


def test_a_transaction_of_the_users_goes_on_after_a_refusal(shop):
    shop.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, status TEXT, item TEXT CHECK (item <> 'poison'))")
    orders = shop.orders({"id": "auto", "keep": True}, {"status": "status"})
    orders.put({"item": "tea"})
    held = orders.take()
    with shop.connect() as own, own.transaction():
        own.execute("insert into orders values (7, 'R', 'by hand')")
        with pytest.raises(UsageError, match="refuses this"):
            held.ack(update={"item": "poison"}, transaction=own)
        assert orders.put({"item": "milk"}, transaction=own).data == {"item": "milk"}
        held.ack(update={"item": "paid"}, transaction=own)
    assert shop.row(1, "status, item") == ("D", "paid")
    assert [task.id for task in orders.take_many(5)] == [7, 8]


def test_a_repeatable_read_of_the_users_edits_like_any(shop):
    orders = filled(shop, 2)
    with shop.connect() as clerk:
        clerk.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with clerk.transaction():
            clerk.execute("select count(*) from orders")
            assert orders.take().id == 1
            clerk.execute("update orders set status = 'B' where id = 2")
    assert shop.counted(orders) == shop.shown() == {"T": 1, "B": 1}
