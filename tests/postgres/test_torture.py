"""Many at once on one tube: takers, producers with open transactions, deaths, rollbacks, and changes of limits.

Bounded by counts and seeded: TORTURE_SEED=... in the environment repeats what was printed.
"""

from __future__ import annotations

import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
import pytest
from tests.crash.children import Child, Children, Wire, family
from tests.postgres.callers import SECOND, Caller

import penstock
from penstock.model import ops
from penstock.model.errors import LeaseLost, NotTaken, PenstockError, TaskNotFound, WrongState
from penstock.model.task import Draft, Record

TICKERS = 2
PATIENCE = 200.0
SHORT = 50_000
"""A ttr, in microseconds, after which a holder that forgot its task loses it."""
RATE, BURST = 200.0, 3
CONFIGURED = {"two": {"concurrency": 2}, "three": {"concurrency": 3}, "rated": {"rate": RATE, "burst": BURST}}
CHANGED = ("changed0", "changed1", "changed2")
"""Lanes whose limits change all the time."""
MOST = 3


class Size(NamedTuple):
    """How many there are of whom."""

    takers: int
    neighbours: int
    producers: int
    puts: int
    """Of each producer, or transactions of several."""


FEW, MANY = Size(4, 2, 3, 6), Size(8, 4, 6, 40)
IN_EVERY_RUN = ("altered in order",)
"""Scenes that are played in short by `make test`: it sets what the others with lanes differ in. Tubes without lanes
have many callers at once in the tests of deadlocks too."""


class Scene(NamedTuple):
    options: dict[str, Any]
    """Of the tube; of kind standard unless they say another."""
    ordered: bool = True
    """Lanes are limited to one: their tasks are done in order."""
    altered: tuple[dict[str, Any], ...] = ()
    """Options that the tube is altered to, over and over."""
    lanes: bool = True


SCENES = {
    "in order": Scene({"lane_concurrency": 1, "lane_pick": "order"}),
    "in turns": Scene({"lane_concurrency": 1}),
    "strict": Scene({"lane_concurrency": 1, "lane_order": "strict"}),
    "two at a time": Scene({"lane_concurrency": 2}, False),
    "no lanes": Scene({"kind": "fifottl"}, False, lanes=False),
    "altered in order": Scene(
        {"lane_concurrency": 1},
        altered=(
            {"lane_pick": "order"},
            {"lane_rate": 500.0, "lane_burst": 2},
            {"lane_rate": None, "lane_order": "strict"},
            {"lane_pick": "turns"},
            {"lane_order": "skip"},
        ),
    ),
    "altered": Scene(
        {"lane_concurrency": 1},
        False,
        (
            {"lane_concurrency": 2},
            {"lane_pick": "order"},
            {"lane_concurrency": 1, "lane_rate": 500.0, "lane_burst": 2},
            {"lane_rate": None, "lane_order": "strict"},
            {"lane_pick": "turns"},
            {"lane_order": "skip"},
        ),
    ),
}


