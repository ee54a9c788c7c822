"""What a worker asks for all the time: many acks and a take of many, in one statement, without a step for each task."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from tests.plans.test_postgres_plans import Meter
from tests.postgres.callers import Caller, lease
from tests.support import postgres

import penstock
from penstock import Entry
from penstock.model import ops
from penstock.model.errors import LeaseLost, UsageError
from penstock.model.task import Draft, Gone, Record
from penstock.testing import ManualClock

MANY = 100
FEW = 12
"""How often a function may be called for many tasks; some are called for each portion of lanes."""
TUBES: dict[str, tuple[dict[str, Any], int]] = {
    "fifo": ({"kind": "fifo"}, 0),
    "standard": ({"kind": "standard", "ttr": 60}, 0),
    "some lanes": ({"kind": "standard"}, 7),
    "many lanes": ({"kind": "standard"}, MANY),
    "limited lanes": ({"kind": "standard", "lane_concurrency": 1}, 2 * MANY),
    "utube": ({"kind": "utube"}, 2 * MANY),
}
IN_EVERY_RUN = ("fifo", "standard", "limited lanes")


@pytest.fixture
def place(warm: str) -> str:
    return warm


def drafts(number: int, lanes: int) -> list[Draft]:
    return [Draft("1", lane=f"lane {n % lanes}" if lanes else None) for n in range(number)]


def calls(caller: Caller, op: ops.Op[Any]) -> tuple[list[Any], dict[str, int]]:
    """What an op answers, and how often it called each function of the store."""
    with caller.transaction():
        caller.connection.execute("set local track_functions = 'all'")
        answer = caller.do(op)
        asked = "select funcname, calls from pg_stat_xact_user_functions where schemaname = %s"
        return answer, dict(caller.connection.execute(asked, [caller.place.schema]).fetchall())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.exhaustive) for name in TUBES]
)
def test_no_function_is_called_for_each_of_many_tasks(place, name):
    options, lanes = TUBES[name]
    with penstock.connect(place, durability="relaxed") as q:
        q.create_tube("jobs", **options)
    caller = Caller(place, "jobs")
    caller.put(*drafts(2 * MANY, lanes))
    taken, used = calls(caller, ops.Take("jobs", MANY, caller.session))
    assert len(taken) == MANY
    assert used[f"take_{caller.number}"] == 1 and max(used.values()) <= FEW, used
    acks = tuple(ops.Finish(lease(record)) for record in taken)
    ended, used = calls(caller, ops.Ack("jobs", acks, caller.session))
    assert {type(answer) for answer in ended} == {Gone}
    assert used[f"ack_{caller.number}"] == 1 and max(used.values()) <= FEW, used
    caller.close()


def pages(kind: str) -> dict[str, int]:
    """How many a take and an ack of many touch."""
    url = postgres.lent_place()
    with penstock.connect(url, durability="relaxed") as q:
        q.create_tube("jobs", kind)
    meter = Meter(url)
    caller = meter.caller
    caller.put(*drafts(6 * MANY, 0))

    def ack() -> list[ops.Op[Any]]:
        return [ops.Ack("jobs", tuple(ops.Finish(lease(record)) for record in caller.take(MANY)), caller.session)]

    meter.of("take", lambda: [ops.Take("jobs", MANY, caller.session)])
    meter.of("ack", ack)
    caller.close()
    postgres.give_back(url)
    return meter.costs


def test_a_tube_with_lanes_that_nobody_uses_is_read_as_one_without():
    plain, laned = pages("fifo"), pages("standard")
    for what, usual in plain.items():
        assert laned[what] <= 1.5 * usual + 40, f"{what}: {usual} pages became {laned[what]}"
    assert laned["ack"] < 8 * MANY and laned["take"] < 25 * MANY, laned


# -- one statement -----------------------------------------------------------------------------------------------------


def messages(q: penstock.Queue, call: Callable[[], Any]) -> tuple[Any, int]:
    """What a call answers, and how often it asked the server something and waited for the reply."""
    store: Any = q._engine.store
    store._keeper.stop()  # it uses the same connection
    connection = store._connections.main()
    with tempfile.TemporaryFile("w+") as trace:
        connection.pgconn.trace(trace.fileno())
        answer = call()
        connection.pgconn.untrace()
        trace.seek(0)
        return answer, sum(
            line.split("\t")[1:4:2] in (["F", "Sync"], ["F", "Query"]) for line in trace.read().splitlines()
        )


def round_of(q: penstock.Queue, held: list[Record], n: int = 3, **wanted: Any) -> list[Any]:
    """Ack what is held and take so many, as a worker does."""
    acks = ops.Ack("jobs", tuple(ops.Finish(ops.Lease(record.id, record.token)) for record in held), q._session)
    return q._engine.execute_many([acks, ops.Take("jobs", n, q._session, **wanted)])


@pytest.mark.parametrize("kind", ["fifo", "standard"])
def test_acks_and_a_take_are_one_round_trip(place, kind):
    with penstock.connect(place) as q:
        jobs = q.create_tube("jobs", kind)
        jobs.put_many(range(12))
        _, held = round_of(q, [])
        for _ in range(2):  # statements are prepared when they are used again
            _, held = round_of(q, held)
        (ended, granted), asked = messages(q, lambda: round_of(q, held))
        assert [type(answer) for answer in ended] == [Gone] * 3
        assert [record.data for record in granted] == ["9", "10", "11"]
        assert asked == 1
        assert jobs.statistics().calls["ack"] == 9


def test_each_of_a_round_is_answered_for_itself(place):
    with penstock.connect(place) as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.put_many(range(6))
        _, held = round_of(q, [])
        jobs.snatch(held[1].id)
        ended, granted = round_of(q, held)
        assert [type(answer) for answer in ended] == [Gone, LeaseLost, Gone]
        assert [record.seq for record in granted] == [2, 4, 5]
        ended, refused = round_of(q, granted, lane="none here")
        assert [type(answer) for answer in ended] == [Gone] * 3 and isinstance(refused, UsageError)
        assert round_of(q, [])[1][0].seq == 6


def test_a_round_on_a_tube_that_another_process_altered_is_done_with_its_new_options(place):
    with penstock.connect(place) as q:
        jobs = q.create_tube("jobs", "fifo")
        jobs.put_many(range(6))
        _, held = round_of(q, [])
        caller = Caller(place, "jobs")
        caller.shape(ops.AlterTube("jobs", {"keep": True}))
        caller.close()
        ended, granted = round_of(q, held)
        assert [answer.state for answer in ended] == ["done"] * 3
        assert [record.seq for record in granted] == [4, 5, 6]


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fifottl", "standard"])
def test_many_of_mixed_priorities_are_granted_in_their_order_with_rising_tokens(place, kind):
    with penstock.connect(place) as q:
        jobs = q.create_tube("jobs", kind)
        jobs.put_many([Entry(n, pri=n * 7 % 5) for n in range(500)])
        tasks = jobs.take_many(450)
        assert [(task.pri, task.id) for task in tasks] == sorted(
            (task.pri, task.id) for task in jobs.tasks("taken", 500)
        )
        tokens = [task.token for task in tasks]
        assert len(tokens) == 450 and tokens == sorted(set(tokens))


def test_lanes_behind_tasks_without_one_are_granted_in_the_same_call(place):
    with penstock.connect(place) as q:
        jobs = q.create_tube("jobs")
        jobs.put_many(range(5))
        jobs.put_many([Entry(n, lane=f"lane {n % 10}") for n in range(20)])
        jobs.put("last")
        lanes = [None] * 5 + [f"lane {n}" for n in range(10)] + [None] + [f"lane {n}" for n in range(10)]
        assert [task.lane for task in jobs.take_many(50)] == lanes


LANES = (
    {"kind": "standard"},
    {"kind": "standard", "lane_concurrency": 2},
    {"kind": "standard", "lane_concurrency": 1, "lane_pick": "order"},
    {"kind": "standard", "lane_pick": "order"},
    {"kind": "utubettl"},
    {"kind": "standard", "concurrency": 25},
)


class Pair:
    """A tube in memory and one on PostgreSQL that are told the same and must answer alike."""

    def __init__(self, place: str, options: dict[str, Any], chance: random.Random) -> None:
        self.chance = chance
        self.queues = [penstock.connect(url, clock=ManualClock()) for url in ("memory:", place)]
        self.tubes = [q.create_tube("jobs", **options) for q in self.queues]
        self.held: list[list[penstock.Task]] = [[], []]

    def both(self, call: Callable[[penstock.Tube, list[penstock.Task]], Any]) -> None:
        first, second = (call(tube, held) for tube, held in zip(self.tubes, self.held, strict=True))
        assert first == second

    def put(self) -> None:
        lanes = [None, *(f"lane {n}" for n in range(20))]
        entries = [Entry(n, lane=self.chance.choice(lanes), pri=self.chance.choice((0, 0, 0, 1))) for n in range(40)]
        self.both(lambda tube, held: [task.id for task in tube.put_many(entries)])

    def take(self) -> None:
        n = self.chance.choice((3, 10, 40, 200))

        def call(tube: penstock.Tube, held: list[penstock.Task]) -> list[Any]:
            taken = tube.take_many(n)
            held += taken
            return [task.id for task in taken]

        self.both(call)

    def ack(self) -> None:
        seed = self.chance.random()

        def call(tube: penstock.Tube, held: list[penstock.Task]) -> int:
            random.Random(seed).shuffle(held)
            done = [held.pop() for _ in range(len(held) * 2 // 3)]
            return len(tube.ack_many(done))

        self.both(call)

    def configure(self) -> None:
        lane, options = (
            f"lane {self.chance.randrange(4)}",
            self.chance.choice(
                [
                    {"concurrency": 1},
                    {"concurrency": None},
                    {"paused": True},
                    {"paused": False},
                    {"rate": 1},
                    {"rate": None},
                ]
            ),
        )
        self.both(lambda tube, held: tube.lane(lane).configure(**options))

    def close(self) -> None:
        for q in self.queues:
            q.close()


def compare_with_memory(place: str, options: dict[str, Any], seed: str, steps: int) -> None:
    chance = random.Random(seed)
    pair = Pair(place, options, chance)
    ways = [pair.put, pair.put, pair.take, pair.take, pair.take, pair.ack, pair.ack, pair.configure]
    for _ in range(steps):
        chance.choice(ways)()
        pair.both(lambda tube, held: tube.statistics())
    pair.close()


def named(options: dict[str, Any]) -> str:
    return " ".join(map(str, options.values()))


@pytest.mark.parametrize("options", LANES[:3], ids=named)
def test_many_lanes_at_once_are_granted_and_freed_as_in_memory(place, options):
    compare_with_memory(place, options, "1", steps=40)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", LANES, ids=named)
def test_very_much_with_many_lanes_is_granted_and_freed_as_in_memory(place, options):
    seed = os.environ.get("SEED", str(random.randrange(10**9)))
    print(f"SEED={seed}")
    compare_with_memory(place, options, seed, steps=200)
