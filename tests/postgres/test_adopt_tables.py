"""Adopted tables as only PostgreSQL has them: schemas, types, partitions, roles."""

from __future__ import annotations

import datetime
import uuid

import psycopg
import pytest
from psycopg import sql
from tests.support.shop import ORDERS, TIMED

from penstock import DuplicateKey, LeaseLost, State, TaskNotFound, UsageError

AUTO = {"id": "auto", **TIMED}
STATUS = {"status": "status"}
ODD = ["a.b", "$$", "$q$; x", "100%", "back\\slash", "it's", "%s", "@table", "@s", "--if adopted", "'; --", "{}"]
ALL_AT_ONCE = "@s.@table {} %s 100% it's \\ $$ $q$; x '; --"


def refused(shop, words, table="orders", fields=STATUS, **options):
    with pytest.raises(UsageError, match=words):
        shop.q.adopt("orders", table=table, fields=fields, **options)
    assert shop.q.tubes() == [] and shop.ours() == []


def test_a_table_of_another_schema_is_named_with_it(shop):
    shop.sql("CREATE SCHEMA elsewhere")
    try:
        shop.sql("CREATE TABLE elsewhere.mails (id BIGINT PRIMARY KEY, status TEXT, body TEXT)")
        shop.sql("CREATE TABLE mails (id BIGINT PRIMARY KEY, status TEXT)")
        refused(shop, "no table 'nowhere.mails'", table="nowhere.mails")
        mails = shop.q.adopt("mails", table="elsewhere.mails", fields=STATUS, features={"id": "auto"})
        assert mails.put({"body": "hello"}).data == {"body": "hello"}
        own = shop.q.adopt("own", table="mails", fields=STATUS, features={"id": "auto"})
        assert own.take() is None and mails.take().ack().id == 1
        mails.drop()
    finally:
        shop.sql("DROP SCHEMA elsewhere CASCADE")


@pytest.mark.parametrize("name", [ALL_AT_ONCE, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ODD)])
def test_no_name_gets_out_of_its_quotes(shop, name):
    parts = {"t": "", "id": " id", "data": " data", "pri": " pri", "lane": " lane", "due": " due"}
    names = {part: sql.Identifier(f"{name}{end}") for part, end in parts.items()}
    columns = "{id} text primary key, {t} text, {data} text, {pri} bigint, {lane} text, {due} float8"
    shop.connection.execute(sql.SQL(f"create table {{t}} ({columns})").format(**names))
    fields = {"status": name, "priority": f"{name} pri", "lane": f"{name} lane", "run_at": f"{name} due"}
    tube = shop.q.adopt("odd", table=name, fields=fields, features=TIMED)
    task = tube.put({f"{name} data": name, f"{name} lane": name}, pri=3)
    assert (task.data, task.lane) == ({f"{name} data": name}, name)
    shop.connection.execute(sql.SQL("update {t} set {t} = 'B'").format(**names))
    assert tube.plow(update={f"{name} data": "new"}) == 1
    assert tube.take(lane=name).ack().data == {f"{name} data": "new"}
    with pytest.raises(UsageError, match="no free columns"):
        tube.put({name: 1})
    tube.drop()


def test_keys_are_whole_numbers_or_text(shop):
    for declared in ("float8", "numeric", "bytea", "timestamptz", "boolean", "jsonb"):
        shop.sql(f"CREATE TABLE of_{declared} (id {declared} PRIMARY KEY, status TEXT)")
        refused(shop, "the primary key 'id' is declared", table=f"of_{declared}")


def test_a_moment_needs_a_column_that_holds_parts_of_a_second(shop):
    for declared in ("smallint", "integer", "bigint", "real"):
        table = f"due_{declared}"
        shop.connection.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, status TEXT, due {declared})")
        refused(shop, "declare it double precision", table=table, fields={**STATUS, "run_at": "due"})


