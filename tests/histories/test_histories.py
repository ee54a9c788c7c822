"""Random histories: every engine must answer like the memory engine, stored tasks included."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support import postgres
from tests.support.engines import ENGINES, EngineUnderTest
from tests.support.invariants import check, check_snapshot, dump, dump_snapshot, line
from tests.support.remotes import behind
from tests.support.snapshot import snapshot

import penstock
from penstock.engines import open_store
from penstock.engines.memory import MemoryStore, MemoryTube
from penstock.engines.postgres.store import PostgresStore
from penstock.model import ops
from penstock.testing import ManualClock, lose

# All histories of an engine are one test.
pytestmark = pytest.mark.timeout(900)
SESSIONS = 3
SESSION_TTL = 20
LANES = st.sampled_from([None, None, "a", "b", "c"])
TASKS = st.integers(min_value=0, max_value=30)
SECONDS = st.sampled_from([0, 0.5, 1, 2, 5, 10, 30])
KINDS: dict[str, dict[str, Any]] = {
    "fifo": {"kind": "fifo", "max_attempts": 3},
    "timed": {"kind": "fifottl", "retry": [1, 5], "max_attempts": 3, "ttl": 60, "history": True},
    "full": {"kind": "limfifottl", "capacity": 5, "keep": 7},
    "utube": {"kind": "utube", "keep": True},
    "spread": {"kind": "utube", "lane_pick": "turns"},
    "utubettl": {"kind": "utubettl", "ttr": 8, "max_attempts": 2},
    "turns": {"kind": "standard", "ttr": 10, "keep_failed": 5},
    "pair": {"kind": "standard", "lane_concurrency": 2, "lane_pick": "order", "concurrency": 4},
    "strict": {"kind": "utubettl", "lane_order": "strict", "retry": 3, "max_attempts": 4},
    "rated": {"kind": "standard", "lane_rate": 0.5, "lane_burst": 2, "lane_concurrency": 3},
    "derived": {
        "kind": "standard",
        "ttl": "derived",
        "ttr": 5,
        "max_attempts": 3,
        "retry": penstock.Exponential(max=3),
    },
    "soon": {"kind": "fifottl", "temporary": True, "ttr": 3},
}
LANED_KINDS = ("utube", "spread", "turns", "pair", "strict", "rated")
TUBES = st.runner().flatmap(lambda machine: st.sampled_from(machine.tubes))
LANED = st.runner().flatmap(lambda machine: st.sampled_from([t for t in machine.tubes if t in LANED_KINDS]))
LATE = ("postgres",)
"""Engines whose puts leave what is due to whoever comes next, so that they need not look for it."""


class Side:
    """One engine with its own clock; told the same things as the others."""

    def __init__(self, engine: EngineUnderTest, folder: Path, tubes: list[str]) -> None:
        self.engine = engine
        self.clock = ManualClock()
        self.url = engine.url(folder, self.clock)
        self.events: list[tuple[Any, ...]] = []
        self.queues: list[Any] = []
        self.lost: list[Any] = []
        self.held: dict[tuple[str, int], Any] = {}
        self.open()
        self.tubes = tubes
        for name in tubes:
            self.queues[0].create_tube(name, **KINDS[name])
        self.listen()

    def open(self) -> None:
        self.queues = [
            penstock.connect(self.url, clock=self.clock, session_ttl=SESSION_TTL, durability="relaxed")
            for _ in range(SESSIONS)
        ]

    def listen(self) -> None:
        for name in {"timed", "turns", "strict"} & set(self.tubes):
            self.queues[0].tube(name).on_task_change(
                lambda task, event, name=name: self.events.append((name, task.id, event, str(task.state), task.attempt))
            )

    def tube(self, name: str, session: int = 0) -> Any:
        return self.queues[session].tube(name)

    def answer(self, call: Any) -> Any:
        """What a call answers, as a plain value."""
        try:
            return plain(call(self))
        except penstock.PenstockError as error:
            extra = getattr(error, "now", getattr(error, "outcome", None))
            return (type(error).__name__, extra)

    def tick(self) -> None:
        """Do what is due."""
        self.queues[0]._engine.execute(ops.Tick())

    def view(self) -> tuple[Any, ...]:
        """All that can be compared, after a check that it is sound."""
        url = behind(self.url)
        store: Any = open_store(url)
        if isinstance(store, PostgresStore):
            seen, now = snapshot(self.url), self.clock.now()
            check_snapshot(seen, now, lowered=True)
            laned = (tube for tube in seen.tubes if tube.config.features.lanes)
            return dump_snapshot(seen), {tube.config.name: line(tube, now) for tube in laned}, self.events
        check(url)
        return dump(url), lines(store), self.events

    def close(self) -> None:
        for queue in (*self.queues, *self.lost):
            queue.close()
        self.engine.clean(self.url)


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, penstock.Task):
        record = value._record._replace(token=None, session=None)
        return (value.outcome, *(str(v) if isinstance(v, str) else v for v in record))
    if isinstance(value, penstock.PenstockError):
        return type(value).__name__
    return value


class Histories(RuleBasedStateMachine):
    """The same ops, clock steps, lost sessions and restarts for memory and another engine."""

    other: EngineUnderTest

    @initialize(first=st.sampled_from(LANED_KINDS), others=st.permutations(sorted(KINDS)))
    def begin(self, first: str, others: list[str]) -> None:
        """Few tubes, so that much happens in each; lanes have the most to get wrong."""
        self.tubes = [first, *(tube for tube in others if tube != first)][:3]
        self.folder = postgres.folder("penstock-history")
        with postgres.warmth():
            self.sides = [Side(engine, self.folder, self.tubes) for engine in (ENGINES[0], self.other)]

    def teardown(self) -> None:
        if hasattr(self, "sides"):
            for side in self.sides:
                side.close()
            shutil.rmtree(self.folder)

    def both(self, call: Any) -> Any:
        first, second = (side.answer(call) for side in self.sides)
        assert first == second, f"memory answers {first!r}, {self.other.name} {second!r}"
        return first

    # -- putting and taking ------------------------------------------------------------------------

    @rule(tube=TUBES, lane=LANES, pri=st.sampled_from([None, None, -1, 1]), delay=st.sampled_from([None, None, 0, 2]),
          ttl=st.sampled_from([None, None, 0, 3]), key=st.sampled_from([None, None, None, "k"]),
          conflict=st.sampled_from(["error", "ignore", "replace", "restart"]))  # fmt: skip
    def put(self, tube: str, **given: Any) -> None:
        on_conflict = given.pop("conflict")
        options = fitting(tube, given)
        self.both(lambda side: side.tube(tube).put({"n": 1}, on_conflict=on_conflict, **options))

    @rule(tube=TUBES, lanes=st.lists(LANES, max_size=6))
    def put_many(self, tube: str, lanes: list[str | None]) -> None:
        entries = [penstock.Entry(i, **fitting(tube, {"lane": lane})) for i, lane in enumerate(lanes)]
        self.both(lambda side: side.tube(tube).put_many(entries, errors="return"))

    @rule(tube=TUBES, lane=LANES, options=st.sampled_from(
        [{"repeat": 3}, {"keep": 5}, {"keep": True}, {"max_attempts": 1}, {"put_id": "p"}, {"put_id": "q", "delay": 4},
         {"key": "k", "keep": 5}, {"ttr": 2, "ttl": 3}]))  # fmt: skip
    def put_specially(self, tube: str, lane: str | None, options: dict[str, Any]) -> None:
        given = fitting(tube, {**options, "lane": lane})
        self.both(lambda side: side.tube(tube).put([1], on_conflict="restart", **given))

    @rule(tube=TUBES, lanes=st.lists(LANES, max_size=4))
    def put_in_transaction(self, tube: str, lanes: list[str | None]) -> None:
        entries = [penstock.Entry(i, **fitting(tube, {"lane": lane})) for i, lane in enumerate(lanes)]

        def call(side: Side) -> Any:
            with side.queues[0].transaction() as tx:
                return side.tube(tube).put_many(entries, errors="return", transaction=tx)

        self.both(call)

    @rule(tube=TUBES, lane=LANES, verb=st.sampled_from(["take", "peek", "tasks", "statistics", "kick", "release_all"]))
    def put_dead(self, tube: str, verb: str, **given: Any) -> None:
        """A task that is over as soon as it is there, and at once somebody who must not see it."""
        options = fitting(tube, {**given, "ttl": 0})

        def call(side: Side) -> Any:
            task = side.tube(tube).put("dead", **options)
            return getattr(side.tube(tube), verb)(*([task.id] if verb == "peek" else []))

        self.both(call)

    @rule(tube=TUBES, wrong=st.sampled_from([{"capacity": 1}, {"pri": 1}, {"ttr": 1}, {"lane": "a"}, {"put_id": "p"}]))
    def put_oddly(self, tube: str, wrong: dict[str, Any]) -> None:
        self.both(lambda side: side.tube(tube).put(None, **{k: v for k, v in wrong.items() if k != "capacity"}))

    @rule(tube=TUBES, session=st.integers(0, SESSIONS - 1), n=st.integers(1, 4), lane=LANES,
          ttr=st.sampled_from([None, None, 4]))  # fmt: skip
    def take(self, tube: str, session: int, n: int, **given: Any) -> None:
        options = fitting(tube, given)

        def call(side: Side) -> Any:
            tasks = side.tube(tube, session).take_many(n, **options)
            side.held.update({(tube, task.id): task for task in tasks})
            return tasks

        self.both(call)

    # -- ending leases -----------------------------------------------------------------------------

    def end(self, tube: str, number: int, verb: str, *args: Any, **options: Any) -> None:
        """By the task object if one was ever taken (perhaps long ago), else by id."""

        def call(side: Side) -> Any:
            task = side.held.get((tube, number))
            if task is None:
                return getattr(side.tube(tube), verb)(number, *args, **options)
            return getattr(task, verb)(*args, **options)

        self.both(call)

    @rule(tube=TUBES, number=TASKS, keep=st.sampled_from([None, None, True, 3]))
    def ack(self, tube: str, number: int, keep: Any) -> None:
        self.end(tube, number, "ack", result=[number], keep=keep)

    @rule(tube=TUBES)
    def ack_many(self, tube: str) -> None:
        def call(side: Side) -> Any:
            tasks = [task for (name, _), task in side.held.items() if name == tube and task._ended is None]
            return side.tube(tube).ack_many(tasks, errors="return")

        self.both(call)

    @rule(tube=TUBES, number=TASKS, delay=st.sampled_from([None, 2]), pri=st.sampled_from([None, -2]),
          ttl=st.sampled_from([None, 6]), refund=st.booleans())  # fmt: skip
    def release(self, tube: str, number: int, refund: bool, **given: Any) -> None:
        self.end(tube, number, "release", refund=refund, **fitting(tube, given))

    @rule(tube=TUBES, number=TASKS, abort=st.booleans(), delay=st.sampled_from([None, None, 4]))
    def fail(self, tube: str, number: int, abort: bool, **given: Any) -> None:
        self.end(tube, number, "fail", "boom", abort=abort, **fitting(tube, given))

    @rule(tube=TUBES, number=TASKS)
    def bury(self, tube: str, number: int) -> None:
        self.end(tube, number, "bury", "bad")

    @rule(tube=TUBES, number=TASKS, seconds=SECONDS)
    def touch(self, tube: str, number: int, seconds: float) -> None:
        self.end(tube, number, "touch", seconds)

    # -- moving by hand ----------------------------------------------------------------------------

    @rule(tube=TUBES, number=TASKS, verb=st.sampled_from(["peek", "delete", "dig", "snatch", "restart", "cancel"]),
          delay=st.sampled_from([None, None, 3]))  # fmt: skip
    def by_id(self, tube: str, number: int, verb: str, **given: Any) -> None:
        options = fitting(tube, given) if verb in ("dig", "snatch", "restart") else {}
        self.both(lambda side: getattr(side.tube(tube), verb)(number, **options))

    @rule(tube=TUBES, number=TASKS, state=st.sampled_from(["ready", "buried", "done", "delayed"]))
    def switch(self, tube: str, number: int, state: str) -> None:
        options = {"delay": 2} if state == "delayed" else {}
        self.both(lambda side: side.tube(tube).switch(number, state, **options))

    @rule(tube=TUBES, verb=st.sampled_from(["kick", "plow", "add_retries"]), n=st.integers(1, 3))
    def revive(self, tube: str, verb: str, n: int) -> None:
        self.both(lambda side: getattr(side.tube(tube), verb)(n))

    @rule(tube=TUBES, verb=st.sampled_from(["release_all", "pause", "resume", "truncate"]))
    def whole_tube(self, tube: str, verb: str) -> None:
        self.both(lambda side: getattr(side.tube(tube), verb)())

    @rule(tube=TUBES, lane=st.sampled_from(["a", "b"]), options=st.sampled_from(
        [{"concurrency": 1}, {"concurrency": 3}, {"concurrency": None}, {"paused": True}, {"paused": False},
         {"rate": 1, "burst": 2}, {"rate": None, "burst": None}]))  # fmt: skip
    def configure_lane(self, tube: str, lane: str, options: dict[str, Any]) -> None:
        self.both(lambda side: side.tube(tube).lane(lane).configure(**options))

    @rule(tube=LANED, options=st.lists(st.sampled_from(
        [{"lane_concurrency": 1}, {"lane_concurrency": 2}, {"lane_concurrency": None}, {"lane_order": "strict"},
         {"lane_order": "skip"}, {"lane_rate": 1.0}, {"lane_rate": None}, {"lane_pick": "turns"},
         {"lane_pick": "order"}]), min_size=1, max_size=2), n=st.sampled_from([0, 4]))  # fmt: skip
    def alter(self, tube: str, options: list[dict[str, Any]], n: int) -> None:
        """New options, and at once takers that ask which lane comes first by them."""
        merged = {name: value for option in options for name, value in option.items()}
        self.both(lambda side: side.tube(tube).alter(**merged))
        if n:
            self.take(tube=tube, session=0, n=n, lane=None, ttr=None)

    @rule(tube=LANED, lanes=st.permutations(["a", "b", "c", "d"]))
    def fill_lanes(self, tube: str, lanes: list[str]) -> None:
        """Two tasks of each lane, the first of them taken: the second ones wait where lanes are limited."""
        self.put_many(tube=tube, lanes=[*lanes, *lanes])
        self.take(tube=tube, session=0, n=4, lane=None, ttr=None)

    # -- looking -----------------------------------------------------------------------------------

    @rule(tube=TUBES, state=st.sampled_from([None, "ready", "buried", "done"]), after=st.sampled_from([None, 2]))
    def tasks(self, tube: str, state: str | None, after: int | None) -> None:
        self.both(lambda side: side.tube(tube).tasks(state, limit=5, after=after))

    @rule(tube=TUBES, number=TASKS, seconds=st.sampled_from([5, 30]))
    def watch(self, tube: str, number: int, seconds: int) -> None:
        def call(side: Side) -> Any:
            op = ops.Watch(tube, number, side.clock.now() + seconds * 1_000_000)
            return tuple(side.queues[0]._engine.execute(op)._replace(token=None, session=None))

        self.both(call)

    @rule(tube=TUBES)
    def statistics(self, tube: str) -> None:
        self.both(lambda side: side.tube(tube).statistics())

    @rule()
    def history(self) -> None:
        """All that was recorded. Numbers of rows and names of sessions are the engine's own."""
        self.both(lambda side: [tuple(row._replace(seq=0, worker=None)) for row in side.queues[0].history()])

    @rule(tube=TUBES)
    def lanes(self, tube: str) -> None:
        self.both(lambda side: [tuple(lane) for lane in side.tube(tube).lanes()])

    # -- time, sessions, restarts ------------------------------------------------------------------

    @rule(seconds=SECONDS)
    def advance(self, seconds: float) -> None:
        for side in self.sides:
            side.clock.advance(seconds)

    @rule(session=st.integers(1, SESSIONS - 1))
    def close_session(self, session: int) -> None:
        for side in self.sides:
            side.queues[session].close()
            side.queues[session] = penstock.connect(
                side.url, clock=side.clock, session_ttl=SESSION_TTL, durability="relaxed"
            )

    @rule(session=st.integers(1, SESSIONS - 1))
    def lose_session(self, session: int) -> None:
        for side in self.sides:
            lose(side.queues[session])
            side.lost.append(side.queues[session])
            side.queues[session] = penstock.connect(
                side.url, clock=side.clock, session_ttl=SESSION_TTL, durability="relaxed"
            )

    @rule()
    def restart(self) -> None:
        for side in self.sides:
            side.engine.new_run(side.url)
            side.open()
            side.listen()
            side.held.clear()

    # -- what must hold ----------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "sides"))
    @invariant()
    def alike(self) -> None:
        memory, other = self.sides
        if self.other.name in LATE:
            for side in self.sides:
                side.tick()
        for expected, actual in zip(memory.view(), other.view(), strict=True):
            assert actual == expected