class Ledger:
    """What everybody has done, and the pace: who pauses inside a transaction waits for others to have got on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._steps = 0
        self.errors: list[BaseException] = []
        self.stopped = threading.Event()
        self.put: dict[int, Record] = {}
        self.deleted: set[int] = set()
        self.acked: dict[int, Record] = {}
        self.moved: set[int] = set()
        """Tasks that have left their place in the line for a while: by delay, bury or another priority."""
        self.grants: dict[str, list[int]] = defaultdict(list)

    def step(self) -> None:
        with self._changed:
            self._steps += 1
            self._changed.notify_all()

    def pause(self, steps: int) -> None:
        """Until others have done so much, while nobody has gone wrong."""
        with self._changed:
            goal = self._steps + steps
            self._changed.wait_for(lambda: self._steps >= goal or self.stopped.is_set(), PATIENCE)

    def idle(self) -> None:
        """There was nothing to take: until something happens."""
        with self._changed:
            self._changed.wait(0.01)

    def took(self, records: list[Record], most: int) -> None:
        assert len(records) <= most, f"{len(records)} taken, {most} asked for"
        assert len({record.id for record in records}) == len(records)
        with self._changed:
            for record in records:
                if record.lane == "rated":
                    assert record.taken_at is not None
                    self.grants["rated"].append(record.taken_at)

    def ack(self, record: Record) -> None:
        with self._changed:
            assert record.id not in self.acked, f"task {record.id} was acked twice"
            self.acked[record.id] = record

    def stored(self, records: list[Record]) -> None:
        with self._changed:
            self.put.update((record.id, record) for record in records)

    def fail(self, error: BaseException) -> None:
        self.errors.append(error)
        self.stopped.set()
        self.step()


class Part(threading.Thread):
    """One that does something again and again until it is done or all is over."""

    def __init__(
        self, ledger: Ledger, seed: str, work: Callable[[random.Random], bool], end: Callable[[], Any]
    ) -> None:
        super().__init__(daemon=True)
        self._ledger, self._random, self._work, self._end = ledger, random.Random(seed), work, end

    def run(self) -> None:
        try:
            while not self._ledger.stopped.is_set() and self._work(self._random):
                self._ledger.step()
        except BaseException as error:
            self._ledger.fail(error)
        finally:
            self._end()


# -- producers -----------------------------------------------------------------------------------------


class Producer:
    def __init__(self, url: str, ledger: Ledger, name: str, lanes: bool, puts: int) -> None:
        self.caller, self.ledger, self.name = Caller(url, "jobs"), ledger, name
        self.left = puts
        self.lanes = [*(f"lane{n}" for n in range(6)), *CONFIGURED, *CHANGED, None, None] if lanes else [None]

    def drafts(self, chance: random.Random) -> list[Draft]:
        number = chance.choice((1, 1, 2, 5))
        return [
            Draft(f'"{self.name}"', pri=chance.choice((0, 0, 0, 1, -1)), lane=chance.choice(self.lanes))
            for _ in range(number)
        ]

    def work(self, chance: random.Random) -> bool:
        kind = chance.random()
        if kind < 0.4:
            self.ledger.stored(self.caller.put(*self.drafts(chance)))
        else:
            self._in_transaction(chance, "break" if kind > 0.92 else "rollback" if kind > 0.8 else "commit")
        self.left -= 1
        return self.left > 0

    def _in_transaction(self, chance: random.Random, end: str) -> None:
        placed: list[Record] = []
        try:
            with self.caller.transaction():
                for _ in range(chance.randrange(1, 4)):
                    placed += self.caller.put(*self.drafts(chance), joined=True)
                    self.ledger.pause(chance.randrange(1, 40))
                if end == "rollback":
                    raise psycopg.Rollback
                if end == "break":
                    self.caller.connection.close()
        except psycopg.OperationalError:
            if end != "break":
                raise
        if end == "commit":
            self.ledger.stored(placed)
        elif end == "break":
            self.caller.break_off()


# -- takers --------------------------------------------------------------------------------------------


class Taker:
    def __init__(self, url: str, ledger: Ledger, lanes: bool) -> None:
        self.caller, self.ledger, self.lanes = Caller(url, "jobs"), ledger, lanes

    def work(self, chance: random.Random) -> bool:
        if chance.random() < 0.04:
            # What an earlier session still holds comes back when its time is over.
            self.caller.new_session(chance.choice((60 * SECOND, SHORT)))
        most = chance.choice((1, 1, 1, 3, 10))
        lane = chance.choice(("lane0", "two", "rated")) if self.lanes and chance.random() < 0.1 else None
        ttr = SHORT if chance.random() < 0.2 else None
        taken = self.caller.take(most, ttr, lane)
        self.ledger.took(taken, most)
        if not taken:
            self.ledger.idle()
        elif len(taken) > 1 and chance.random() < 0.5:
            self._ack_all(chance, taken)
        else:
            for record in taken:
                self._finish(chance, record, ttr is not None)
        return True

    def _ack_all(self, chance: random.Random, records: list[Record]) -> None:
        chance.shuffle(records)
        for record, answer in zip(records, self.caller.ack(*records), strict=True):
            self._acked(record, answer)

    def _acked(self, record: Record, answer: Any) -> None:
        if not isinstance(answer, PenstockError):
            self.ledger.ack(record)
        elif not isinstance(answer, LeaseLost):
            raise answer

    def _finish(self, chance: random.Random, record: Record, may_die: bool) -> None:
        if may_die and chance.random() < 0.5:
            return
        ways = {
            self._ack_once: 50,
            self._ack_twice: 8,
            self._ack_joined: 8,
            self._release: 10,
            self._move: 4,
            self._bury: 4,
            self._leave: 3,
        }
        (way,) = chance.choices(list(ways), list(ways.values()))
        try:
            way(chance, record)
        except LeaseLost:
            pass

    def _ack_once(self, chance: random.Random, record: Record) -> None:
        self._acked(record, self.caller.ack(record)[0])

    def _ack_twice(self, chance: random.Random, record: Record) -> None:
        self._ack_once(chance, record)
        assert isinstance(self.caller.ack(record)[0], LeaseLost)

    def _ack_joined(self, chance: random.Random, record: Record) -> None:
        end = chance.choice(("commit", "commit", "rollback", "break"))
        try:
            with self.caller.transaction():
                answer = self.caller.ack(record, joined=True)[0]
                self.ledger.pause(chance.randrange(1, 20))
                if end == "rollback":
                    raise psycopg.Rollback
                if end == "break":
                    self.caller.connection.close()
        except psycopg.OperationalError:
            if end != "break":
                raise
        if end == "break":
            self.caller.break_off()
        if end == "commit":
            self._acked(record, answer)
        else:
            self._ack_once(chance, record)

    def _release(self, chance: random.Random, record: Record) -> None:
        self.caller.release(record)
        with pytest.raises(LeaseLost):
            self.caller.release(record)

    def _move(self, chance: random.Random, record: Record) -> None:
        self.ledger.moved.add(record.id)
        self.caller.release(record, **chance.choice(({"delay": 5000}, {"pri": -1}, {"pri": 2})))

    def _bury(self, chance: random.Random, record: Record) -> None:
        self.ledger.moved.add(record.id)
        self.caller.bury(record)

    def _leave(self, chance: random.Random, record: Record) -> None:
        self.caller.end_session()
        self.caller.new_session()
        assert isinstance(self.caller.ack(record)[0], LeaseLost)


def take_and_ack(jobs: penstock.Tube, chance: random.Random, took: Callable[[list[Any], int], None]) -> list[Record]:
    """One turn of a taker that uses Penstock as a program does; what it has finished."""
    most = chance.choice((1, 1, 4))
    tasks = jobs.take_many(most, timeout=0)
    took(tasks, most)
    finished = []
    for task in tasks:
        record = task._record  # with the token that an ack takes away
        try:
            if chance.random() < 0.1:
                task.release()
            elif chance.random() < 0.2:
                with jobs._queue.transaction() as tx:
                    task.ack(transaction=tx)
                finished.append(record)
            else:
                task.ack()
                finished.append(record)
        except LeaseLost:
            pass
    return finished


def other_process(wire: Wire, url: str, seed: str, threads: int) -> None:
    """Takers in a process of their own; says what they have acked when told to end."""
    ended = threading.Event()
    done: list[tuple[int, int]] = []
    errors: list[str] = []

    def took(tasks: list[Any], most: int) -> None:
        assert len(tasks) <= most

    with penstock.connect(url, durability="relaxed") as q:
        jobs = q.tube("jobs")

        def loop(number: int) -> None:
            chance = random.Random(f"{seed}/{number}")
            try:
                while not ended.wait(0.001):
                    done.extend((record.id, record.token) for record in take_and_ack(jobs, chance, took))
            except BaseException as error:
                errors.append(repr(error))

        workers = [threading.Thread(target=loop, args=(number,), daemon=True) for number in range(threads)]
        for worker in workers:
            worker.start()
        wire.say("ready")
        wire.hear()
        ended.set()
        for worker in workers:
            worker.join()
    wire.say(done, errors)


class Neighbour:
    """Takers of this process that share one queue, so that their calls are performed in groups."""

    def __init__(self, q: penstock.Queue, ledger: Ledger) -> None:
        self.jobs, self.ledger = q.tube("jobs"), ledger

    def work(self, chance: random.Random) -> bool:
        def took(tasks: list[Any], most: int) -> None:
            self.ledger.took([task._record for task in tasks], most)
            if not tasks:
                self.ledger.idle()

        for record in take_and_ack(self.jobs, chance, took):
            self.ledger.ack(record)
        return True


# -- who looks after the tube --------------------------------------------------------------------------


class Admin:
    def __init__(self, url: str, ledger: Ledger, scene: Scene) -> None:
        self.caller, self.ledger, self.scene = Caller(url, "jobs"), ledger, scene

    def work(self, chance: random.Random) -> bool:
        self.ledger.pause(chance.randrange(5, 25))
        what = chance.random()
        if what < 0.3:
            self.caller.kick(chance.choice((1, 3, None)))
        elif what < 0.45:
            self._delete(chance)
        elif what < 0.5:
            for paused in (True, False):
                self.caller.shape(ops.PauseTube("jobs", paused))
                self.ledger.pause(3)
        elif what < 0.55:
            self.caller.release_all()
        elif what < 0.65 and self.scene.altered:
            with suppress(penstock.TubeBusy):  # an index cannot be made while a transaction is open
                self.caller.shape(ops.AlterTube("jobs", chance.choice(self.scene.altered)))
        elif self.scene.lanes:
            options = chance.choice(
                (
                    {"concurrency": chance.randrange(1, MOST + 1)},
                    {"paused": chance.random() < 0.3},
                    {"rate": chance.choice((None, 100.0, 0.001)), "burst": chance.choice((1, 5))},
                )
            )
            self.caller.shape(ops.ConfigureLane("jobs", chance.choice(CHANGED), options))
        return True

    def _delete(self, chance: random.Random) -> None:
        known = list(self.ledger.put)
        if known:
            task_id = chance.choice(known)
            try:
                if chance.random() < 0.5:
                    self.caller.delete(task_id)
                    self.ledger.deleted.add(task_id)
                else:
                    self.ledger.moved.add(task_id)
                    self.caller.do(ops.Bury("jobs", ops.Lease(task_id), self.caller.session))
            except (TaskNotFound, NotTaken, WrongState, penstock.NotOwner):
                pass


class Looker:
    """Looks at everything at one moment, over and over."""

    ASK = """
        select n.lane, l.concurrency, h.seq, {s}.held_{n}(n.lane, 1000) as held,
            h.seq is not null and not l.paused and not c.lanes_changed
                and coalesce({s}.held_{n}(n.lane, l.concurrency + 1) < l.concurrency, true)
                and not exists (
                    select from {s}.tickets_{n} k
                    where k.lane = n.lane and (k.at is null or k.at <= greatest({s}.now_us(), l.next_at))
                ) as lost
        from (
            select distinct lane from {s}.tasks_{n} where lane is not null and state in ('ready', 'taken')
        ) n, {s}.tubes c, {s}.limits_{n}(c, n.lane) l, {s}.head_{n}(c, n.lane) h
        where c.number = {n}
    """
    ORPHANS = """
        select t.seq from {s}.tasks_{n} t
        where t.state = 'taken' and not exists (select from {s}.sessions h where h.number = t.session)
    """

    BELOW = """
        select t.seq from {s}.tasks_{n} t, {s}.line_{n}() l where t.state = 'ready' and (t.pri, t.seq) < (l.pri, l.seq)
    """

    def __init__(self, url: str, scene: Scene) -> None:
        self.caller, self.scene, self.looks = Caller(url, "jobs"), scene, 0
        self.caller.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        names = {"s": self.caller.schema, "n": self.caller.number}
        self.ask, self.orphans = self.ASK.format(**names), self.ORPHANS.format(**names)
        self.below = self.BELOW.format(**names)
        if not scene.lanes:
            self.caller.connection.execute("update {s}.marks_{n} set step = 1".format(**names))  # noqa: S608

    def work(self, chance: random.Random) -> bool:
        with self.caller.connection.transaction():
            if not self.scene.lanes:
                below = self.caller.connection.execute(self.below).fetchall()
                assert not below, f"tasks {below} are ready before the line begins"
            lanes = self.caller.connection.execute(self.ask) if self.scene.lanes else ()
            for lane, concurrency, seq, held, lost in lanes:
                assert not lost, (
                    f"lane {lane!r} has room and task {seq} is ready, but nobody will look:{self._lane(lane)}"
                )
                assert held <= self._most(lane, concurrency), f"lane {lane!r}: {held} are held"
            orphans = self.caller.connection.execute(self.orphans).fetchall()
            assert not orphans, f"tasks {orphans} are held by a session that is gone"
        self.looks += 1
        return True

    def _lane(self, lane: str) -> str:
        names = {"s": self.caller.schema, "n": self.caller.number}
        found = [""]
        for ask in (
            "select lane_concurrency, lane_rate, lane_order, lane_pick, xmin from {s}.tubes",
            "select tat, {s}.now_us() from {s}.lanes_{n} where lane = %s",
            "select seq, pri, state, session, taken_at, xmin from {s}.tasks_{n} where lane = %s order by 2, 1",
            "select *, xmin from {s}.tickets_{n} where lane = %s",
        ):
            rows = self.caller.connection.execute(ask.format(**names), [lane] * ("%s" in ask)).fetchall()
            found.append(f"{ask}: {rows}")
        return "\n".join(found)

    def _most(self, lane: str, concurrency: int | None) -> int:
        if lane in CHANGED or self.scene.altered:
            return MOST
        assert concurrency is not None
        return concurrency


# -- the run -------------------------------------------------------------------------------------------


def check_rate(moments: list[int]) -> None:
    """No window holds more than the burst and what the rate lets through; one more for clocks read out of order."""
    moments = sorted(moments)
    for first in range(len(moments)):
        for last in range(first, len(moments)):
            allowed = BURST + RATE * (moments[last] - moments[first]) / SECOND
            assert last - first + 1 <= allowed + 1, f"{last - first + 1} grants, {allowed} allowed"


def check_order(ledger: Ledger) -> None:
    """Tasks of one producer in one lane were done in the order of their puts, but for those that left their place."""
    by_lane: dict[Any, list[Record]] = defaultdict(list)
    for record in ledger.acked.values():
        put = ledger.put[record.id]
        if put.lane is not None and put.lane.startswith("lane") and record.id not in ledger.moved:
            by_lane[put.lane, put.data, put.pri].append(record)
    for records in by_lane.values():
        by_grant = [record.id for record in sorted(records, key=lambda record: record.token or 0)]
        assert by_grant == sorted(by_grant)


class Run:
    def __init__(self, url: str, scene: Scene, size: Size, seed: str, children: Children) -> None:
        self.url, self.scene, self.size, self.seed, self.children = url, scene, size, seed, children
        self.ledger = Ledger()
        self.parts: list[Part] = []
        self.looker = Looker(url, scene)

    def start(self, q: penstock.Queue) -> None:
        self.others = [self.children.start(other_process, self.url, f"{self.seed}/{n}", 2) for n in range(2)]
        for child in self.others:
            assert child.line() == ["ready"]
        for n in range(self.size.producers):
            producer = Producer(self.url, self.ledger, f"p{n}", self.scene.lanes, self.size.puts)
            self.part(producer.work, producer.caller)
        for _ in range(self.size.takers):
            taker = Taker(self.url, self.ledger, self.scene.lanes)
            self.part(taker.work, taker.caller)
        for _ in range(self.size.neighbours):
            self.part(Neighbour(q, self.ledger).work)
        for _ in range(TICKERS):
            caller = Caller(self.url, "jobs")
            self.part(lambda chance, caller=caller: (caller.tick(), self.ledger.pause(10), True)[-1], caller)  # type: ignore[misc]
        admin = Admin(self.url, self.ledger, self.scene)
        self.part(admin.work, admin.caller)
        self.part(self.looker.work, self.looker.caller)
        for part in self.parts:
            part.start()

    def part(self, work: Callable[[random.Random], bool], caller: Caller | None = None) -> None:
        end = (lambda: None) if caller is None else caller.close
        self.parts.append(Part(self.ledger, f"{self.seed}/{len(self.parts)}", work, end))

    def finish(self, caller: Caller) -> None:
        """Producers come to their end; the others go on until nothing is left."""
        for part in self.parts[: self.size.producers]:
            part.join(PATIENCE)
            assert not part.is_alive(), "a producer does not end"
        pause = threading.Event()
        count = f"select count(*) from {caller.schema}.tasks_{caller.number}"  # noqa: S608
        for _ in range(int(PATIENCE * 50)):
            if self.ledger.stopped.is_set() or caller.connection.execute(count).fetchone() == (0,):
                break
            for lane in CHANGED if self.scene.lanes else ():
                caller.shape(ops.ConfigureLane("jobs", lane, {"paused": False, "rate": None}))
            caller.kick(None)
            pause.wait(0.02)
        else:
            rows = caller.connection.execute(f"select * from {caller.schema}.tasks_{caller.number}").fetchall()  # noqa: S608
            self.ledger.fail(AssertionError(f"it does not drain: {rows[:5]}"))
        self.ledger.stopped.set()
        self.ledger.step()
        for part in self.parts:
            part.join(PATIENCE)
            assert not part.is_alive(), "somebody does not end"
        for child in self.others:
            self.collect(child)

    def collect(self, child: Child) -> None:
        child.tell("end")
        done, errors = child.line()
        for error in errors:
            self.ledger.fail(AssertionError(error))
        for task_id, token in done:
            self.ledger.ack(self.ledger.put[task_id]._replace(token=token))
        assert child.exit() == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(pytest.param(name, FEW, id=f"{name}-short") for name in IN_EVERY_RUN),
        *(pytest.param(name, MANY, id=f"{name}-long", marks=pytest.mark.exhaustive) for name in SCENES),
    ],
)
def test_lanes_under_torture(place, name, size):
    scene = SCENES[name]
    seed = os.environ.get("TORTURE_SEED", str(random.randrange(10**9)))
    print(f"TORTURE_SEED={seed}")
    with penstock.connect(place, durability="relaxed") as q, family() as children:
        jobs = q.create_tube("jobs", ttr=30, **scene.options)
        for lane, options in CONFIGURED.items() if scene.lanes else ():
            jobs.lane(lane).configure(**options)
        run = Run(place, scene, size, f"{seed}/{name}", children)
        counter = Caller(place, "jobs")
        before = counter.circles()
        counter.close()
        run.start(q)
        caller = Caller(place, "jobs")
        run.finish(caller)
        ledger = run.ledger
        if ledger.errors:
            raise ledger.errors[0]
        assert ledger.acked.keys() | ledger.deleted == ledger.put.keys()
        assert not ledger.acked.keys() & ledger.deleted
        check_rate(ledger.grants["rated"])
        if scene.ordered:
            check_order(ledger)
        statistics = jobs.statistics()
        assert statistics.tasks["total"] == 0 and statistics.calls["put"] == len(ledger.put)
        assert statistics.calls["ack"] == len(ledger.acked) and statistics.calls["delete"] == len(ledger.deleted)
        print(f"{name}: {len(ledger.put)} tasks, {run.looker.looks} looks")
        if size is MANY:  # in a short run one unlucky moment weighs too much
            assert caller.circles() - before <= 2 + size.puts // 20
        caller.close()
