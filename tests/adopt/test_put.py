"""put into an adopted table: ids, columns, times. (conformance 2.J)"""

from __future__ import annotations

import itertools
import uuid

import pytest
from tests.adopt.pairs import sqlite_in_every_run
from tests.support.shop import TIMED

from penstock import BatchError, DuplicateKey, Entry, State, UsageError


def texts(shop, features=None, **options):
    """A table with a text key."""
    shop.sql("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT, due REAL, item TEXT)")
    return shop.orders(features, {"status": "status", "run_at": "due"}, **options)


def seconds(shop):
    return shop.bench.clock.now() / 1_000_000


def test_the_first_id_of_auto_increment_is_1(shop):  # case 177
    orders = shop.orders({"id": "auto_increment"})
    assert [orders.put({"item": "tea"}).id for _ in range(3)] == [1, 2, 3]
    assert shop.sql("SELECT id, status, item FROM orders") == [(1, "R", "tea"), (2, "R", "tea"), (3, "R", "tea")]


def test_auto_increment_goes_on_above_every_row_whatever_its_letter(shop):
    orders = shop.orders({"id": "auto_increment"})
    orders.put({})
    shop.sql("INSERT INTO orders (id, status) VALUES (7, 'R'), (9, 'archived')")
    assert orders.put({}).id == 10
    orders.delete(10)
    assert orders.put({}).id == 11


def test_time64_ids_rise_even_within_one_nanosecond(shop):  # case 178
    orders = shop.orders({"id": "time64"})
    first, second = orders.put({}).id, orders.put({}).id
    assert first == shop.bench.clock.now() * 1000
    assert second == first + 1


def test_uuid_ids_are_unique_text(shop):  # case 179
    orders = texts(shop, {"id": "uuid"})
    ids = {task.id for task in orders.put_many([{"item": "tea"}] * 20)}
    assert len({uuid.UUID(text) for text in ids}) == 20
    assert {row for (row,) in shop.sql("SELECT id FROM orders")} == ids


@sqlite_in_every_run
def test_required_ids_are_mandatory(shop):  # case 180
    orders = texts(shop, {"id": "required"})
    with pytest.raises(UsageError, match="every put needs an id"):
        orders.put({"item": "tea"})
    assert orders.put({"item": "tea"}, id="a").id == "a"
    assert orders.put({"id": "b", "item": "milk"}).id == "b"
    assert shop.sql("SELECT id, item FROM orders") == [("a", "tea"), ("b", "milk")]


def test_a_used_id_is_refused_and_the_old_task_stays(shop):  # case 181
    orders = texts(shop, {"id": "required"})
    orders.put({"item": "tea"}, id="a")
    shop.sql("INSERT INTO orders VALUES ('b', 'archived', 0, 'old')")
    for used in ("a", "b"):
        with pytest.raises(DuplicateKey):
            orders.put({"item": "milk"}, id=used)
    assert shop.sql("SELECT * FROM orders") == [("a", "R", 0, "tea"), ("b", "archived", 0, "old")]
    assert orders.statistics().tasks["total"] == 1


@sqlite_in_every_run
def test_an_id_of_the_wrong_type_is_refused(shop):
    orders = texts(shop, {"id": "required"})
    for wrong in (5, ("a", "b")):
        with pytest.raises(UsageError, match=r"id \(text\)"):
            orders.put({}, id=wrong)
        with pytest.raises(UsageError, match=r"id \(text\)"):
            orders.peek(wrong)
    assert shop.letters() == {}


@sqlite_in_every_run
def test_a_function_makes_the_ids(shop):  # case 182
    numbers = itertools.count(100, 5)
    orders = shop.orders({"id": lambda: next(numbers)})
    assert [task.id for task in orders.put_many([{}, {}])] == [100, 105]
    assert orders.put({}).id == 110


@sqlite_in_every_run
def test_another_process_passes_the_id_where_a_function_made_it(shop):
    shop.orders({"id": lambda: 1}).put({})
    again = shop.bench.new_run().tube("orders")
    with pytest.raises(UsageError, match="pass id="):
        again.put({})
    assert again.put({}, id=2).id == 2


@sqlite_in_every_run
def test_a_supplied_id_is_refused_where_ids_are_made(shop):  # case 183
    orders = shop.orders({"id": "auto_increment"})
    with pytest.raises(UsageError, match="makes its ids itself"):
        orders.put({}, id=5)
    with pytest.raises(UsageError, match="another 'id'"):
        orders.put({"id": 5})
    assert shop.letters() == {}


@sqlite_in_every_run
def test_the_callers_map_is_left_alone(shop):  # case 184
    data = {"item": "tea", "branch": "south", "prio": 3}
    task = shop.orders().put(data)
    assert data == {"item": "tea", "branch": "south", "prio": 3}
    assert (task.lane, task.pri, task.data) == ("south", 3, {"item": "tea", "amount": 1})


def test_delay_makes_W_with_the_moment_in_its_column(shop):  # case 186
    orders = shop.orders()
    task = orders.put({"item": "tea"}, delay=0.1)
    assert shop.row(task.id, "status, due") == ("W", seconds(shop) + 0.1)
    shop.bench.clock.advance(0.1)
    assert shop.row(task.id, "status, due") == ("R", 0)
    assert orders.take().id == task.id


@sqlite_in_every_run
def test_options_need_their_feature(shop):  # case 186  # case 187
    orders = shop.orders({"id": "auto"})
    for option, words in (
        ({"delay": 1}, "'delay'"),
        ({"ttl": 1}, "'ttl'"),
        ({"ttr": 1}, "'ttr'"),
        ({"repeat": 1}, "'delay'"),
    ):
        with pytest.raises(UsageError, match=words):
            orders.put({}, **option)
    with pytest.raises(UsageError, match="'ttr'"):
        orders.take(ttr=5)  # case 194
    assert shop.letters() == {}


