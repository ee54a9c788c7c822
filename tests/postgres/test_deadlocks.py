"""Acks of many in any order, kicks, sweeps, ends of sessions and counting, all on one tube: no waiting in a circle."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.postgres.callers import SECOND, Caller

import penstock
from penstock.model import ops
from penstock.model.errors import LeaseLost
from penstock.model.task import Draft, Record

CALLERS, TASKS = 8, 400
SHORT, LONG = 10, 120
"""How often each caller does something."""
TUBES: dict[str, dict[str, Any]] = {
    "plain": {"kind": "fifottl", "ttr": 60},
    "kept": {"kind": "fifottl", "ttr": 60, "keep": 60},
    "recorded": {"kind": "fifottl", "ttr": 60, "history": True},
    "uuid": {"kind": "standard", "ttr": 60, "id": "uuid", "lane_concurrency": 5},
    "lanes": {"kind": "standard", "ttr": 60, "lane_concurrency": 5, "concurrency": 100, "capacity": 10_000},
}


IN_EVERY_RUN = ("recorded", "lanes")
"""Tubes of `make test`: without lanes and with them. The others differ in what is stored with a task."""
RARE = 2
"""Circles that PostgreSQL's own way of skipping locked rows may lead to when thousands of calls want the same."""


class Sweeper:
    """One of several with the same tasks in their hands: they all ack what any of them has taken."""

    def __init__(self, url: str, seed: str, rounds: int, shared: list[Record], start: threading.Barrier) -> None:
        self.caller = Caller(url, "jobs", 60 * SECOND)
        self.chance, self.rounds, self.shared, self.start = random.Random(seed), rounds, shared, start

    def run(self) -> None:
        self.start.wait()
        for _ in range(self.rounds):
            self.chance.choice(self.ways())()
        self.caller.close()

    def ways(self) -> list[Callable[[], Any]]:
        return [
            *(self.take, self.take, self.take, self.ack, self.ack, self.ack, self.end, self.bury, self.forget),
            *(lambda: self.caller.kick(self.chance.choice((1, 20, None))), self.caller.tick, self.caller.release_all),
            lambda: self.caller.do(ops.GetStatistics("jobs")),
            lambda: self.caller.do(ops.AddRetries("jobs", 1)),
        ]

    def take(self) -> None:
        # A short ttr: it is over while others hold the task in their hands.
        self.shared += self.caller.take(20, self.chance.choice((None, 1000)))

    def ack(self) -> None:
        mine = self.chance.sample(self.shared, min(30, len(self.shared)))
        self.caller.ack(*mine)

    def bury(self) -> None:
        for record in self.caller.take(3):
            with suppress(LeaseLost):
                self.caller.bury(record)

    def end(self) -> None:
        self.caller.end_session()
        self.caller.new_session()

    def forget(self) -> None:
        self.caller.new_session(1000)
        self.caller.take(5)
        self.caller.new_session()


@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        *((name, SHORT) for name in IN_EVERY_RUN),
        *(pytest.param(name, LONG, marks=pytest.mark.exhaustive) for name in TUBES),
    ],
)
def test_acks_kicks_and_sweeps_wait_in_no_circle(place, name, rounds):
    seed = os.environ.get("TORTURE_SEED", str(random.randrange(10**9)))
    print(f"TORTURE_SEED={seed}")
    errors: list[BaseException] = []
    shared: list[Record] = []
    start = threading.Barrier(CALLERS)

    def run(sweeper: Sweeper) -> None:
        try:
            sweeper.run()
        except BaseException as error:
            errors.append(error)

    with penstock.connect(place, durability="relaxed") as q:
        jobs = q.create_tube("jobs", **TUBES[name])
        lanes = jobs._config.features.lanes
        caller = Caller(place, "jobs")
        before = caller.circles()
        caller.put(*(Draft("1", lane=f"lane{n % 20}" if lanes else None) for n in range(TASKS)))
        sweepers = [Sweeper(place, f"{seed}/{n}", rounds, shared, start) for n in range(CALLERS)]
        threads = [threading.Thread(target=run, args=(sweeper,), daemon=True) for sweeper in sweepers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60 + rounds)
            assert not thread.is_alive(), "somebody waits"
        if errors:
            raise errors[0]
        circles = caller.circles() - before
        print("circles", circles)
        if rounds == LONG:  # in a short run one unlucky moment weighs too much
            assert circles <= RARE + rounds // 50
        counted = caller.connection.execute(
            f"""
            select s.state, s.n, (select count(*) from {caller.schema}.tasks_{caller.number} t where t.state = s.state)
            from {caller.schema}.totals_{caller.number}() s
            """  # noqa: S608
        ).fetchall()
        caller.close()
    assert len(counted) == 5 and all(number == rows for _, number, rows in counted), counted
