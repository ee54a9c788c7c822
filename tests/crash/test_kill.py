"""kill -9 of writers and takers at any moment: nothing that was answered is lost, nothing is done twice."""

from __future__ import annotations

import os
import random
import selectors
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.crash.checkers import History, check
from tests.crash.children import Child, Children, family
from tests.crash.roles import end, say_taken, work
from tests.support import invariants, postgres

import penstock

WORKERS = 4
KILLS = 12
MANY_KILLS = {"sqlite": 200, "postgres": 80}
SWEEP = 8
"""After so many kills all workers are killed, so that the next one begins a run."""


class Pool:
    """Workers that are killed and replaced."""

    def __init__(self, children: Children, url: str, durability: str, seed: int, kills: int) -> None:
        self._most = kills
        self._children = children
        self._url = url
        self._durability = durability
        self._rng = random.Random(seed)
        self._selector = selectors.DefaultSelector()
        self._left: dict[Child, int] = {}
        self._started = 0
        self.history = History(serial=not url.startswith("postgresql:"))
        self.kills = 0
        self._said: dict[Child, list[Any]] = {}

    def start(self) -> None:
        self._started += 1
        child = self._children.start(work, self._url, self._durability, self._started)
        self._left[child] = self._rng.randrange(1, 80)
        self._said[child] = []
        self._selector.register(child, selectors.EVENT_READ)

    def run(self) -> None:
        for _ in range(WORKERS):
            self.start()
        while self.kills < self._most:
            ready = self._selector.select(60)
            assert ready, "all workers are stuck"
            for key, _ in ready:
                child: Any = key.fileobj
                if child not in self._left:
                    continue
                assert child.read(), f"a worker ended by itself: {child.exit()}"
                self._take_in(child, child.said())
        self.sweep()

    def _take_in(self, child: Child, lines: list[Any]) -> None:
        self._said[child] += lines
        self._left[child] -= len(lines)
        if self._left[child] > 0:
            return
        if self.kills % SWEEP == SWEEP - 1:
            self.sweep()
            for _ in range(WORKERS):
                self.start()
        else:
            self.kill(child)
            self.start()

    def kill(self, child: Child) -> None:
        self.kills += 1
        self._selector.unregister(child)
        del self._left[child]
        self.history.add(self._said.pop(child) + child.kill())
        assert child.exit() == -9, "the worker had ended before it was killed"
        self._children.forget(child)

    def sweep(self) -> None:
        for child in list(self._left):
            self.kill(child)


class Log:
    """The test's own calls, told like a worker's."""

    def __init__(self, history: History) -> None:
        self._history = history

    def say(self, *line: Any) -> None:
        self._history.add([list(line)])


CASES = [
    ("sqlite", "strict", 1, KILLS),
    ("sqlite", "relaxed", 2, KILLS),
    ("postgres", "strict", 1, KILLS),
    *(
        pytest.param(engine, durability, None, kills, marks=pytest.mark.exhaustive)
        for engine, kills in MANY_KILLS.items()
        for durability in ("strict", "relaxed")
    ),
]
"""Long runs draw a random seed and print it; KILL_SEED=... in the environment repeats one as far as processes allow."""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place on every engine that other processes can open."""
    if request.param == "sqlite":
        yield str(tmp_path / "tasks.db")
        assert apsw.Connection(str(tmp_path / "tasks.db")).pragma("integrity_check") == "ok"
    else:
        place = postgres.place()
        yield place
        postgres.drop_place(place)


@pytest.mark.parametrize(("url", "durability", "seed", "kills"), CASES, indirect=["url"])
def test_nothing_is_lost_or_done_twice_when_processes_are_killed_at_any_moment(url, durability, seed, kills):
    if seed is None:
        seed = int(os.environ.get("KILL_SEED", random.randrange(10**9)))
        print(f"KILL_SEED={seed}")
    with family() as children:
        pool = Pool(children, url, durability, seed, kills)
        pool.run()
    history = pool.history
    assert len(history.put) > kills and len(history.grants) > kills, "too little happened to prove anything"
    with penstock.connect(url) as q:
        invariants.check(url)
        left = {(tube.name, task.id): task.data for tube in q.tubes() for task in tube.tasks(limit=100_000)}
        check(history, left)
        for tube in q.tubes():
            # What the last dead held comes back when their sessions end, if no run has begun since.
            while tube.statistics().tasks["total"]:
                tasks = say_taken(Log(history), tube, 100, timeout=60)
                assert tasks, "the dead keep their tasks"
                end(Log(history), tube, tasks, "ack")
        check(history, {})
        assert {task for task in left if task in history.put} <= {g.task for g in history.grants.values()}
        invariants.check(url)
        assert all(s.tasks["total"] == 0 for s in q.statistics().values())
