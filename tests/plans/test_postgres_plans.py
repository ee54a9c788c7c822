"""How PostgreSQL performs our statements: by pages touched, which do not grow with what is stored.

A call's functions plan their statements once for a connection, maybe when a table is empty. So what counts is not what
a plan looks like but what it does on a full table, with statistics and without any.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
import pytest
from tests.postgres.callers import SECOND, Caller, lease
from tests.support import postgres

import penstock
from penstock.engines.postgres.work import Work
from penstock.model import ops
from penstock.model.task import Draft

SHORT, LONG, VERY_LONG = 1_000, 12_000, 60_000
LATER = 4_000_000_000 * SECOND
TUBES: dict[str, dict[str, Any]] = {
    "fifo": {"kind": "fifo"},
    "fifottl": {"kind": "fifottl"},
    "utube": {"kind": "utube"},
    "turns": {"kind": "standard", "lane_concurrency": 1},
    "strict": {"kind": "standard", "lane_concurrency": 1, "lane_order": "strict"},
}
IN_EVERY_RUN = ("fifottl", "turns")
"""Without lanes and with them; what the others lack or limit costs less."""
OPEN = 100
"""Lanes that can be taken from; so many tasks are ready, delayed, buried and, on tubes with lanes, taken beside."""
LEVELS = 2.0
"""A longer tube may cost so much more: its indexes are higher by a level or two."""


class Measured(Exception):
    """The pages that a call has touched."""

    def __init__(self, pages: int) -> None:
        self.pages = pages


class Measuring(Work):
    def rows(self, sql: str, params: Sequence[Any]) -> Iterable[Any]:
        cursor = psycopg.ClientCursor(self._connection)
        row = cursor.execute("explain (analyze, buffers, format json) " + sql, params).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        raise Measured(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


class Meter:
    """Performs ops twice: once so that all is planned and in memory, and once to see what the last of them costs."""

    def __init__(self, url: str) -> None:
        self.caller = Caller(url, "jobs", 3600 * SECOND)
        self.costs: dict[str, int] = {}

    def pages(self, op: ops.Op[Any]) -> int:
        try:
            Measuring(self.caller, self.caller.connection, True).answer(op)  # type: ignore[arg-type]
        except Measured as measured:
            return measured.pages
        raise AssertionError("the op asked nothing")

    def of(self, what: str, make: Callable[[], Sequence[ops.Op[Any]]]) -> None:
        for op in make():
            self.caller.do(op)
        *before, last = make()
        for op in before:
            self.caller.do(op)
        self.costs[what] = self.pages(last)


TASKS = """
    insert into {s}.tasks_{n} (
        seq, state, reason, data, pri, lane, attempt, failures, created_at, ready_at, cancel_asked, session, token,
        due_at, due_rank, place
    )
    select nextval('{s}.seqs_{n}'), '{state}', {reason}, '1', 0, {lane}, 0, 0, 0, 0, false, {session}, {token},
        {due}, {rank}, i
    from generate_series(1, {number}) i
"""
HOLDER = """
    insert into {s}.sessions (uuid, name, ttl, direct, expires_at, attached)
    values (gen_random_uuid(), 'x', 1, false, {later}, 1)