def lines(store: Any) -> dict[str, list[int]]:
    """Who stands in the line of each tube with lanes, first in it first."""
    if isinstance(store, MemoryStore):
        return {name: memory_line(tube) for name, tube in store.data.tubes.items() if tube.config.features.lanes}
    tx = store._tx
    tx.begin()
    try:
        tubes = [tx.tube(name) for name in tx.tube_names()]
        return {
            tube.config.name: [record.seq for record in tube.records(tube.database.rows(tube.sql["candidates"], (-1,)))]
            for tube in tubes
            if tube.config.features.lanes
        }
    finally:
        tx.rollback()


def memory_line(tube: MemoryTube) -> list[int]:
    return [seq for *_, seq in sorted((tube._records[seq].pri, place, seq) for seq, place in tube._places.items())]


NEEDS = {"lane": "lanes", "pri": "pri", "ttl": "ttl", "ttr": "ttr", "delay": "delay", "repeat": "delay"}


def fitting(tube: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options that the tube has features for."""
    features = penstock.model.tube.KINDS[KINDS[tube]["kind"]].features
    return {name: v for name, v in options.items() if v is not None and getattr(features, NEEDS.get(name, ""), True)}


EXAMPLES = {"sqlite": 10, "postgres": 5, "remote": 5}
"""How many histories an engine has in every run; they are the same in each."""
MANY_EXAMPLES = {"sqlite": 150, "postgres": 60, "remote": 100, "grpc": 30}
"""How many new ones it has in `make test-all`; a failure prints how to repeat it."""


def histories_of(engine: EngineUnderTest, examples: int, derandomize: bool) -> type[Any]:
    """The test case that compares an engine with memory."""
    machine = type(f"HistoriesOf{engine.name.title()}", (Histories,), {"other": engine})
    case: type[Any] = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        derandomize=derandomize,
        print_blob=True,
        # A machine that stands still for a while is no fault of the histories.
        suppress_health_check=[HealthCheck.too_slow],
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    )
    return case


for engine in ENGINES:
    if engine.name in EXAMPLES:
        globals()[f"Test{engine.name.title()}"] = histories_of(engine, EXAMPLES[engine.name], derandomize=True)
    if engine.name in MANY_EXAMPLES:
        many = histories_of(engine, MANY_EXAMPLES[engine.name], derandomize=False)
        globals()[f"TestMany{engine.name.title()}"] = pytest.mark.exhaustive(many)
