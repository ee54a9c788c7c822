"""Both sides of an adopted table change together: constraints, transactions, runs, tables that go away."""

from __future__ import annotations

import logging

import pytest
from tests.adopt.pairs import sqlite_in_every_run
from tests.support.shop import TIMED

import penstock
from penstock import State, TubeBusy, TubeNotFound, UsageError
from penstock.model import ops
from penstock.model.session import Session

AUTO = {"id": "auto", **TIMED}
CHECKED = """
CREATE TABLE orders (
    id     INTEGER PRIMARY KEY,
    status TEXT NOT NULL CHECK (status IN ('R', 'T', 'W', 'Z')),
    due    REAL,
    item   TEXT NOT NULL,
    amount INTEGER UNIQUE CHECK (amount > 0)
)
"""


@pytest.fixture
def checked(shop):
    """A table with constraints of its own; B is no letter of it."""
    shop.sql(CHECKED)
    return shop.orders({"id": "auto", "zombie": True, **TIMED}, {"status": "status", "run_at": "due"}, history=True)


def everything(shop):
    """Both sides, and what is counted and recorded."""
    return shop.sql("SELECT * FROM orders ORDER BY id"), shop.side()


def test_a_put_that_the_table_refuses_stores_nothing(shop, checked):
    checked.put({"item": "tea", "amount": 1})
    before = everything(shop), checked.statistics()
    for data in ({}, {"item": "milk", "amount": 0}, {"item": "milk", "amount": 1}):
        with pytest.raises(UsageError, match="'orders' refuses this"):
            checked.put(data)
    assert (everything(shop), checked.statistics()) == before
    assert checked.put({"item": "milk", "amount": 2}).data == {"item": "milk", "amount": 2}


@pytest.mark.parametrize("verb", ["ack", "release"])
def test_an_update_that_the_table_refuses_changes_nothing(shop, checked, verb):
    checked.put_many([{"item": "tea", "amount": 1}, {"item": "milk", "amount": 2}])
    task = checked.take()
    before = everything(shop), checked.statistics()
    for update in ({"item": None}, {"amount": 0}, {"amount": 2}):
        with pytest.raises(UsageError, match="refuses this"):
            getattr(task, verb)(update=update)
    assert (everything(shop), checked.statistics()) == before
    assert getattr(task, verb)(update={"amount": 3}).data["amount"] == 3


def test_a_letter_that_the_table_refuses_undoes_the_update_too(shop, checked):
    checked.put({"item": "tea"})
    task = checked.take()
    before = everything(shop), checked.statistics()
    with pytest.raises(UsageError, match="refuses this"):
        task.bury(update={"item": "milk"})
    assert (everything(shop), checked.statistics()) == before
    assert task.ack(update={"item": "milk"}).state == State.DONE
    assert shop.row(1, "status, item") == ("Z", "milk")


@sqlite_in_every_run
def test_a_plow_that_fails_at_its_second_task_does_nothing(shop):
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, slot INTEGER UNIQUE)")
    orders = shop.orders({"id": "auto"}, {"status": "status"})
    heard = []
    orders.on_task_change(lambda task, event: heard.append(event))
    for number in (1, 2, 3):
        orders.bury(orders.put({"slot": number}).id)
    before = everything(shop), orders.statistics(), len(heard)
    with pytest.raises(UsageError, match="refuses this"):
        orders.plow(update={"slot": 9})
    after = everything(shop), orders.statistics(), len(heard)
    assert before == after
    assert orders.plow(1, update={"slot": 9}) == 1


def test_what_time_has_to_do_is_not_stopped_by_the_table(shop, caplog):
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, due REAL, customer TEXT)")
    shop.sql("CREATE UNIQUE INDEX one_ready ON orders (customer) WHERE status = 'R'")
    orders = shop.orders(AUTO, {"status": "status", "run_at": "due"})
    other = shop.q.create_tube("other")
    orders.put({"customer": "ann"})
    orders.take(ttr=5)
    orders.put({"customer": "ann"})
    other.put(1, delay=5)
    with caplog.at_level(logging.ERROR, "penstock"):
        shop.bench.clock.advance(5)
    assert "refuses what tube 'orders' has to write" in caplog.text
    assert other.take().data == 1
    assert orders.statistics().tasks["ready"] == 2
    assert [task.id for task in orders.take_many(1)] == [1]
    assert shop.shown() == {"T": 1, "R": 1}


