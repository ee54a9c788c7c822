"""How SQLite performs our statements: by an index, in its order, at a cost that does not grow with the backlog."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import apsw.ext
import pytest

import penstock
from penstock.engines.sqlite.statements import named
from penstock.model import ops
from penstock.testing import ManualClock

TUBES: dict[str, dict[str, Any]] = {
    "fifo": {"kind": "fifo"},
    "fifottl": {"kind": "fifottl"},
    "limfifottl": {"kind": "limfifottl", "capacity": 100_000},
    "utube": {"kind": "utube"},
    "utubettl": {"kind": "utubettl"},
    "standard": {"kind": "standard"},
    "strict lanes": {"kind": "standard", "lane_order": "strict"},
    "ordered lanes": {"kind": "standard", "lane_pick": "order", "lane_concurrency": 3},
    "lanes in turns": {"kind": "utube", "lane_pick": "turns"},
    "uuid": {"kind": "standard", "id": "uuid"},
    "time64": {"kind": "fifo", "id": "time64"},
}
COLD = {
    "exhausted",
    "taken",
    "places_by_seq",
    "page_of_state",
    "next_lane",
    "count_lane",
    "taken_in_lane",
    "all_lanes",
    "truncate",
}
"""Statements of operators and of rare changes, which may look at many rows."""
IN_ORDER = {"candidate": "ready", "candidates": "ready", "buried": "buried"}
"""Statements that read the first rows of an index that holds nothing else."""
HOT = {
    *("candidate", "lane_candidate", "due", "first_due", "find", "find_key", "find_put_id", "buried", "taken_by"),
    *("slots", "standing", "taken_slot", "first_waiting", "insert_in_lane"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[penstock.Queue]:
    path = tmp_path_factory.mktemp("plans") / "tasks.db"
    with penstock.connect(str(path), durability="relaxed", clock=ManualClock()) as q:
        for name, options in TUBES.items():
            q.create_tube(name.replace(" ", "_"), **options)
        with q.transaction() as tx:
            tx.connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT, lane TEXT, note TEXT)")
            tx.connection.execute("CREATE INDEX orders_status ON orders (status)")
        q.adopt("adopted", table="orders", fields={"status": "status", "lane": "lane"})
        yield q


def statements(q: penstock.Queue, name: str) -> tuple[int, dict[str, str]]:
    """The number of a tube, and its statements but for those that make and drop tables."""
    tube = q._engine.store._tx._tubes[name.replace(" ", "_")]  # type: ignore[attr-defined]
    lanes = tube.config.features.lanes
    needs_lanes = {"insert_in_lane", "first_waiting", "slots", "standing", "taken_slot", "lane_candidate"}
    return tube.number, {
        key: text
        for key, text in tube.sql.items()
        if not text.startswith(("CREATE", "DROP"))
        and key != "find_table"
        and (lanes or key not in needs_lanes | {"next_lane", "count_lane"})
    }


def explain(q: penstock.Queue, text: str) -> list[str]:
    connection: apsw.Connection = q._engine.store._main.connection  # type: ignore[attr-defined]
    number = apsw.ext.query_info(connection, text).bindings_count
    return [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, [None] * number)]


def problems(name: str, number: int, plan: list[str]) -> list[str]:
    """What is wrong with the plan of a hot statement."""
    found = []
    for step in plan:
        if re.match(
            rf"SCAN penstock_tasks_{number}\b|SCAN (u|orders|penstock_lanes|penstock_events|penstock_edits)\b", step
        ):
            index = IN_ORDER.get(name)
            if index is None or f"INDEX penstock_tasks_{number}_{index}" not in step:
                found.append(step)
        if "TEMP B-TREE" in step and name != "due":
            found.append(step)
    return found


@pytest.mark.parametrize("name", [*TUBES, "adopted"])
def test_no_hot_statement_scans_or_sorts_a_table_of_tasks(store, name):
    number, texts = statements(store, name)
    wrong = {
        key: found
        for key, text in texts.items()
        if key not in COLD and (found := problems(key, number, explain(store, text)))
    }
    assert wrong == {}


def test_every_statement_is_guarded_or_known_to_be_cold(store):
    names = set(named("tube.sql"))
    assert names >= COLD and set(IN_ORDER) <= names and names - COLD >= HOT
    checked = set().union(*(statements(store, name)[1] for name in TUBES)) - COLD
    made = {name for name, text in named("tube.sql").items() if text.startswith(("CREATE", "DROP"))}
    assert checked | COLD | made | {"find_table"} == names


def test_a_statement_that_scans_or_sorts_is_found(store):
    number, _ = statements(store, "standard")
    table = f"penstock_tasks_{number}"
    bad = {
        "candidate": f"SELECT * FROM {table} WHERE state = 'ready' ORDER BY data LIMIT 1",  # noqa: S608
        "find": f"SELECT * FROM {table} WHERE data = ?",  # noqa: S608
        "buried": f"SELECT * FROM {table} WHERE state = 'done' ORDER BY pri",  # noqa: S608
    }
    for name, text in bad.items():
        assert problems(name, number, explain(store, text)), text


@pytest.mark.parametrize(
    "name",
    [
        *("load_lane", "save_lane", "delete_lane", "due_lanes", "first_wake", "save_session", "delete_session"),
        *("events", "pending_edits", "update_tube", "marks", "written", "trimmed", "write_note", "notes", "last_notes"),
        *("save_trim", "delete_notes", "first_ledger", "next_ledger"),
    ],
)
def test_statements_on_shared_tables_use_an_index(store, name):
    plan = explain(store, named("store.sql")[name])
    assert not [step for step in plan if re.match(r"SCAN penstock_\w+\b(?! USING)", step)], plan
    assert not [step for step in plan if "TEMP B-TREE" in step], plan


# -- what really happens on a full table ---------------------------------------------------------------


class Meter:
    """Steps of SQLite's machine, rows of full scans and sorts that a call costs."""

    def __init__(self, q: penstock.Queue) -> None:
        self._connection = q._engine.store._main.connection  # type: ignore[attr-defined]
        self.cost: Counter[str] = Counter()
        self._connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)

    def _note(self, event: dict[str, Any]) -> None:
        status = event["stmt_status"]
        for name in ("VM_STEP", "FULLSCAN_STEP", "SORT"):
            self.cost[name] += status[f"SQLITE_STMTSTATUS_{name}"]

    def of(self, call: Callable[[], Any]) -> Counter[str]:
        self.cost.clear()
        call()
        return Counter(self.cost)


