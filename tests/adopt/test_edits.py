"""Rows of an adopted table changed by hand: seen at once, by everybody, through every door."""

from __future__ import annotations

import pytest
from tests.adopt.pairs import sqlite_in_every_run
from tests.support.shop import TIMED

from penstock import LeaseLost, State, TaskNotFound

AUTO = {"id": "auto", **TIMED}


def through_connection(shop, text):
    shop.sql(text)


def through_transaction(shop, text):
    with shop.q.transaction() as tx:
        tx.connection.execute(text)


def through_process(shop, text):
    shop.elsewhere(text)


# The other doors are gone through in every run by the tests of takes that wait, and of a transaction.
@pytest.fixture(
    params=[
        through_connection,
        *(pytest.param(door, marks=pytest.mark.exhaustive) for door in (through_transaction, through_process)),
    ]
)
def by_hand(request, shop):
    """Run a statement of the user's, through each of the doors."""
    return lambda text: request.param(shop, text)


def seconds(shop):
    return shop.bench.clock.now() / 1_000_000


def filled(shop, number=1, **options):
    orders = shop.orders(AUTO, **options)
    orders.put_many([{"item": "tea"}] * number)
    return orders


def test_an_inserted_row_is_a_task(shop, by_hand):
    orders = filled(shop, 0)
    by_hand("INSERT INTO orders (id, status, prio, branch, item) VALUES (7, 'R', 3, 'south', 'milk')")
    assert shop.counted(orders) == {"R": 1}
    task = orders.peek(7)
    assert (task.state, task.pri, task.lane, task.data) == (State.READY, 3, "south", {"item": "milk", "amount": 1})
    assert orders.take().ack().id == 7


def test_a_deleted_row_is_no_task_any_more(shop, by_hand):
    orders = filled(shop, 2)
    held = orders.take()
    by_hand("DELETE FROM orders")
    with pytest.raises(LeaseLost) as caught:
        held.ack()
    assert caught.value.now == "gone"
    assert orders.take() is None
    assert shop.counted(orders) == {}
    with pytest.raises(TaskNotFound):
        orders.peek(2)


@pytest.mark.parametrize(("letter", "state"), [("R", State.READY), ("B", State.BURIED), ("D", State.DONE)])
def test_a_taken_row_with_another_letter_ends_its_lease(shop, by_hand, letter, state):
    orders = filled(shop)
    held = orders.take()
    by_hand(f"UPDATE orders SET status = '{letter}' WHERE id = 1")  # noqa: S608
    with pytest.raises(LeaseLost):
        held.ack()
    assert orders.peek(1).state == state
    assert shop.row(1) == letter


def test_a_row_put_aside_by_hand_comes_back_by_hand(shop, by_hand):
    orders = filled(shop)
    by_hand("UPDATE orders SET status = 'B'")
    assert orders.take() is None
    assert shop.counted(orders) == {"B": 1}
    by_hand("UPDATE orders SET status = 'R'")
    assert orders.take().id == 1


def test_a_waiting_take_is_woken_by_a_row_from_another_process(shop, waiter):
    # The one test here with the real clock: whoever waits looks for changes of others by it.
    shop.orders(AUTO)
    shop.q.close()
    q = shop.bench.connect(clock=None)
    orders = q.tube("orders")
    wait = waiter(q, lambda: orders.take(timeout=60))
    through_process(shop, "INSERT INTO orders (id, status) VALUES (7, 'R')")
    assert wait.result().id == 7


def test_a_waiting_take_is_woken_by_a_row_of_a_transaction(shop, waiter):
    orders = filled(shop, 0)
    wait = waiter(shop.q, lambda: orders.take(timeout=60))
    through_transaction(shop, "INSERT INTO orders (id, status) VALUES (7, 'R')")
    assert wait.result().id == 7


