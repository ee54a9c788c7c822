"""The engines under test. A new engine joins the whole suite by one line in ENGINES."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.mark import ParameterSet
from tests.support import postgres, remotes
from tests.support.blocking import Loop
from tests.support.invariants import check

import penstock
from penstock.testing import ManualClock

_names = itertools.count()


class EngineUnderTest(NamedTuple):
    name: str
    place: Callable[[Path, ManualClock | None], str]
    durable: bool
    """Keeps tasks in a file, so that other processes can open it."""
    clean: Callable[[str], None] = lambda url: None
    """What to do with a place when its test is over."""
    new_run: Callable[[str], None] = penstock.testing.new_run

    def url(self, path: Path, clock: ManualClock | None = None) -> str:
        """A new place; the clock is for what runs beside the process that opens it."""
        return self.place(path, clock)


ENGINES = (
    EngineUnderTest("memory", lambda path, clock: f"memory:test{next(_names)}", durable=False),
    EngineUnderTest("sqlite", lambda path, clock: str(path / "tasks.db"), durable=True),
    EngineUnderTest("postgres", lambda path, clock: postgres.lent_place(warm=True), True, postgres.give_back),
    EngineUnderTest("remote", lambda path, clock: remotes.served(clock), False, remotes.stop, remotes.begin_run),
    EngineUnderTest("grpc", lambda path, clock: remotes.served_by_grpc(clock), False, remotes.stop, remotes.begin_run),
)
COLOURS = ("blocking", "async")
Pair = tuple[EngineUnderTest, str]
"""An engine, and the colour of the program that uses it."""
PAIRS: list[Pair] = [
    (engine, colour) for engine in ENGINES for colour in COLOURS if (engine.name, colour) != ("grpc", "async")
]
"""Over gRPC the remote engine is the same but for what carries its frames."""
IN_EVERY_RUN = ("memory-blocking", "sqlite-blocking", "postgres-blocking", "remote-blocking")
"""The pairs of `make test`. The async facade is generated from the blocking one and awaits every engine through one
bridge, which test_async.py and the workers use in every run, and gRPC carries the frames of the remote engine. So the
other pairs repeat code, and `make test-all` runs them."""


def pair_name(pair: Pair) -> str:
    engine, colour = pair
    return f"{engine.name}-{colour}"


def parameters(pairs: Iterable[Pair], in_every_run: Collection[str] = IN_EVERY_RUN) -> list[ParameterSet]:
    """Parameters for a fixture: pairs that are not in every run are marked `exhaustive`."""
    return [
        pytest.param(pair, id=name, marks=marks_of(pair[0], name in in_every_run))
        for pair in pairs
        for name in [pair_name(pair)]
    ]


def engine_parameters(engines: Iterable[EngineUnderTest] = ENGINES) -> list[ParameterSet]:
    """Parameters for a fixture that is about engines alone: gRPC, which carries the remote one, is `exhaustive`."""
    return [pytest.param(engine, id=engine.name, marks=marks_of(engine, engine.name != "grpc")) for engine in engines]


def marks_of(engine: EngineUnderTest, in_every_run: bool) -> list[pytest.MarkDecorator]:
    """The markers of a test on an engine: `servers` if that is more than this process and a file."""
    served = [] if engine.name in ("memory", "sqlite") else [pytest.mark.servers]
    return served if in_every_run else [*served, pytest.mark.exhaustive]


class Bench:
    """One store under test: opens queues on it, closes them, checks it at the end."""

    manual = True
    """Time is the clock's, also for what runs beside the process."""

    def __init__(self, engine: EngineUnderTest, colour: str, path: Path, clock: ManualClock) -> None:
        self.engine = engine
        self.colour = colour
        self.url = engine.url(path, clock if self.manual else None)
        self.clock = clock
        self._queues: list[Any] = []
        self._loop = Loop() if colour == "async" else None
        if self._loop is not None:
            clock.advance = self._loop.settled(clock.advance)  # type: ignore[method-assign]

    def connect(self, **options: Any) -> Any:
        """Another queue, with a session of its own, on the same store."""
        options.setdefault("clock", self.clock)
        options.setdefault("durability", "relaxed")
        if self._loop is None:
            queue: Any = penstock.connect(self.url, **options)
        else:
            queue = self._loop.wrap(self._loop.run(penstock.aconnect(self.url, **options)))
        self._queues.append(queue)
        return queue

    def new_run(self) -> Any:
        """Every process that had the store open is gone; this is the first one to open it again."""
        self.engine.new_run(self.url)
        self._queues.clear()
        return self.connect()

    def close(self) -> None:
        try:
            check(remotes.behind(self.url))
        finally:
            for queue in self._queues:
                queue.close()
            if self._loop is not None:
                self._loop.stop()
        self.engine.clean(self.url)
