"""Tables as users have them: composite keys, odd names, odd columns."""

from __future__ import annotations

import pytest
from tests.adopt.pairs import sqlite_in_every_run
from tests.support.shop import TIMED

from penstock import DuplicateKey, LeaseLost, State, TaskNotFound, UsageError

COMPOSITE = """
CREATE TABLE lines (
    shop TEXT, number INTEGER, status TEXT, due REAL, prio INTEGER, branch TEXT, item TEXT,
    PRIMARY KEY (shop, number)
)
"""
ODD = ["plain", "order", "two words", 'a "quoted" one', "it's", "naïve Größe 表", '"; DROP TABLE "victims', "{table}",
       "<data>", "x--y", "?1", ":status", "k0", "[b]", "`c`"]  # fmt: skip
SEVERAL_AT_ONCE = ['a "quoted" it\'s naïve Größe 表 {table} <data>', '"; DROP TABLE "victims x--y ?1 :status [b] `c`']
WORDS = ["table", "seq", "id", "data", "lane"]


@pytest.fixture
def lines(shop):
    shop.sql(COMPOSITE)
    fields = {"status": "status", "run_at": "due", "priority": "prio", "lane": "branch"}
    return shop.q.adopt("lines", table="lines", fields=fields, features=TIMED)


def line(shop, name, number):
    rows = shop.sql("SELECT status, item FROM lines WHERE shop = ? AND number = ?", (name, number))
    return rows[0] if rows else None


def test_ids_of_composite_keys_are_tuples(shop, lines):  # case 165
    task = lines.put({"item": "tea"}, id=("north", 2))
    assert task.id == ("north", 2)
    assert lines.peek(("north", 2)).data == {"item": "tea"}
    held = lines.take()
    assert held.id == ("north", 2) and line(shop, "north", 2) == ("T", "tea")
    assert lines.release(("north", 2), update={"item": "milk"}).state == State.READY
    assert line(shop, "north", 2) == ("R", "milk")
    lines.bury(("north", 2))
    lines.dig(("north", 2))
    assert lines.take().ack().id == ("north", 2)
    assert line(shop, "north", 2) is None
    with pytest.raises(LeaseLost):
        held.ack()


@sqlite_in_every_run
def test_parts_of_a_composite_key_may_come_with_the_data(shop, lines):
    assert lines.put({"shop": "north", "number": 1, "item": "tea"}).id == ("north", 1)
    with pytest.raises(DuplicateKey):
        lines.put({"shop": "north", "number": 1})
    with pytest.raises(UsageError, match="every put needs an id"):
        lines.put({"shop": "north"})
    with pytest.raises(UsageError, match="another 'number'"):
        lines.put({"number": 4}, id=("north", 3))


@sqlite_in_every_run
def test_an_id_that_does_not_fit_the_key_is_refused(shop, lines):
    for wrong in ("north", 5, ("north",), (1, "north"), ("north", 1, 2)):
        with pytest.raises(UsageError, match=r"the tuple \(shop \(text\), number \(number\)\)"):
            lines.put({}, id=wrong)
        with pytest.raises(UsageError, match="the tuple"):
            lines.peek(wrong)
    assert shop.letters("lines") == {}


def test_history_of_composite_keys_has_the_same_tuples(shop, lines):
    lines.alter(history=True)
    lines.put({"shop": "it's", "number": 2, "item": "tea"})
    lines.take().ack()
    assert [row.task_id for row in shop.q.history()] == [("it's", 2)] * 3
    assert [row.task_id for row in shop.q.history(tube="lines", limit=1)] == [("it's", 2)]


def test_a_composite_key_orders_by_its_parts_after_the_priority(shop, lines):
    for name, number, pri in (("b", 1, 0), ("a", 10, 0), ("a", 9, 0), ("a", 1, 1), ("z", 1, -1)):
        lines.put({}, id=(name, number), pri=pri)
    wanted = [("z", 1), ("a", 9), ("a", 10), ("b", 1), ("a", 1)]
    assert [task.id for task in lines.take_many(9)] == wanted