def test_edits_are_seen_by_the_next_call_of_the_same_transaction(shop):
    orders = filled(shop, 0)
    with shop.q.transaction() as tx:
        tx.connection.execute("INSERT INTO orders (id, status) VALUES (7, 'R')")
        assert orders.put({}, transaction=tx).id == 8
    assert [task.id for task in orders.take_many(5)] == [7, 8]


def test_edits_made_while_nobody_has_the_store_open_are_seen_by_the_next_run(shop):
    orders = filled(shop, 2)
    orders.take()
    shop.q.close()
    shop.sql("UPDATE orders SET status = 'B' WHERE id = 2")
    shop.sql("INSERT INTO orders (status) VALUES ('R')")
    orders = shop.bench.connect().tube("orders")
    assert shop.counted(orders) == shop.shown() == {"R": 2, "B": 1}


def test_a_row_with_an_unknown_letter_is_left_alone(shop):
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, due REAL, prio INTEGER, branch TEXT, "
             "tries INTEGER, item TEXT)")  # fmt: skip
    rows = [(1, "new", None, 3, None, None, "tea"), (2, None, 5.5, None, "x", 4, "milk"), (3, "r", 0, 0, "", 0, "")]
    shop.fill("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    orders = shop.orders(AUTO)
    assert (shop.counted(orders), orders.take()) == ({}, None)
    shop.bench.clock.advance(1000)
    shop.sql("UPDATE orders SET prio = 9, item = 'beer' WHERE id = 1")
    assert orders.tasks() == []
    assert shop.sql("SELECT * FROM orders ORDER BY id")[1:] == rows[1:]
    shop.sql("UPDATE orders SET status = 'R' WHERE id = 1")
    held = orders.take()
    assert (held.pri, held.data) == (9, {"item": "beer"})
    shop.sql("UPDATE orders SET status = 'archived' WHERE id = 1")
    with pytest.raises(LeaseLost):
        held.ack()
    assert shop.row(1) == "archived"


def test_T_rows_found_at_adoption_become_R(shop):  # case 251
    orders = filled(shop, 0)
    orders.drop()
    shop.sql("INSERT INTO orders (status, due, tries) VALUES ('T', 1e9, 2), ('R', 0, 0)")
    orders = shop.orders(AUTO)
    assert shop.sql("SELECT status, due, tries FROM orders ORDER BY id") == [("R", 0, 2), ("R", 0, 0)]
    assert [task.attempt for task in orders.take_many(5)] == [3, 1]


@sqlite_in_every_run
def test_nobody_takes_a_task_by_writing_T(shop):
    orders = filled(shop)
    shop.sql("UPDATE orders SET status = 'T'")
    assert shop.counted(orders) == shop.shown() == {"R": 1}


def test_times_found_in_rows_mean_what_their_letter_says(shop):
    orders = filled(shop, 0)
    now = seconds(shop)
    shop.sql(
        "INSERT INTO orders (status, due) VALUES ('W', ?1 + 1), ('R', ?1 + 2), ('Z', ?1 + 3), ('B', ?1 + 4)", (now,)
    )
    assert shop.counted(orders) == {"W": 1, "R": 1, "ZD": 1, "B": 1}
    shop.bench.clock.advance(1)
    assert shop.letters() == {"R": 2, "Z": 1, "B": 1}
    shop.bench.clock.advance(1)
    assert shop.letters() == {"R": 1, "Z": 1, "B": 1}
    shop.bench.clock.advance(1)
    assert shop.letters() == {"R": 1, "B": 1}
    shop.bench.clock.advance(1)
    assert shop.letters() == {"R": 1}
    assert shop.row(1, "status, due") == ("R", 0)


def test_a_held_task_keeps_its_lease_when_other_columns_change(shop):
    orders = filled(shop, 2)
    held = orders.take(ttr=60)
    shop.sql("UPDATE orders SET item = 'milk', prio = 5, branch = 'south' WHERE id = 1")
    task = orders.peek(1)
    assert (task.state, task.pri, task.lane, task.data["item"]) == (State.TAKEN, 5, "south", "milk")
    shop.sql("UPDATE orders SET due = ? WHERE id = 1", (seconds(shop) + 5,))
    shop.bench.clock.advance(4)
    assert held.release().pri == 5
    assert orders.take().id == 2


@sqlite_in_every_run
def test_a_held_task_whose_deadline_is_moved_by_hand_ends_then(shop):
    orders = filled(shop)
    held = orders.take(ttr=60)
    shop.sql("UPDATE orders SET due = ? WHERE id = 1", (seconds(shop) + 5,))
    assert orders.peek(1).state == State.TAKEN
    shop.bench.clock.advance(5)
    with pytest.raises(LeaseLost):
        held.ack()


@sqlite_in_every_run
def test_a_letter_changed_alone_leaves_the_old_moment_without_meaning(shop):
    orders = filled(shop, 0)
    orders.put({}, ttl=100)
    orders.take(ttr=5)
    shop.sql("UPDATE orders SET status = 'R'")
    assert orders.peek(1).state == State.READY
    shop.bench.clock.advance(50)
    assert shop.row(1) == "R"
    shop.bench.clock.advance(50)
    assert shop.row(1) is None


@sqlite_in_every_run
def test_a_new_moment_of_a_waiting_row_counts(shop):
    orders = filled(shop, 0)
    orders.put({}, delay=100)
    shop.sql("UPDATE orders SET due = ?", (seconds(shop) + 3,))
    assert orders.take() is None
    shop.bench.clock.advance(3)
    assert orders.take().id == 1


def test_a_changed_key_is_another_task(shop):
    orders = filled(shop)
    held = orders.take()
    shop.sql("UPDATE orders SET id = 9")
    with pytest.raises(LeaseLost):
        held.ack()
    assert orders.take().id == 9
    assert shop.counted(orders) == {"T": 1}


def test_lanes_are_served_right_after_edits_of_many_rows(shop):
    orders = filled(shop, 0, lane_concurrency=1)
    shop.fill("INSERT INTO orders (status, branch) VALUES ('R', ?)", [(f"lane{i % 3}",) for i in range(30)])
    assert [task.id for task in orders.take_many(10)] == [1, 2, 3]
    shop.sql("UPDATE orders SET branch = 'lane1' WHERE status = 'R'")
    assert orders.take() is None
    orders.ack(2)
    assert orders.take().id == 4


def test_no_edit_of_our_own_is_noted_as_one_by_hand(shop):
    orders = filled(shop, 4)
    one, two, three, four = orders.take_many(4)
    one.ack(update={"item": "x"})
    two.release(delay=5, update={"branch": "a", "prio": 4})
    three.bury()
    orders.touch(four.id, 5)
    shop.bench.clock.advance(5)
    orders.plow()
    orders.delete(2)
    assert shop.unseen() == []
    assert four.ack().state == State.DONE


@pytest.mark.parametrize(
    "first", ["a", pytest.param("z", marks=pytest.mark.exhaustive)]
)  # before and after ours, by name
def test_what_the_users_triggers_make_of_our_writes_counts(shop, first):
    orders = filled(shop, 0)
    urgent = "UPDATE orders SET prio = -5, branch = 'cold' WHERE id = NEW.id"
    shop.trigger(f"{first}_urgent", "AFTER INSERT", "NEW.item = 'ice'", urgent)
    stop = "UPDATE orders SET status = 'B' WHERE id = NEW.id"
    shop.trigger(f"{first}_stop", "AFTER UPDATE OF status", "NEW.status = 'R' AND NEW.tries >= 2", stop)
    orders.put({"item": "tea"})
    orders.put({"item": "ice"})
    task = orders.take()
    assert (task.id, task.pri, task.lane) == (2, -5, "cold")
    task.release()
    orders.take().release()
    assert (orders.peek(2).state, shop.counted(orders)) == (State.BURIED, {"B": 1, "R": 1})
    assert shop.shown() == {"B": 1, "R": 1}
    assert shop.unseen() == []
