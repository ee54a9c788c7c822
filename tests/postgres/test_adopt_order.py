"""Rows are served by priority and key, whatever the key is and in whichever order it came; edits may be large."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from tests.support.shop import TIMED

from penstock.engines import open_store

LINES = (
    "CREATE TABLE lines (shop TEXT, number INTEGER, status TEXT, prio INTEGER, branch TEXT, PRIMARY KEY (shop, number))"
)
FIELDS = {"status": "status", "priority": "prio", "lane": "branch"}
SHOPS = st.sampled_from(["a", "a b", "a!", "aa", "b", "é", "中", 'q"x'])
KEYS = st.tuples(SHOPS, st.integers(-3, 12))
STEPS = st.lists(st.tuples(KEYS, st.sampled_from([0, 0, 1]), st.sampled_from([None, "x"]), st.booleans()), max_size=25)
AUTO = {"id": "auto", **TIMED}


def in_order(key: tuple[str, int]) -> tuple[bytes, int]:
    return key[0].encode(), key[1]


some = settings(deadline=None, suppress_health_check=list(HealthCheck))
every_way = given(steps=STEPS, looks=st.sets(st.integers(0, 25)))


@settings(some, max_examples=5, derandomize=True)
@every_way
def test_composite_keys_are_served_in_their_order(shop, steps, looks):
    check_order(shop, steps, looks)


@pytest.mark.exhaustive
@settings(some, max_examples=200)
@every_way
def test_composite_keys_in_many_ways_are_served_in_their_order(shop, steps, looks):
    check_order(shop, steps, looks)


def check_order(shop: Any, steps: list[Any], looks: set[int]) -> None:
    if not shop.has_table("lines"):
        shop.sql(LINES)
        shop.q.adopt("lines", table="lines", fields=FIELDS)
    lines = shop.q.tube("lines")
    wanted: dict[tuple[str, int], int] = {}
    for number, (key, pri, lane, by_hand) in enumerate(steps):
        if key in wanted:
            continue
        wanted[key] = pri
        if by_hand:
            shop.sql("INSERT INTO lines VALUES (?, ?, 'R', ?, ?)", (*key, pri, lane))
        else:
            lines.put({}, id=key, pri=pri, lane=lane)
        if number in looks:
            assert [task.id for task in lines.tasks()] == sorted(wanted, key=in_order)
    order = sorted(wanted, key=lambda key: (wanted[key], in_order(key)))
    assert [task.id for task in lines.take_many(99)] == order
    lines.truncate()


@pytest.mark.exhaustive
def test_keys_that_always_come_between_two_others_find_room(shop):
    shop.sql("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT)")
    orders = shop.orders({"id": "required"}, {"status": "status"})
    keys = ["a", "b"]
    for number in range(70):  # more than the bits that there are between two others
        key = "a" + "a" * number + "b" if number % 2 else "a" * (number + 2)
        keys.append(key)
        shop.sql("INSERT INTO orders VALUES (?, 'R')", (key,))
        if number == 0:
            shop.sql("INSERT INTO orders VALUES ('a', 'R'), ('b', 'R')")
        orders.tasks(limit=1)
    assert [task.id for task in orders.take_many(200)] == sorted(keys)


@pytest.mark.exhaustive
def test_many_text_keys_at_once(shop):
    shop.sql("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT, branch TEXT)")
    fields = {"status": "status", "lane": "branch"}
    shop.sql("INSERT INTO orders SELECT md5(i::text), 'R', 'lane' || i % 7 FROM generate_series(1, 1100) i")
    orders = shop.orders({"id": "required"}, fields)
    shop.sql("INSERT INTO orders SELECT md5(i::text), 'R', 'lane' || i % 7 FROM generate_series(1101, 2200) i")
    wanted = [row for (row,) in shop.sql('SELECT id FROM orders ORDER BY id COLLATE "C"')]
    assert [task.id for task in orders.take_many(500)] == wanted[:500]
    shop.sql("INSERT INTO orders VALUES ('0', 'R', 'lane1'), ('5', 'R', NULL), ('zz', 'R', 'lane2')")
    assert orders.take().id == "0"
    page = orders.tasks("ready", limit=1000)
    assert [task.id for task in page] == sorted([*wanted[500:], "5", "zz"])[:1000]


@pytest.mark.parametrize("rows", [1500, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_very_many_rows_are_edited_in_one_statement(shop, rows):
    orders = shop.orders(AUTO)
    shop.sql(
        "INSERT INTO orders (status, prio, branch, item) "
        "SELECT 'R', mod(i, 3), CASE WHEN mod(i, 2) = 0 THEN 'lane' || mod(i, 100) END, 'tea' "
        "FROM generate_series(1, ?1) i",
        (rows,),
    )
    assert shop.counted(orders) == shop.shown() == {"R": rows}
    assert orders.take().pri == 0
    shop.sql("UPDATE orders SET item = 'milk'")
    shop.sql("UPDATE orders SET status = 'B', prio = prio + 1")
    assert shop.counted(orders) == shop.shown() == {"B": rows}
    assert orders.take() is None
    shop.sql("UPDATE orders SET status = 'R' WHERE id > ?1", (rows // 2,))
    assert orders.take().id == (rows // 6 + 1) * 3
    shop.sql("DELETE FROM orders")
    assert (shop.counted(orders), orders.take()) == ({}, None)


def scans(shop: Any) -> int:
    """How often the user's table was read from end to end so far."""
    store = open_store(shop.bench.url)
    assert store is not None
    with store._connections.borrowed() as connection:  # type: ignore[attr-defined]
        connection.execute("select pg_stat_force_next_flush()")
    main = store._connections.main()  # type: ignore[attr-defined]
    main.execute("select pg_stat_force_next_flush()")
    shop.connection.execute("select pg_stat_force_next_flush()")
    number: int = shop.connection.execute(
        "select seq_scan from pg_stat_user_tables where schemaname = %s and relname = 'orders'", [shop.schema]
    ).fetchone()[0]
    return number


