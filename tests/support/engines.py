"""The engines under test. A new engine joins the whole suite by one line in ENGINES."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

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
PAIRS = [(engine, colour) for engine in ENGINES for colour in COLOURS if (engine.name, colour) != ("grpc", "async")]
"""Over gRPC the remote engine is the same but for what carries its frames."""


Pair = tuple[EngineUnderTest, str]


def is_full(pair: Pair, pairs: Collection[Pair]) -> bool:
    """Whether a test that runs on these pairs has all its parameters on this one: they reach code of its own there."""
    engine, colour = pair
    if engine.name == "memory" or (colour == "blocking" and engine.name != "grpc"):
        return True
    return engine.name == "sqlite" and not _is_covered(pair, pairs)


def is_thinned(pair: Pair) -> bool:
    """Whether a test that has all its parameters here needs but every third: others run the very same engine.

    Remote is memory behind a server, and the async facade is made from the blocking one.
    """
    return pair[0].name == "remote" or (pair[0].name, pair[1]) == ("memory", "async")


def is_third(name: str) -> bool:
    """The same in every run."""
    return zlib.crc32(name.encode()) % 3 == 0


def shared_pair(function: str, pairs: Collection[Pair]) -> Pair | None:
    """Of the pairs that others cover, the one that a test runs on: the same one in every run, and all in turn.

    A single one has every second test.

    The async facade is made from the blocking one and awaits every engine through the same bridge; over gRPC the same
    frames travel. So what goes wrong there alone goes wrong whatever the verb is.
    """
    covered = sorted((pair for pair in pairs if _is_covered(pair, pairs)), key=lambda pair: (pair[0].name, pair[1]))
    turn = zlib.crc32(function.encode()) % max(2, len(covered))
    return covered[turn] if turn < len(covered) else None


def is_spared(pair: Pair, pairs: Collection[Pair], function: str) -> bool:
    """Whether a test does not run on this pair at all."""
    return _is_covered(pair, pairs) and pair != shared_pair(function, pairs)


def _is_covered(pair: Pair, pairs: Collection[Pair]) -> bool:
    engine, colour = pair
    if engine.name == "grpc":
        return any(other.name == "remote" for other, _ in pairs)
    return engine.name != "memory" and colour == "async" and (engine, "blocking") in pairs


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
