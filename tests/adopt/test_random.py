"""Verbs and raw SQL on an adopted table in any order: the counters always equal the rows."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support import postgres
from tests.support.engines import ENGINES, Bench
from tests.support.invariants import check
from tests.support.shop import shop_on

from penstock import PenstockError
from penstock.testing import ManualClock

# Hundreds of calls: a busy machine may need longer than for other tests.
pytestmark = pytest.mark.timeout(600)
LETTERS = st.sampled_from(["R", "R", "R", "T", "W", "B", "Z", "D", "x", None])
KEYS = st.integers(1, 6)
LANES = st.sampled_from([None, "", "north", "south"])
TIMES = st.sampled_from([None, 0, 0, -5, 1, 3, 1000])
PRIORITIES = st.sampled_from([None, -1, 0, 1])
FEATURES = st.fixed_dictionaries(
    {"id": st.sampled_from(["auto", "required"])},
    optional={"keep": st.just(True), "ttr": st.sampled_from([True, 2]), "ttl": st.sampled_from([True, 4])},
)


class Orders(RuleBasedStateMachine):
    """One table, a tube on it, two queues that hold tasks, and somebody with a SQL shell."""

    engine = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self._folder = postgres.folder("penstock-orders")
        self.clock = ManualClock()
        self.bench = Bench(self.under_test(), "blocking", self._folder, self.clock)
        self.shop = shop_on(self.bench)
        self.held: list[Any] = []

    def under_test(self) -> Any:
        return next(engine for engine in ENGINES if engine.name == self.engine)

    @initialize(features=FEATURES, concurrency=st.sampled_from([None, 1]), rows=st.lists(LETTERS, max_size=5))
    def adopt(self, features: dict[str, Any], concurrency: int | None, rows: list[str | None]) -> None:
        self.shop.orders(features={"id": "auto"}).drop()
        self.shop.fill("INSERT INTO orders (status) VALUES (?)", [(row,) for row in rows])
        self.required = features["id"] == "required"
        given = {"delayed": True, "ttl": True, "ttr": True, **features}
        self.orders = self.shop.orders(given, lane_concurrency=concurrency)
        self.others = self.bench.connect().tube("orders")

    def attempt(self, call: Any) -> Any:
        """Refusals are answers; what is wrong shows in the invariants."""
        try:
            return call()
        except PenstockError:
            return None

    @rule(key=KEYS, lane=LANES, pri=PRIORITIES, delay=st.sampled_from([None, 0, 2]), ttl=st.sampled_from([None, 3]))
    def put(self, key: int, lane: str | None, pri: int | None, delay: Any, ttl: Any) -> None:
        number = {"id": key} if self.required else {}
        self.attempt(lambda: self.orders.put({"item": "tea"}, lane=lane, pri=pri, delay=delay, ttl=ttl, **number))

    @rule(number=st.integers(1, 3), lane=st.sampled_from([None, "north"]), ttr=st.sampled_from([None, 2]))
    def take(self, number: int, lane: str | None, ttr: Any) -> None:
        self.held += self.orders.take_many(number, lane=lane, ttr=ttr)
        self.held += self.others.take_many(1)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), verb=st.sampled_from(["ack", "release", "bury", "fail"]), lane=LANES)
    def finish(self, data: st.DataObject, verb: str, lane: str | None) -> None:
        task = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        update = {} if verb == "fail" else {"update": {"item": "milk", "branch": lane}}
        self.attempt(lambda: getattr(task, verb)(**update))

    @rule(key=KEYS, verb=st.sampled_from(["delete", "dig", "snatch", "restart", "cancel", "bury", "peek"]))
    def handle(self, key: int, verb: str) -> None:
        self.attempt(lambda: getattr(self.orders, verb)(key))

    @rule(seconds=st.sampled_from([1, 3]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(plow=st.booleans())
    def revive(self, plow: bool) -> None:
        self.orders.plow() if plow else self.orders.release_all()

    @rule(key=KEYS, letter=LETTERS, due=TIMES, pri=PRIORITIES, lane=LANES, tries=st.sampled_from([None, 0, 3]))
    def insert_by_hand(self, key: int, letter: Any, due: Any, pri: Any, lane: Any, tries: Any) -> None:
        moment = due and due + self.clock.now() / 1_000_000
        self.shop.sql(
            "INSERT INTO orders (id, status, due, prio, branch, tries) VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
            "ON CONFLICT (id) DO UPDATE SET status = ?2, due = ?3, prio = ?4, branch = ?5, tries = ?6",
            (key, letter, moment, pri, lane, tries),
        )

    @rule(key=KEYS, letter=LETTERS)
    def change_letter_by_hand(self, key: int, letter: Any) -> None:
        self.shop.sql("UPDATE orders SET status = ? WHERE id = ?", (letter, key))

    @rule(key=KEYS, lane=LANES, pri=PRIORITIES)
    def move_by_hand(self, key: int, lane: Any, pri: Any) -> None:
        with self.shop.q.transaction() as tx:
            tx.connection.execute(
                self.shop.marked("UPDATE orders SET branch = ?, prio = ? WHERE id = ?"), (lane, pri, key)
            )

    @rule(old=KEYS, new=KEYS)
    def change_key_by_hand(self, old: int, new: int) -> None:
        free = "NOT EXISTS (SELECT 1 FROM orders WHERE id = ?1)"
        self.shop.sql(f"UPDATE orders SET id = ?1 WHERE id = ?2 AND {free}", (new, old))  # noqa: S608

    @rule(key=KEYS, everything=st.sampled_from([False] * 9 + [True]))
    def delete_by_hand(self, key: int, everything: bool) -> None:
        self.shop.sql("DELETE FROM orders WHERE id = ? OR ?", (key, everything))

    @rule()
    def roll_back_by_hand(self) -> None:
        self.shop.sql(self.shop.begin)
        self.shop.sql("UPDATE orders SET status = 'B'")
        self.shop.sql("ROLLBACK")

    @invariant()
    def the_counters_equal_the_rows(self) -> None:
        if hasattr(self, "orders"):
            assert self.shop.counted(self.orders) == self.shop.shown()
            assert self.shop.unseen() == []

    @invariant()
    def each_task_is_what_its_row_says(self) -> None:
        if hasattr(self, "orders"):
            tasks = sorted((task.id, task.pri, task.lane or "", task.attempt) for task in self.orders.tasks())
            rows = self.shop.sql("SELECT id, coalesce(prio, 0), coalesce(branch, ''), coalesce(tries, 0) FROM orders "
                                 "WHERE status IN ('R', 'T', 'W', 'B', 'Z', 'D') ORDER BY id")  # fmt: skip
            assert tasks == rows
            check(self.bench.url)

    def teardown(self) -> None:
        try:
            check(self.bench.url)
        finally:
            # First, for the whole database may go when its place is given back.
            self.shop.close()
            try:
                self.bench.close()
            finally:
                shutil.rmtree(self._folder)


class OrdersInFile(Orders):
    @rule(key=KEYS)
    def replace_by_hand(self, key: int) -> None:
        self.shop.sql("REPLACE INTO orders (id, status) VALUES (?, 'R')", (key,))


class OrdersOnServer(Orders):
    engine = "postgres"

    @rule(truncates=st.sampled_from([False] * 9 + [True]))
    def truncate_by_hand(self, truncates: bool) -> None:
        if truncates:
            self.shop.sql("TRUNCATE orders")

    @rule(letter=LETTERS)
    def undo_by_hand(self, letter: Any) -> None:
        self.shop.sql(self.shop.begin)
        self.shop.sql("UPDATE orders SET prio = 1")
        self.shop.sql("SAVEPOINT here")
        self.shop.sql("UPDATE orders SET status = ?", (letter,))
        self.shop.sql("ROLLBACK TO here")
        self.shop.sql("COMMIT")


def orders_of(machine: type[Orders], examples: int, derandomize: bool) -> type[Any]:
    """A test case of its own, so that its settings are its own."""
    case: type[Any] = type(machine.__name__, (machine,), {}).TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=derandomize,
        print_blob=True,
    )
    return case


TestOrdersInFile = orders_of(OrdersInFile, 8, derandomize=True)
TestOrdersOnServer = orders_of(OrdersOnServer, 3, derandomize=True)
TestManyOrdersInFile = pytest.mark.exhaustive(orders_of(OrdersInFile, 80, derandomize=False))
TestManyOrdersOnServer = pytest.mark.exhaustive(orders_of(OrdersOnServer, 20, derandomize=False))