def test_what_is_no_table_of_the_users_is_refused(shop):
    shop.sql(ORDERS)
    shop.sql("CREATE VIEW seen AS SELECT * FROM orders")
    refused(shop, "not a table of your own but a view", table="seen")
    shop.sql("CREATE MATERIALIZED VIEW kept AS SELECT * FROM orders")
    refused(shop, "a materialized view", table="kept")
    refused(shop, "one of ours", table=f"{shop.penstock}.sessions")
    refused(shop, "one of pg_catalog", table="pg_class")
    shop.sql("CREATE TABLE parted (id BIGINT PRIMARY KEY, status TEXT) PARTITION BY RANGE (id)")
    shop.sql("CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (9)")
    refused(shop, "a partitioned table", table="parted")
    refused(shop, "would not be seen", table="part")


@pytest.mark.parametrize(
    ("declared", "first", "second"),
    [
        ("smallint", 1, -2),
        pytest.param("integer", 1, 2, marks=pytest.mark.exhaustive),
        ("bigint", -(2**63), 2**63 - 1),
        ("text", "1", "two"),
        pytest.param("varchar(40)", "ä", "中", marks=pytest.mark.exhaustive),
        ("char(5)", "a", "abc"),
        ("uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b811-9dad-11d1-80b4-00c04fd430c8"),
    ],
)
def test_keys_of_every_kind(shop, declared, first, second):
    shop.connection.execute(f"CREATE TABLE orders (id {declared} PRIMARY KEY, status TEXT, item TEXT)")
    orders = shop.orders({"id": "required"}, STATUS)
    orders.put({"item": "one"}, id=first)
    with pytest.raises(DuplicateKey):
        orders.put({}, id=first)
    shop.sql("INSERT INTO orders VALUES (?, 'R', 'two')", (second,))
    assert {task.id: task.data["item"] for task in orders.take_many(5)} == {first: "one", second: "two"}
    orders.ack(first)
    shop.sql("DELETE FROM orders WHERE id = ?", (second,))
    assert shop.counted(orders) == {}
    with pytest.raises(TaskNotFound):
        orders.peek(first)


def test_an_id_outside_the_range_of_the_key_is_that_of_no_task(shop):
    shop.connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, status TEXT)")
    orders = shop.orders({"id": "required"}, STATUS)
    with pytest.raises(TaskNotFound):
        orders.peek(2**40)
    with pytest.raises(UsageError, match="refuses this"):
        orders.put({}, id=2**40)


def test_values_of_every_type_come_and_go(shop):
    shop.connection.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, status TEXT, body bytea, price float8, note jsonb, tags text[], "
        "sent timestamptz, big numeric, double bigint GENERATED ALWAYS AS (id * 2) STORED)"
    )
    orders = shop.orders({"id": "auto", "keep": True}, STATUS)
    task = orders.put({"note": {"a": [1, None]}, "tags": ["x", "y"], "price": 2.5, "sent": "2026-01-02T03:04:05+00:00"})
    assert task.data == {
        "body": None,
        "price": 2.5,
        "note": {"a": [1, None]},
        "tags": ["x", "y"],
        "sent": task.data["sent"],
        "big": None,
    }
    moment = datetime.datetime(2026, 5, 6, tzinfo=datetime.UTC)
    shop.sql("UPDATE orders SET price = 'Infinity'")
    done = orders.take().ack(update={"body": b"\x01\xff", "sent": moment, "big": 2**62, "note": [1]})
    assert (done.data["body"], done.data["price"], done.data["note"]) == ("\\x01ff", "Infinity", [1])
    assert shop.row(1, "body, sent, big") == (b"\x01\xff", moment, 2**62)
    with pytest.raises(UsageError, match="no free columns \\['double'\\]"):
        orders.put({"double": 4})


def test_lists_and_mappings_in_a_text_column_are_json_text(shop):
    task = shop.orders().put({"item": {"name": "té", "n": [1, None]}})
    assert shop.row(task.id, "item::json ->> 'name', item::json -> 'n' ->> 0") == ("té", "1")
    assert isinstance(task.data["item"], str)


def test_letters_of_an_enum_and_a_key_that_is_always_generated(shop):
    shop.sql("CREATE TYPE letters AS ENUM ('R', 'T', 'D')")
    shop.connection.execute(
        "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status letters, item text NOT NULL)"
    )
    orders = shop.orders({"id": "auto", "keep": True}, STATUS)
    shop.sql("INSERT INTO orders (status, item) VALUES ('R', 'by hand')")
    assert [orders.put({"item": "tea"}).id for _ in range(2)] == [2, 3]
    with pytest.raises(UsageError, match="refuses this"):
        orders.bury(1)
    assert [task.ack().state for task in orders.take_many(5)] == [State.DONE] * 3
    assert shop.letters() == {"D": 3}