@sqlite_in_every_run
def test_lane_and_priority_need_their_column(shop):  # case 194
    orders = shop.orders({"id": "auto"}, {"status": "status"})
    for option in ({"pri": 1}, {"lane": "a"}):
        with pytest.raises(UsageError, match="needs the feature"):
            orders.put({}, **option)
    with pytest.raises(UsageError, match="needs the feature 'lanes'"):
        orders.take(lane="a")


@sqlite_in_every_run
def test_the_default_ttl_counts_from_put_and_is_shown(shop):  # case 190
    orders = shop.orders({"id": "auto", "ttl": 5})
    task = orders.put({})
    assert shop.row(task.id, "status, due") == ("R", seconds(shop) + 5)
    shop.bench.clock.advance(5)
    assert shop.row(task.id) is None
    assert orders.statistics().calls["ttl"] == 1


@sqlite_in_every_run
def test_delay_0_is_ready_at_once(shop):  # case 191
    orders = shop.orders()
    assert shop.row(orders.put({}, delay=0).id) == "R"


def test_every_field_is_written(shop):
    orders = shop.orders()
    task = orders.put({"item": "tea"}, pri=-3, lane="south", ttl=60, delay=10)
    now = seconds(shop)
    assert shop.row(task.id, "status, due, prio, branch, tries") == ("W", now + 10, -3, "south", 0)
    shop.bench.clock.advance(10)
    assert shop.row(task.id, "status, due") == ("R", now + 70)
    orders.take(ttr=5)
    assert shop.row(task.id, "status, due, tries") == ("T", now + 15, 1)


def test_without_columns_of_its_own_a_task_still_has_everything(shop):
    orders = shop.orders({"id": "auto"}, {"status": "status"}, max_attempts=2)
    orders.put({"item": "tea"}, key="k")
    task = orders.take()
    assert (task.attempt, task.max_attempts, task.key) == (1, 2, "k")
    task.release()
    assert orders.take().attempt == 2
    assert shop.sql("SELECT due, prio, branch, tries FROM orders") == [(None, None, None, None)]


def test_defaults_of_the_users_columns_apply_and_are_not_noticed_as_edits(shop):
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT NOT NULL, due REAL NOT NULL DEFAULT 9, "
             "prio INTEGER NOT NULL DEFAULT 5, branch TEXT NOT NULL DEFAULT 'main', tries INTEGER NOT NULL DEFAULT 7, "
             "item TEXT DEFAULT 'tea')")  # fmt: skip
    orders = shop.orders()
    task = orders.put({})
    assert task.data == {"item": "tea"}
    assert shop.row(task.id, "status, due, prio, branch, tries") == ("R", 0, 0, "", 0)
    assert shop.unseen() == []
    held = orders.take()
    assert held.id == task.id and held.ack().state == State.DONE


@sqlite_in_every_run
def test_only_a_mapping_of_columns_can_be_put(shop):
    orders = shop.orders()
    for data in ("tea", 5, None, ["tea"]):
        with pytest.raises(UsageError, match="mapping of columns"):
            orders.put(data)
    assert shop.letters() == {}


@sqlite_in_every_run
def test_columns_that_are_not_free_are_named(shop):
    orders = shop.orders()
    for column in ("colour", "status", "due", "tries"):
        with pytest.raises(UsageError, match=rf"no free columns \['{column}'\]; it has item, amount"):
            orders.put({column: 1})


def test_values_that_a_column_cannot_mean_are_refused(shop):
    orders = shop.orders()
    for column, value in (("prio", "high"), ("prio", 1.5), ("branch", [1]), ("amount", 2**63)):
        with pytest.raises(UsageError, match=r"must be|can hold|out of range"):
            orders.put({column: value})
    assert shop.letters() == {}


def test_good_items_of_a_batch_are_stored_and_bad_ones_told(shop):
    orders = shop.orders()
    with pytest.raises(BatchError) as caught:
        orders.put_many([{"item": "tea"}, {"colour": 1}, Entry({"item": "milk"}, pri=-1)])
    assert [type(result).__name__.removeprefix("Async") for result in caught.value.results] == [
        "Task",
        "UsageError",
        "Task",
    ]
    assert shop.sql("SELECT item, prio FROM orders") == [("tea", 0), ("milk", -1)]
    assert shop.counted(orders) == {"R": 2}


def test_keys_work_and_replace_writes_the_columns(shop):
    orders = shop.orders()
    first = orders.put({"item": "tea"}, key="k", pri=4)
    with pytest.raises(DuplicateKey):
        orders.put({"item": "milk"}, key="k")
    assert orders.put({"item": "milk"}, key="k", on_conflict="ignore").data == {"item": "tea", "amount": 1}
    again = orders.put({"item": "milk"}, key="k", on_conflict="replace", delay=5)
    assert (again.id, again.outcome, again.data) == (first.id, "replaced", {"item": "milk", "amount": 1})
    assert shop.row(first.id, "status, item, prio") == ("W", "milk", 0)


def test_the_table_is_served_in_the_order_of_priority_then_key(shop):  # case 241
    orders = shop.orders({"id": "required", **TIMED})
    for number, pri in ((5, 0), (3, 1), (9, 0), (4, 1), (1, 2)):
        orders.put({}, id=number, pri=pri)
    shop.sql("INSERT INTO orders (id, status, prio) VALUES (2, 'R', 1)")
    assert [task.id for task in orders.take_many(10)] == [5, 9, 2, 3, 4, 1]