"""
TICKETS = "insert into {s}.tickets_{n} (pri, place, lane) select 0, i, 'open' || i from generate_series(1, {open}) i"
PLACES = "select setval('{s}.places_{n}', {number} + 1)"
COUNTED = "insert into {s}.counts_{n} values ({number}, null, '{state}')"


def load(caller: Caller, number: int, lanes: bool, delay: bool) -> None:
    """So many tasks in each state, straight into the table. All lanes but a few hold as much as they may."""
    names: dict[str, Any] = {"s": caller.schema, "n": caller.number, "number": number, "later": LATER, "open": OPEN}
    names |= {"reason": "null", "session": "null", "token": "null", "due": "null", "rank": "null", "lane": "null"}
    states: dict[str, dict[str, Any]] = {
        "ready": {"lane": f"case when i <= {OPEN} then 'open' || i else 'lane' || i end"},
        "buried": {"lane": "'grave' || i", "reason": "'asked'"},
    }
    if delay:
        states["delayed"] = {"lane": "'later' || i", "due": f"{LATER} + i", "rank": 2}
    if lanes:
        holder = f"(select min(number) from {caller.schema}.sessions)"  # noqa: S608
        token = f"nextval('{caller.schema}.tokens')"
        states["taken"] = {"lane": "'lane' || i", "session": holder, "token": token, "due": LATER, "rank": 0}
    run = caller.connection.execute
    run(HOLDER.format(**names))
    for state, values in states.items():
        if not lanes:
            values["lane"] = "null"
        run(TASKS.format(**names | values, state=state))
        run(COUNTED.format(**names, state=state))
    if lanes:
        run(TICKETS.format(**names))
        run(PLACES.format(**names))


class Filled(NamedTuple):
    url: str
    caller: Caller


@pytest.fixture(
    params=[
        *(pytest.param((name, LONG), id=name) for name in IN_EVERY_RUN),
        *(pytest.param((name, VERY_LONG), id=f"{name}-very long", marks=pytest.mark.exhaustive) for name in TUBES),
    ],
    scope="module",
)
def tubes(request: pytest.FixtureRequest) -> Iterator[tuple[Filled, Filled]]:
    """A short tube and a long one, each in a place of its own."""
    filled = []
    name, most = request.param
    for number in (SHORT, most):
        url = postgres.place()
        with penstock.connect(url, durability="relaxed") as q:
            jobs = q.create_tube("jobs", **TUBES[name])
            features = jobs._config.features
        caller = Caller(url, "jobs")
        caller.connection.execute(f"alter table {caller.schema}.tasks_{caller.number} set (autovacuum_enabled = off)")
        load(caller, number, features.lanes, features.delay)
        filled.append(Filled(url, caller))
    yield filled[0], filled[1]
    for one in filled:
        one.caller.close()
        postgres.drop_place(one.url)


def measure(url: str) -> dict[str, int]:
    """What calls cost, on a new connection, where everything is planned anew."""
    meter = Meter(url)
    caller = meter.caller
    tube = caller.known("jobs", caller.connection)
    lanes, delay = tube.config.features.lanes, tube.config.features.delay
    session = caller.session

    def put(lane: str | None, **options: Any) -> ops.Put:
        return ops.Put("jobs", (Draft("1", lane=lane, **options),))

    def ack(number: int) -> ops.Ack:
        return ops.Ack("jobs", tuple(ops.Finish(lease(held.pop())) for _ in range(number)), session)

    meter.of("put", lambda: [put("new" if lanes else None)])
    many = ops.Put("jobs", tuple(Draft("1", lane=f"new{n}" if lanes else None) for n in range(10)))
    meter.of("put many", lambda: [many])
    if lanes:
        meter.of("put into a full lane", lambda: [put(f"lane{SHORT}")])
    if delay:
        meter.of("put with delay", lambda: [put(None, delay=3600 * SECOND)])
        meter.of("what is due", lambda: [put(None, delay=1), ops.Take("jobs", 1, session)])
    meter.of("take", lambda: [ops.Take("jobs", 1, session)])
    meter.of("take many", lambda: [ops.Take("jobs", 10, session)])
    held = caller.take(10)
    assert len(held) == 10
    meter.of("ack", lambda: [ack(1)])
    meter.of("ack many", lambda: [ack(2)])
    meter.of("release", lambda: [ops.Release("jobs", lease(held.pop()), session)])
    meter.of("bury", lambda: [ops.Bury("jobs", lease(held.pop()), session)])
    meter.of("kick", lambda: [ops.Kick("jobs", 2)])
    meter.of("peek", lambda: [ops.Peek("jobs", SHORT)])
    meter.of("tasks", lambda: [ops.ListTasks("jobs", None, 5, SHORT // 2)])
    meter.of("tick", lambda: [ops.Tick()])
    meter.of("keep alive", lambda: [ops.KeepAlive(session)])
    meter.of("end of a session", lambda: [ops.Take("jobs", 1, session), ops.EndSession(session)])
    caller.close()
    return meter.costs


@pytest.mark.timeout(300)
def test_no_call_touches_more_pages_on_a_long_tube_than_on_a_short_one(tubes):
    short, long = tubes
    for statistics in (False, True):
        if statistics:
            for one in tubes:
                one.caller.connection.execute("analyze")
        usual, costs = measure(short.url), measure(long.url)
        print(statistics, {what: (usual[what], cost) for what, cost in costs.items()})
        for what, cost in costs.items():
            assert cost <= usual[what] * LEVELS + 40, f"{what}: {usual[what]} pages became {cost}, {statistics=}"


@pytest.mark.parametrize("most", [LONG, pytest.param(VERY_LONG, marks=pytest.mark.exhaustive)])
def test_no_call_on_a_ledger_touches_more_pages_when_it_is_long(most):
    costs = []
    for number in (SHORT, most):
        url = postgres.place()
        with penstock.connect(url, durability="relaxed") as q:
            q.create_tube("jobs")
            for name in "abc":
                q._engine.execute(ops.WriteLedger(name, 0, ("x",) * number))
        meter = Meter(url)
        free = itertools.count(number)
        meter.of("write", lambda taken=free: [ops.WriteLedger("b", next(taken), ("x",))])
        meter.of("read", lambda number=number: [ops.ReadLedger("b", number // 2, 5)])
        meter.of("last", lambda: [ops.LastNotes("b", 5)])
        meter.of("trim", lambda: [ops.TrimLedger("b", 5)])
        meter.of("list", lambda: [ops.ListLedgers()])
        costs.append(meter.costs)
        meter.caller.close()
        postgres.drop_place(url)
    usual, long = costs
    for what, cost in long.items():
        assert cost <= usual[what] * LEVELS + 40, f"{what}: {usual[what]} pages became {cost}"


def test_the_meter_sees_a_scan(tubes):
    _, long = tubes
    meter = Meter(long.url)
    meter.of("tasks", lambda: [ops.ListTasks("jobs", penstock.State.DONE, 5)])
    assert meter.costs["tasks"] > 500
    meter.caller.close()