@pytest.mark.parametrize("key", ["id INTEGER PRIMARY KEY", "id TEXT PRIMARY KEY"])
def test_no_verb_and_no_edit_reads_the_users_table_from_end_to_end(shop, key):
    """The table is so small that a planner who may choose would."""
    shop.sql(f"CREATE TABLE orders ({key}, status TEXT, due REAL, prio INTEGER, branch TEXT, tries INTEGER, item TEXT)")
    orders = shop.orders({"id": "required", **TIMED, "ttr": 5})
    text = "TEXT" in key
    ids = [str(number) if text else number for number in range(1, 9)]
    for number, task_id in enumerate(ids):
        orders.put({"item": "tea"}, id=task_id, lane="x" if number % 2 else None)
    shop.sql("ANALYZE orders")
    shop.connection.execute(sql.SQL("analyze {}").format(sql.Identifier(shop.penstock, f"tasks_{shop.number()}")))
    before = scans(shop)
    one, two = orders.take_many(2)
    orders.take(lane="x").release(delay=1, update={"item": "milk"})
    one.ack()
    two.bury(update={"item": "mouldy"})
    orders.plow()
    orders.take()
    shop.bench.clock.advance(5)
    orders.peek(ids[3])
    orders.put({"item": "tea"}, id="99" if text else 99)
    orders.tasks()
    orders.delete(ids[4])
    shop.sql("SET enable_seqscan = off")
    shop.sql("UPDATE orders SET status = 'B' WHERE id = ?", (ids[5],))
    shop.sql("DELETE FROM orders WHERE id = ?", (ids[6],))
    shop.sql("INSERT INTO orders (id, status) VALUES (?, 'R')", ("77" if text else 77,))
    assert scans(shop) == before
