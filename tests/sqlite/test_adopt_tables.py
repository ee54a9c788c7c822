"""Adopted tables as only SQLite has them: columns of any type, REPLACE, STRICT, triggers that roll back."""

from __future__ import annotations

import apsw
import pytest
from tests.support.shop import ORDERS, TIMED

import penstock
from penstock import EngineUnavailable, LeaseLost, State, UsageError
from penstock.engines import open_store

AUTO = {"id": "auto", **TIMED}
STATUS = {"status": "status"}


@pytest.fixture
def table(shop):
    shop.sql(ORDERS)
    return shop


def seconds(shop):
    return shop.bench.clock.now() / 1_000_000


def filled(shop, number=1, **options):
    orders = shop.orders(AUTO, **options)
    orders.put_many([{"item": "tea"}] * number)
    return orders


def refused(shop, words, table="orders", fields=STATUS):
    """adopt() raises UsageError with these words and leaves no tube and no trigger behind."""
    with pytest.raises(UsageError, match=words):
        shop.q.adopt("orders", table=table, fields=fields)
    assert shop.q.tubes() == [] and shop.ours() == []


@pytest.mark.parametrize("declared", ["REAL", "DOUBLE", "BLOB"])
def test_keys_are_whole_numbers_or_text(shop, declared):
    shop.sql(f"CREATE TABLE orders (id {declared} PRIMARY KEY, status TEXT)")
    refused(shop, f"declared {declared}")


def test_a_view_and_the_tables_of_the_queue_itself_are_refused(table):
    table.sql("CREATE VIEW seen AS SELECT * FROM orders")
    refused(table, "not a table of your own but a view", table="seen")
    refused(table, "one of ours", table="penstock_sessions")
    refused(table, "one of ours", table="Penstock_Edits")


def test_a_strict_table_needs_a_time_column_that_holds_parts_of_a_second(shop):
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, due INTEGER) STRICT")
    refused(shop, "declare it REAL", fields={**STATUS, "run_at": "due"})


def test_no_index_on_the_users_table_is_needed(shop):  # case 166  # case 167
    orders = shop.orders()
    assert shop.sql("SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'orders'") == []
    tube = open_store(shop.bench.url)._tx.tube("orders")
    for name, values in (("candidate", ()), ("lane_candidate", ("south",)), ("buried", (5,)), ("find", (1,))):
        plan = [row[3] for row in shop.sql("EXPLAIN QUERY PLAN " + tube.sql[name], values)]
        assert plan[0].startswith("SEARCH penstock_tasks_") or " USING INDEX penstock_tasks_" in plan[0], plan
        assert any(step.startswith("SEARCH u USING INTEGER PRIMARY KEY") for step in plan), plan
        assert not any("SCAN u" in step or "TEMP B-TREE" in step for step in plan), plan
    assert orders.take() is None


def test_an_edit_by_hand_scans_no_table(shop):
    orders = shop.orders()
    orders.put_many([{"item": "tea"}] * 10)
    seen = []
    shop.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, lambda event: seen.append(event["stmt_status"]))
    shop.sql("INSERT INTO orders (status) VALUES ('R')")
    shop.sql("UPDATE orders SET status = 'B' WHERE id = 5")
    shop.sql("DELETE FROM orders WHERE id = 6")
    shop.connection.trace_v2(0, None)
    assert len(seen) >= 3 and not any(status["SQLITE_STMTSTATUS_FULLSCAN_STEP"] for status in seen)
    assert orders.statistics().tasks["total"] == 10


def test_lists_and_mappings_are_stored_as_json_text(shop):
    task = shop.orders().put({"item": {"name": "té", "n": [1, None]}})
    assert shop.row(task.id, "json_extract(item, '$.name'), json_extract(item, '$.n[0]')") == ("té", 1)
    assert task.data["item"] == '{"name": "té", "n": [1, null]}'


def test_rows_are_alike_whether_they_were_there_before_or_are_written_later(shop):
    rows = [
        (letter, due, prio, branch, tries)
        for letter in ("R", "T", "W", "B", "Z", "D", "x", None)
        for due in (None, 0, seconds(shop) + 50, "soon")
        for prio, branch, tries in ((None, None, None), (2, "a", 1), (1.0, "", -3), ("high", 7, "x"))
    ]
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, due, prio, branch, tries)")
    insert = "INSERT INTO orders (status, due, prio, branch, tries) VALUES (?, ?, ?, ?, ?)"
    shop.connection.executemany(insert, rows)
    before = described(shop, shop.orders(AUTO), len(rows))
    shop.q.tube("orders").drop()
    shop.sql("DELETE FROM orders")
    orders = shop.orders(AUTO)
    shop.connection.executemany(insert, rows)
    after = described(shop, orders, len(rows))
    assert before == after
    assert len(before[0]) == len(rows) * 6 // 8


def described(shop, orders, number):
    tasks = orders.tasks(limit=number)
    seen = [(t.id, t.state, t.reason, t.pri, t.lane, t.attempt, t.ready_at, t.expires_at, t.purge_at) for t in tasks]
    return seen, shop.sql("SELECT * FROM orders"), shop.counted(orders)


def test_rows_replaced_without_a_word_are_noticed(shop):
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, due REAL, slot INTEGER UNIQUE)")
    orders = shop.orders(AUTO, {"status": "status", "run_at": "due"})
    orders.put({"slot": 1})
    held = orders.take()
    orders.put({"slot": 2})
    orders.put({"slot": 3})
    shop.sql("REPLACE INTO orders (id, status, slot) VALUES (10, 'R', 1), (11, 'W', 2)")
    with pytest.raises(LeaseLost):
        held.ack()
    assert [task.id for task in orders.take_many(5)] == [3, 10]
    assert [task.id for task in orders.tasks()] == [3, 10, 11]
    assert shop.counted(orders) == shop.shown()