def test_auto_increment_shares_the_sequence_of_the_key(shop):
    orders = shop.orders(AUTO)
    assert orders.put({}).id == 1
    shop.sql("INSERT INTO orders (status) VALUES ('R')")
    assert orders.put({}).id == 3
    shop.sql("INSERT INTO orders (id, status) VALUES (90, 'archived')")
    assert orders.put({}).id == 91
    shop.sql("INSERT INTO orders (status) VALUES ('R')")
    assert [task.id for task in orders.tasks()] == [1, 2, 3, 91, 92]


def test_another_role_edits_without_rights_on_our_schema(shop):
    orders = shop.orders(AUTO)
    orders.put({"item": "tea"})
    held = orders.take()
    role = f"clerk_{uuid.uuid4().hex}"
    names = {"role": sql.Identifier(role), "schema": sql.Identifier(shop.schema)}
    shop.connection.execute(sql.SQL("create role {role} login").format(**names))
    try:
        shop.connection.execute(sql.SQL("grant usage on schema {schema} to {role}").format(**names))
        shop.connection.execute(sql.SQL("grant all on all tables in schema {schema} to {role}").format(**names))
        with psycopg.connect(shop.url, user=role, options=shop.options) as clerk:
            clerk.execute("update orders set status = 'T', item = 'milk'")
            clerk.execute("update orders set status = 'B'")
        with pytest.raises(LeaseLost):
            held.ack()
        assert shop.counted(orders) == shop.shown() == {"B": 1}
    finally:
        shop.connection.execute(sql.SQL("drop owned by {role}; drop role {role}").format(**names))


def test_what_the_user_truncates_is_gone(shop):
    orders = shop.orders(AUTO)
    orders.put_many([{"item": "tea"}] * 5)
    held = orders.take()
    shop.sql("TRUNCATE orders")
    assert (shop.counted(orders), orders.take()) == ({}, None)
    with pytest.raises(LeaseLost):
        held.ack()


def test_rows_that_triggers_did_not_see_are_no_tasks(shop):
    orders = shop.orders(AUTO)
    orders.put_many([{"item": "tea"}] * 4)
    held = orders.take()
    shop.sql("SET session_replication_role = replica")
    shop.sql("DELETE FROM orders WHERE id < 4")
    shop.sql("SET session_replication_role = DEFAULT")
    with pytest.raises(LeaseLost):
        held.ack()
    with pytest.raises(TaskNotFound):
        orders.peek(2)
    assert [task.id for task in orders.take_many(5)] == [4]
    assert shop.counted(orders) == shop.shown() == {"T": 1}


def test_an_adoption_goes_on_after_a_restart_with_new_functions(shop):
    shop.orders(AUTO).put({"item": "tea"})
    shop.q.close()
    shop.connection.execute(sql.SQL("update {}.store set code = 'older'").format(sql.Identifier(shop.penstock)))
    orders = shop.bench.connect().tube("orders")
    shop.sql("INSERT INTO orders (status, item) VALUES ('R', 'milk')")
    assert [task.data["item"] for task in orders.take_many(5)] == ["tea", "milk"]


def test_history_with_data_has_the_columns(shop):
    orders = shop.orders(AUTO, history=True, history_data=True)
    orders.put({"item": "tea"})
    orders.take().release(update={"item": "milk"})
    orders.take().ack()
    assert [row.data["item"] for row in shop.q.history()] == ["tea", "tea", "milk", "milk", "milk"]


def test_callbacks_are_told_the_columns(shop):
    orders = shop.orders({**AUTO, "ttr": 5})
    heard = []
    orders.on_task_change(lambda task, event: heard.append((event, task.data["item"])))
    orders.put({"item": "tea"})
    orders.take()
    shop.bench.clock.advance(5)
    orders.take().ack()
    assert heard == [("put", "tea"), ("take", "tea"), ("ttr", "tea"), ("take", "tea"), ("ack", "tea")]