@sqlite_in_every_run
def test_pages_of_composite_keys_go_on_after_an_id(shop, lines):
    for number in range(5):
        lines.put({}, id=("a", number))
    first = lines.tasks(limit=2)
    rest = lines.tasks(after=first[-1].id)
    assert [task.id[1] for task in (*first, *rest)] == [0, 1, 2, 3, 4]
    assert [task.id[1] for task in lines.tasks("ready", limit=1, after=("a", 3))] == [4]
    with pytest.raises(TaskNotFound):
        lines.tasks(after=("b", 1))


def test_rows_of_composite_keys_are_edited_by_hand(shop, lines):
    shop.sql("INSERT INTO lines (shop, number, status) VALUES ('é \"x\"\n', 1, 'R'), ('b', 2, 'R')")
    held = lines.take_many(2)
    assert [task.id for task in held] == [("b", 2), ('é "x"\n', 1)]
    shop.sql("UPDATE lines SET status = 'B' WHERE number = 1")
    with pytest.raises(LeaseLost):
        held[1].ack()
    held[0].ack()
    assert shop.counted(lines) == shop.shown("lines") == {"B": 1}


def test_lanes_of_composite_keys_are_served_in_order(shop, lines):
    lines.alter(lane_concurrency=1)
    for number in (3, 1, 2):
        lines.put({"branch": "x"}, id=("a", number))
    for number in (1, 2, 3):
        held = lines.take()
        assert held.id == ("a", number)
        assert lines.take() is None
        held.ack()


@sqlite_in_every_run
@pytest.mark.parametrize(
    "name", [*SEVERAL_AT_ONCE, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ODD)]
)
def test_any_name_of_table_and_columns_will_do(shop, name):
    quoted = '"' + name.replace('"', '""') + '"'
    shop.sql("CREATE TABLE victims (id INTEGER PRIMARY KEY)")
    shop.sql(
        f'CREATE TABLE {quoted} ("{quoted[1:-1]} id" TEXT PRIMARY KEY, {quoted} TEXT, "{quoted[1:-1]} data" TEXT, '
        f'"{quoted[1:-1]} pri" INTEGER, "{quoted[1:-1]} lane" TEXT)'
    )
    fields = {"status": name, "priority": f"{name} pri", "lane": f"{name} lane"}
    tube = shop.q.adopt("odd", table=name, fields=fields)
    task = tube.put({f"{name} data": name, f"{name} lane": name}, pri=3)
    assert (task.data, task.lane) == ({f"{name} data": name}, name)
    shop.sql(f"UPDATE {quoted} SET {quoted} = 'B'")  # noqa: S608
    assert tube.plow(update={f"{name} data": "new"}) == 1
    assert tube.take(lane=name).ack().data == {f"{name} data": "new"}
    assert shop.letters(quoted[1:-1], quoted[1:-1]) == {}
    tube.drop()
    assert shop.sql("SELECT count(*) FROM victims") == [(0,)]


@sqlite_in_every_run
@pytest.mark.parametrize(
    "word", ["select", "state", "u", *(pytest.param(word, marks=pytest.mark.exhaustive) for word in WORDS)]
)
def test_words_of_sql_and_of_our_own_tables_are_names_like_any(shop, word):
    shop.sql(f'CREATE TABLE "{word}" (k1 INTEGER PRIMARY KEY, "{word}" TEXT, k0 INTEGER, place TEXT)')
    tube = shop.q.adopt("words", table=word, fields={"status": word, "priority": "k0"}, features={"id": "auto"})
    assert tube.put({"place": "x"}, pri=4).id == 1
    shop.sql(f"INSERT INTO \"{word}\" (\"{word}\", k0, place) VALUES ('R', 1, 'y')")  # noqa: S608
    assert [task.data for task in tube.take_many(5)] == [{"place": "y"}, {"place": "x"}]


def test_a_column_added_later_belongs_to_the_data(shop):
    orders = shop.orders({"id": "auto"}, {"status": "status"})
    shop.sql("ALTER TABLE orders ADD COLUMN colour TEXT DEFAULT 'red'")
    assert orders.put({"item": "tea"}).data["colour"] == "red"
    assert orders.put({"colour": "blue"}).data["colour"] == "blue"