KINDS = ["fifottl", "strict lanes", "ordered lanes"]
"""Without lanes, and lanes in both orders; the others share their statements and lack some."""
OTHER_KINDS = ["fifo", "utube", "utubettl", "standard"]


def fill(path: Path, name: str, number: int) -> tuple[penstock.Queue, penstock.Tube]:
    """A tube with so many tasks in each state, half of its lanes busy."""
    q = penstock.connect(str(path), durability="relaxed", clock=ManualClock())
    options = dict(TUBES[name])
    jobs = q.create_tube("jobs", **options)
    features = jobs._config.features
    entries = [penstock.Entry(n, lane=f"lane{n % (number // 4)}" if features.lanes else None) for n in range(number)]
    ids = [task.id for task in jobs.put_many(entries)]
    if features.delay:
        jobs.put_many([penstock.Entry(n, delay=1000) for n in range(number)])
    jobs.take_many(number // 8)
    for task_id in ids[-20:]:
        jobs.bury(task_id)
    return q, jobs


def calls(jobs: penstock.Tube) -> dict[str, Callable[[], Any]]:
    features = jobs._config.features
    held: list[penstock.Task] = []

    def take(n: int) -> None:
        held.extend(jobs.take_many(n))
        assert held

    found: dict[str, Callable[[], Any]] = {
        "put": lambda: jobs.put("x", lane="new" if features.lanes else None),
        "put in a long lane": lambda: jobs.put("x", lane="lane1" if features.lanes else None),
        "put with a key": lambda: jobs.put("x", key="k"),
        "put with the key again": lambda: jobs.put("x", key="k", on_conflict="ignore"),
        "take": lambda: take(1),
        "take_many": lambda: take(5),
        "ack": lambda: held.pop().ack(),
        "release": lambda: held.pop().release(),
        "bury": lambda: held.pop().bury(),
        "take again": lambda: take(3),
        "ack_many": lambda: jobs.ack_many([held.pop(), held.pop()]),
        "kick": lambda: jobs.kick(2),
        "peek": lambda: jobs.peek(5),
        "tasks": lambda: jobs.tasks(limit=5),
        "statistics": lambda: jobs.statistics(),
        "tick": lambda: jobs._queue.tick(),
    }
    if features.lanes:
        found["take from a busy lane"] = lambda: jobs.take(lane="lane0")
    return found


@pytest.mark.parametrize("name", [*KINDS, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in OTHER_KINDS)])
def test_no_call_costs_more_on_a_long_tube_than_on_a_short_one(tmp_path, name):
    costs: list[dict[str, Counter[str]]] = []
    for number in (400, 4000):
        q, jobs = fill(tmp_path / f"{number}.db", name, number)
        meter = Meter(q)
        costs.append({what: meter.of(call) for what, call in calls(jobs).items()})
        q.close()
    short, long = costs
    for what, cost in long.items():
        assert cost["VM_STEP"] > 0 or what == "statistics", f"{what} was not measured"
        assert cost["VM_STEP"] <= short[what]["VM_STEP"] * 1.5 + 50, f"{what}: {short[what]} became {cost}"
        assert cost["FULLSCAN_STEP"] <= short[what]["FULLSCAN_STEP"] + 8, f"{what}: {short[what]} became {cost}"


def test_the_meter_sees_a_scan(tmp_path):
    q, jobs = fill(tmp_path / "scan.db", "fifo", 400)
    meter = Meter(q)
    cost = meter.of(lambda: jobs.tasks("buried"))
    assert cost["VM_STEP"] > 400
    q.close()


def test_no_call_on_a_ledger_costs_more_when_it_is_long(tmp_path):
    costs = []
    for number in (100, 4000):
        with penstock.connect(str(tmp_path / f"{number}.db"), durability="relaxed", clock=ManualClock()) as q:
            do = q._engine.execute
            for name in "abc":
                do(ops.WriteLedger(name, 0, ("x",) * number))
            meter = Meter(q)
            asked = {
                "write": ops.WriteLedger("b", number, ("x",)),
                "read": ops.ReadLedger("b", number // 2, 5),
                "last": ops.LastNotes("b", 5),
                "trim": ops.TrimLedger("b", 5),
                "list": ops.ListLedgers(),
            }
            costs.append({what: meter.of(partial(do, op))["VM_STEP"] for what, op in asked.items()})
    short, long = costs
    for what, cost in long.items():
        assert 0 < cost <= short[what] * 1.5 + 50, f"{what}: {short[what]} became {cost}"
