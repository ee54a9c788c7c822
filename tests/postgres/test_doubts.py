"""Which sessions a process names to the database: those that may be over there although they live here."""

from __future__ import annotations

import random
from contextlib import closing

import psycopg
import pytest

import penstock
from penstock.engines.postgres import doubts
from penstock.engines.signs import Signs
from penstock.model import ops
from penstock.model.clock import SystemClock
from penstock.model.duration import SECOND
from penstock.model.session import new_session
from penstock.testing import ManualClock

TTL = 30 * SECOND


class World:
    """Sessions that live here, and what the database knows of them."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.kept: dict[str, None] = {}
        self.signs = Signs()
        self.written: dict[str, int] = {}
        self.doubts = doubts.Doubts(clock, self.kept, self.signs)

    def lives(self) -> set[str]:
        return {*self.kept} | self.signs.alive(self.clock.now())

    def expected(self) -> set[str]:
        now = self.clock.now()
        return {uuid for uuid in self.lives() if now - self.written.get(uuid, now - TTL) >= TTL // 2}

    def named(self) -> set[str]:
        return {uuid for uuid in self.doubts.array().strip("{}").split(",") if uuid}

    # -- what may happen ---------------------------------------------------------------------------

    def keep(self, uuid: str) -> None:
        self.kept[uuid] = None
        self.doubts.meet(uuid)

    def hear(self, uuid: str) -> None:
        self.signs.hear(uuid, TTL, self.clock.now())
        self.doubts.meet(uuid)

    def write(self, uuid: str) -> None:
        since = self.doubts.now()
        self.written[uuid] = self.clock.now()
        self.doubts.written(uuid, TTL, since)

    def lose(self, uuid: str) -> None:
        self.kept.pop(uuid, None)
        self.doubts.part(uuid)


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(5, 50))]
)
def test_exactly_those_are_named_whose_last_sign_is_older_than_half_their_ttl(seed, monkeypatch):
    monkeypatch.setattr(doubts, "SPARE", 5)
    chance = random.Random(seed)
    world = World(ManualClock())
    names = [f"s{number}" for number in range(12)]
    for _ in range(600):
        verb = chance.choice([world.keep, world.hear, world.write, world.write, world.lose])
        verb(chance.choice(names))
        world.clock.advance(chance.choice([0, 0.5, 2, 6]))
        if chance.random() < 0.7:
            assert world.named() == world.expected()
        if chance.random() < 0.01:
            world.written.clear()
            world.doubts.doubt_all()
            assert world.named() == world.lives()


def test_a_wall_clock_that_is_set_back_does_not_stop_the_time(monkeypatch):
    wall, machine = [1_000_000 * SECOND], [50 * SECOND]
    monkeypatch.setattr(doubts.time, "time_ns", lambda: wall[0] * 1000)
    monkeypatch.setattr(doubts.time, "clock_gettime_ns", lambda _: machine[0] * 1000)
    passing = doubts.Passing(SystemClock())
    for jump, step in [(-3600 * SECOND, 10 * SECOND), (0, 10 * SECOND), (7200 * SECOND, 10 * SECOND)]:
        before = passing.now()
        wall[0] += jump
        machine[0] += step
        assert passing.now() - before >= step


def test_a_call_does_not_carry_the_sessions_that_are_in_no_doubt(warm):
    with closing(penstock.connect(warm, clock=ManualClock())) as q:
        q.create_tube("jobs")
        store = q._engine.store
        sessions = [new_session(None) for _ in range(200)]
        for session in sessions:
            store.execute(ops.OpenSession(session))
            store.keep(session, 1)
        assert store.kept() == "{}"
        strange = new_session(None)
        store.keep(strange, 1)  # nothing was written for it
        assert store.kept() == "{" + strange.uuid + "}"
        store.execute(ops.KeepAlive(strange))
        assert store.kept() == "{}"
        for session in (*sessions, strange):
            store.lose(session, 1)


def test_a_queue_that_is_dropped_in_the_middle_of_anything_waits_for_nobody(warm):
    """The collector of garbage may find it while this very thread looks who is in doubt."""
    with closing(penstock.connect(warm)) as q:
        store = q._engine.store
        stranger = new_session(None)
        store.keep(stranger, 1)
        with store.doubts._lock:
            store.lose(stranger, 1)
        assert stranger.uuid not in store.doubts.array()


def test_a_sign_that_was_not_written_leaves_its_session_in_doubt(warm):
    clock = ManualClock()
    with closing(penstock.connect(warm, clock=clock)) as q:
        store = q._engine.store
        uuid = q._session.uuid
        clock.advance(20)
        assert store.doubts.array() == "{}"
        failing = psycopg.OperationalError("the way is blocked")

        def transact(*_: object) -> None:
            raise failing

        before, store._transact = store._transact, transact
        try:
            with pytest.raises(penstock.PenstockError):
                store._keep_alive([q._session])
        finally:
            store._transact = before
        clock._now += 16 * SECOND
        assert store.doubts.array() == "{" + uuid + "}"


@pytest.mark.parametrize("few", [doubts.FEW, 0])
def test_a_process_that_stood_still_does_not_end_its_own_sessions(warm, monkeypatch, few):
    """Nobody else has seen that it was late, so nothing has happened. [rule 13]"""
    monkeypatch.setattr(doubts, "FEW", few)
    clock = ManualClock()
    with closing(penstock.connect(warm, clock=clock, session_ttl=30)) as q:
        q.create_tube("jobs", ttr=1000).put(1)
        task = q.tube("jobs").take(timeout=0)
        assert task is not None
        store = q._engine.store
        monkeypatch.setattr(store, "before_advance", lambda moment: None)
        monkeypatch.setattr(store, "_keep_alive", lambda sessions: None)
        clock.advance(100)
        task.ack()
