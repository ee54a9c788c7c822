"""What adopt() asks of a table, of its fields and of the features. (conformance 2.I)"""

from __future__ import annotations

import pytest
from tests.adopt.pairs import sqlite_in_every_run
from tests.support.shop import ALL_FIELDS, ORDERS

import penstock
from penstock import State, TubeExists, UsageError

STATUS = {"status": "status"}


def refused(shop, words, table="orders", fields=STATUS, features=None, **options):
    """adopt() raises UsageError with these words and leaves no tube and no trigger behind."""
    with pytest.raises(UsageError, match=words):
        shop.q.adopt("orders", table=table, fields=fields, features=features, **options)
    assert shop.q.tubes() == []
    assert shop.ours() == []


@pytest.fixture
def table(shop):
    shop.sql(ORDERS)
    return shop


@sqlite_in_every_run
def test_without_fields_adopt_is_refused(table):  # case 162
    refused(table, "needs fields", fields=None)
    refused(table, "needs fields", fields={})
    refused(table, "needs fields", fields={"run_at": "due"})


def test_an_unknown_column_is_named(table):  # case 163
    refused(table, "'nowhere'", fields={"status": "nowhere"})


@sqlite_in_every_run
def test_an_unknown_field_is_named(table):
    refused(table, "'colour'.*status, run_at", fields={**STATUS, "colour": "item"})


def test_a_column_of_the_wrong_type_is_refused(table):  # case 164
    for fields in (
        {"status": "prio"},
        {"status": "status", "run_at": "item"},
        {"status": "status", "priority": "item"},
        {"status": "status", "lane": "amount"},
        {"status": "status", "attempts": "item"},
    ):
        refused(table, "holds a (number|text).*needs a (text|number)", fields=fields)


def test_a_column_of_the_primary_key_cannot_be_a_field(shop):
    shop.sql("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT)")
    refused(shop, "part of the primary key", fields={"status": "id"})


@sqlite_in_every_run
def test_one_column_cannot_be_two_fields_nor_one_field_two_columns(table):
    refused(table, "each column is one field", fields={**STATUS, "priority": "prio", "attempts": "prio"})
    refused(table, "each field has one column", fields={**STATUS, "pri": "prio", "priority": "tries"})


def test_a_table_that_is_not_there_is_named(shop):  # case 12
    refused(shop, "no table 'orders'")


def test_a_table_without_primary_key_is_refused(shop):
    shop.sql("CREATE TABLE orders (status TEXT)")
    refused(shop, "no primary key")


@sqlite_in_every_run
def test_features_of_time_need_a_column_for_it(table):  # case 169
    refused(table, "'delayed' needs a column for the time", features={"delayed": True})
    for feature in ("zombie", "ttl", "ttr"):
        for value in (True, 5, 0):
            refused(table, f"{feature!r} needs a column for the time", features={feature: value})


@sqlite_in_every_run
def test_keep_and_zombie_exclude_each_other(table):  # case 170
    refused(table, "exclude each other", fields={**STATUS, "run_at": "due"}, features={"keep": True, "zombie": 5})


@sqlite_in_every_run
def test_tube_stats_need_lanes(table):
    refused(table, "tube_stats.*lane", features={"tube_stats": ["a"]})


@sqlite_in_every_run
def test_features_are_checked_by_name_and_value(table):
    for features, words in (
        ({"colour": True}, "unknown feature 'colour'"),
        ({"retval": "row"}, "retval must be"),
        ({"id": "random"}, "feature id must be one of"),
        ({"keep": 5}, "'keep' is True or False"),
        ({"buried": "yes"}, "'buried' is True or False"),
        ({"ttl": -1}, "ttl must not be negative"),
    ):
        refused(table, words, fields=ALL_FIELDS, features=features)


def test_generated_ids_must_fit_the_key(shop):  # case 171
    shop.sql("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT)")
    refused(shop, "auto_increment.*numeric", features={"id": "auto_increment"})
    refused(shop, "time64.*numeric", features={"id": "time64"})
    shop.sql("DROP TABLE orders")
    shop.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT)")
    refused(shop, "uuid.*text", features={"id": "uuid"})
    shop.sql("DROP TABLE orders")
    shop.sql("CREATE TABLE orders (a TEXT, b TEXT, status TEXT, PRIMARY KEY (a, b))")
    refused(shop, "uuid.*one column", features={"id": "uuid"})


def test_without_the_id_feature_a_text_key_gets_uuids(shop):  # case 173
    shop.sql("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT, item TEXT)")
    orders = shop.q.adopt("orders", table="orders", fields=STATUS)
    assert len(orders.put({"item": "tea"}).id) == 36


@sqlite_in_every_run
def test_options_that_do_not_fit_are_refused(table):
    for options, words in (
        ({"keep": True}, "features"),
        ({"ttl": 5}, "features"),
        ({"id": "uuid"}, "features"),
        ({"payload": "bytes"}, "columns"),
        ({"lane_pick": "turns"}, "lane_pick must be 'order'"),
        ({"capacity": 3}, "needs the feature 'capacity'"),
        ({"colour": 1}, "unknown tube option"),
    ):
        refused(table, words, fields=ALL_FIELDS, features={"id": "auto"}, **options)


@sqlite_in_every_run
def test_max_attempts_need_the_feature_that_buries(table):
    refused(table, "max_attempts.*buried", features={"buried": False}, max_attempts=3)


@sqlite_in_every_run
def test_lanes_cannot_be_taken_in_turns_later_either(shop):
    with pytest.raises(UsageError, match="lane_pick"):
        shop.orders().alter(lane_pick="turns")


@sqlite_in_every_run
def test_xqueue_names_of_fields_are_understood(shop):
    orders = shop.orders(fields={"status": "status", "runat": "due", "pri": "prio", "tube": "branch"})
    task = orders.put({"item": "tea"}, pri=4, lane="south", delay=5)
    assert shop.row(task.id, "status, prio, branch") == ("W", 4, "south")


@sqlite_in_every_run
def test_retval_says_whether_data_is_a_mapping_or_a_plain_row(shop):  # case 174
    orders = shop.orders({"id": "auto"})
    assert orders.put({"item": "tea"}).data == {"item": "tea", "amount": 1}
    orders.drop()
    orders = shop.orders({"id": "auto", "retval": "tuple"})
    assert orders.take().data == ["tea", 1]
    assert orders.put(["milk", 2]).data == ["milk", 2]
    assert orders.put({"amount": 3}).data == [None, 3]
    with pytest.raises(UsageError, match="mapping of columns"):
        orders.put(["milk"])


def test_adopting_twice_is_refused(shop):
    orders = shop.orders()
    orders.put({"item": "tea"})
    with pytest.raises(TubeExists):
        shop.orders()
    with pytest.raises(UsageError, match="adopted already, by tube 'orders'"):
        shop.q.adopt("again", table="ORDERS", fields=STATUS)
    assert [tube.name for tube in shop.q.tubes()] == ["orders"]
    assert orders.take().state == State.TAKEN


def test_a_store_without_tables_cannot_adopt():
    with penstock.connect("memory:") as q, pytest.raises(UsageError, match="store with tables"):
        q.adopt("orders", table="orders", fields=STATUS)


@sqlite_in_every_run
def test_create_tube_does_not_take_an_adopted_tube_for_its_own(shop):
    shop.orders()
    with pytest.raises(UsageError, match="kind: it has 'adopted'"):
        shop.q.create_tube("orders", if_not_exists=True)