def test_a_row_that_is_back_as_it_was_keeps_its_lease(shop):
    orders = filled(shop)
    held = orders.take()
    shop.sql("BEGIN")
    shop.sql("UPDATE orders SET status = 'R'")
    shop.sql("UPDATE orders SET status = 'T'")
    shop.sql("COMMIT")
    assert held.ack().state == State.DONE


@pytest.mark.parametrize(
    ("declared", "first", "second"),
    [
        ("INTEGER PRIMARY KEY", 1, 2),
        ("INT PRIMARY KEY", 1, 2),
        ("BIGINT PRIMARY KEY", -(2**63), 2**63 - 1),
        ("TEXT PRIMARY KEY", "1", "two"),
        ("VARCHAR(36) PRIMARY KEY", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b811-9dad-11d1-80b4-00c04fd430c8"),
        ("UUID PRIMARY KEY", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "b"),
        ("TEXT PRIMARY KEY NOT NULL", "ä", "中"),
        ("PRIMARY KEY", "1", 1),
    ],
)
@pytest.mark.parametrize("rowid", ["", "WITHOUT ROWID"])
def test_keys_of_every_kind(shop, declared, first, second, rowid):
    shop.sql(f"CREATE TABLE orders (id {declared}, status TEXT, item TEXT) {rowid}")
    orders = shop.orders({"id": "required"}, {"status": "status"})
    orders.put({"item": "one"}, id=first)
    shop.sql("INSERT INTO orders VALUES (?, 'R', 'two')", (second,))
    assert {task.id: task.data["item"] for task in orders.take_many(5)} == {first: "one", second: "two"}
    orders.ack(first)
    shop.sql("DELETE FROM orders WHERE id = ?", (second,))
    assert shop.counted(orders) == {}


def test_rows_whose_key_is_no_id_are_left_alone(shop):
    shop.sql("CREATE TABLE orders (id PRIMARY KEY, status TEXT)")
    insert = "INSERT INTO orders VALUES (NULL, 'R'), (1.5, 'R'), (x'00', 'R')"
    shop.sql(insert)
    orders = shop.orders({"id": "required"}, {"status": "status"})
    shop.sql("DELETE FROM orders")
    shop.sql(insert)
    shop.sql("UPDATE orders SET status = 'B'")
    shop.sql("INSERT INTO orders VALUES (1, 'R')")
    assert shop.counted(orders) == {"R": 1}
    shop.sql("UPDATE orders SET id = 2.5 WHERE id = 1")
    assert (orders.take(), shop.counted(orders)) == (None, {})


def test_values_without_a_word_in_json_are_shown_as_text(shop):
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, body BLOB, price REAL, note TEXT)")
    orders = shop.orders({"id": "auto", "keep": True}, {"status": "status"})
    shop.sql("INSERT INTO orders VALUES (1, 'R', x'00ff', 9e999, 'é'), (2, 'R', 'text', 2.5, NULL)")
    one, two = orders.take_many(2)
    assert one.data == {"body": "00FF", "price": "Inf", "note": "é"}
    assert two.data == {"body": "text", "price": 2.5, "note": None}
    assert one.ack(update={"body": b"\x01\x02"}).data["body"] == "0102"
    assert shop.row(1, "body") == b"\x01\x02"


def test_a_strict_table_and_a_table_with_computed_columns(shop):
    shop.sql(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT NOT NULL, due REAL, price INTEGER, "
        "double INTEGER AS (price * 2)) STRICT"
    )
    orders = shop.orders({"id": "auto", **TIMED}, {"status": "status", "run_at": "due"})
    assert orders.put({"price": 4}, delay=0.5).data == {"price": 4}
    shop.bench.clock.advance(0.5)
    task = orders.take()
    with pytest.raises(UsageError, match="refuses"):
        task.release(update={"price": "dear"})
    assert shop.row(1, "status, price, double") == ("T", 4, 8)


def test_a_trigger_of_the_users_that_rolls_back_takes_nothing_halfway(shop):
    orders = shop.orders(AUTO)
    orders.put_many([{"item": "tea"}] * 2)
    shop.sql("CREATE TRIGGER strict BEFORE UPDATE ON orders WHEN NEW.item = 'poison' "
             "BEGIN SELECT RAISE(ROLLBACK, 'never'); END")  # fmt: skip
    task = orders.take()
    with pytest.raises(EngineUnavailable, match="never"):
        task.release(update={"item": "poison"})
    assert shop.counted(orders) == shop.shown() == {"T": 1, "R": 1}
    assert task.ack().state == State.DONE


def test_a_store_that_can_only_be_read_shows_adopted_tasks(shop):
    orders = shop.orders(AUTO)
    orders.put({"item": "tea"})
    shop.q.close()
    shop.sql("UPDATE orders SET item = 'milk'")
    shop.sql("INSERT INTO orders (status) VALUES ('R')")
    with penstock.connect(f"sqlite:///{shop.bench.url}?mode=ro") as reader:
        # What was changed by hand while nobody was there waits for somebody who may write.
        assert [task.data["item"] for task in reader.tube("orders").tasks()] == ["milk"]
    assert len(shop.bench.connect().tube("orders").tasks()) == 2