def test_the_end_of_a_session_is_not_stopped_by_the_table(shop, caplog):
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, customer TEXT)")
    shop.sql("CREATE UNIQUE INDEX one_ready ON orders (customer) WHERE status = 'R'")
    orders = shop.orders({"id": "auto"}, {"status": "status"})
    orders.put({"customer": "ann"})
    orders.take()
    orders.put({"customer": "ann"})
    with caplog.at_level(logging.ERROR, "penstock"):
        again = shop.bench.new_run().tube("orders")
    assert "refuses what tube 'orders' has to write" in caplog.text
    assert again.take().id == 1


def test_an_adoption_that_the_table_refuses_leaves_nothing(shop):
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT CHECK (status <> 'R'))")
    shop.sql("INSERT INTO orders VALUES (1, 'T'), (2, 'B')")
    with pytest.raises(UsageError, match="refuses"):
        shop.orders({"id": "auto"}, {"status": "status"})
    assert shop.q.tubes() == []
    assert shop.sql("SELECT * FROM orders") == [(1, "T"), (2, "B")]
    assert shop.ours() == []
    assert shop.q.create_tube("orders").put(1).id == 1


def test_a_transaction_of_the_queue_undoes_both_sides(shop):
    orders = shop.orders(AUTO)
    orders.put({"item": "tea"})
    task = orders.take()
    before = shop.sql("SELECT * FROM orders ORDER BY id"), orders.statistics()

    def cross_out():
        with shop.q.transaction() as tx:
            tx.connection.execute("INSERT INTO orders (status) VALUES ('R')")
            orders.put({"item": "milk"}, transaction=tx)
            task.ack(transaction=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cross_out()
    assert (shop.sql("SELECT * FROM orders ORDER BY id"), orders.statistics()) == before
    assert shop.unseen() == []
    orders.ack(1)


@pytest.mark.parametrize("lane", [None, "north"])
def test_takes_in_a_transaction_are_in_the_history(shop, bench, lane):
    orders = shop.orders(history=True)
    orders.put_many([{"item": item, "branch": lane} for item in ("tea", "milk", "bread")])
    session = Session("6c1f9d0e-5d0b-5a55-9c8e-0f6f3a0f5b61", "clerk", 60_000_000, direct=False)
    with penstock.connect(bench.url, clock=bench.clock) as other, other._engine.transaction() as tx:
        tx.execute(ops.OpenSession(session))
        for number in (1, 2):
            tx.execute(ops.Take("orders", number, session, None))
    assert [event.task_id for event in shop.q.history() if event.event == "take"] == [1, 2, 3]


def test_a_transaction_on_a_connection_of_the_users_undoes_both_sides(shop):
    orders = shop.orders(AUTO)
    orders.put({"item": "tea"})
    before = shop.sql("SELECT * FROM orders ORDER BY id"), orders.statistics()
    shop.sql(shop.begin)
    shop.sql("INSERT INTO orders (id, status) VALUES (7, 'R')")
    assert orders.put({"item": "milk"}, transaction=shop.connection).id == 8
    shop.sql("ROLLBACK")
    assert (shop.sql("SELECT * FROM orders ORDER BY id"), orders.statistics()) == before
    shop.sql(shop.begin)
    shop.sql("INSERT INTO orders (id, status) VALUES (7, 'R')")
    with pytest.raises(UsageError):
        orders.put({"colour": "red"}, transaction=shop.connection)
    last = orders.put({"item": "milk"}, transaction=shop.connection)
    shop.sql("COMMIT")
    assert [task.id for task in orders.take_many(5)] == [1, 7, last.id]


def test_a_new_run_gives_back_what_was_taken(shop):  # case 251
    orders = shop.orders(AUTO)
    orders.put_many([{"item": "tea"}] * 3)
    orders.take_many(2)
    assert shop.letters() == {"T": 2, "R": 1}
    q = shop.bench.new_run()
    assert shop.letters() == {"R": 3}
    assert [task.attempt for task in q.tube("orders").take_many(5)] == [2, 2, 1]


def test_drop_leaves_the_data_and_removes_everything_of_ours(shop):
    orders = shop.orders(AUTO)
    orders.put_many([{"item": "tea"}] * 2)
    orders.bury(1)
    rows = shop.sql("SELECT * FROM orders")
    orders.drop()
    assert shop.sql("SELECT * FROM orders") == rows
    assert shop.ours() == []
    with pytest.raises(TubeNotFound):
        orders.take()
    shop.sql("UPDATE orders SET status = 'R'")
    assert shop.unseen() == []
    assert len(shop.orders(AUTO).take_many(5)) == 2


@sqlite_in_every_run
def test_a_tube_with_taken_rows_is_dropped_only_by_force(shop):
    orders = shop.orders(AUTO)
    orders.put({})
    orders.take()
    with pytest.raises(TubeBusy):
        orders.drop()
    orders.drop(force=True)
    assert shop.letters() == {"T": 1}


CHANGES = [
    "DROP TABLE orders",
    "ALTER TABLE orders RENAME TO old_orders",
    "DROP TRIGGER penstock_{number}_update{of_table}",
    "ALTER TABLE orders RENAME COLUMN prio TO importance",
]


@pytest.mark.parametrize(("change", "own"), [(CHANGES[0], True), (CHANGES[2], False)])
def test_a_table_that_goes_away_is_told_clearly_and_stops_nobody_else(shop, change, own):
    change_and_tell(shop, change, own)


@sqlite_in_every_run
@pytest.mark.parametrize(
    ("change", "own"),
    [
        *((CHANGES[number], False) for number in (0, 1, 3)),
        *(pytest.param(change, True, marks=pytest.mark.exhaustive) for change in CHANGES[1:]),
    ],
)
def test_a_table_that_is_changed_in_other_ways_is_told_too(shop, change, own):
    change_and_tell(shop, change, own)


def change_and_tell(shop, change, own):
    orders = shop.orders(AUTO)
    orders.put({"item": "tea"}, delay=5)
    orders.put({"item": "tea"})
    orders.take()
    change = shop.spelled(change)  # while there is no other tube, whose number may be lower
    other = shop.q.create_tube("other")
    other.put(1, delay=5)
    if own:
        with shop.q.transaction() as tx:
            tx.connection.execute(change)
    else:
        shop.sql(change)
    for verb in (
        lambda: orders.put({"item": "milk"}),
        orders.take,
        lambda: orders.peek(1),
        lambda: orders.ack(2),
        orders.plow,
        orders.tasks,
        orders.release_all,
        orders.truncate,
    ):
        with pytest.raises(UsageError, match="tube 'orders' cannot be used: the table 'orders'"):
            verb()
    shop.bench.clock.advance(5)
    assert other.take().data == 1
    assert set(shop.q.statistics()) == {"orders", "other"}
    orders.drop(force=True)
    assert [tube.name for tube in shop.q.tubes()] == ["other"]


def test_a_table_that_comes_back_goes_on(shop):
    orders = shop.orders(AUTO)
    orders.put({"item": "tea"})
    shop.sql("ALTER TABLE orders RENAME TO elsewhere")
    with pytest.raises(UsageError):
        orders.take()
    shop.sql("ALTER TABLE elsewhere RENAME TO orders")
    assert orders.take().ack().data["item"] == "tea"


@sqlite_in_every_run
def test_options_of_an_adopted_tube_can_be_altered(shop):
    orders = shop.orders(AUTO)
    orders.put_many([{"branch": "north"}] * 2)
    orders.alter(lane_concurrency=1, max_attempts=1)
    orders.pause()
    assert orders.take() is None
    orders.resume()
    assert orders.take().id == 1 and orders.take() is None
    assert orders.put({}).max_attempts == 1


@pytest.mark.parametrize("rows", [1200, pytest.param(6000, marks=pytest.mark.exhaustive)])
def test_a_large_table_is_adopted_and_edited_as_a_whole(shop, rows):
    shop.orders(AUTO).drop()
    shop.fill(
        "INSERT INTO orders (status, prio, branch) VALUES (?, ?, ?)",
        [("RTWBZD"[i % 6], i % 3, f"lane{i % 50}") for i in range(rows)],
    )
    orders = shop.orders(AUTO)
    sixth = rows // 6
    assert shop.counted(orders) == shop.shown() == {"R": 2 * sixth, "W": sixth, "B": sixth, "ZD": 2 * sixth}
    shop.sql("UPDATE orders SET status = 'R', prio = prio + 1")
    assert shop.counted(orders) == shop.shown() == {"R": rows}
    assert orders.take().pri == 1
