"""What `penstock top` shows at one moment, and how fast things go from one moment to the next."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from penstock.blocking import Queue
from penstock.engines.holdings import Holding, Lookout, lookout_of
from penstock.model import ops
from penstock.model.lane import LaneInfo
from penstock.model.stats import Statistics
from penstock.model.tube import TubeConfig

RATES = ("put", "take", "ack", "fail")
REMEMBERED = 60
"""Frames whose rates are remembered, for the curve."""
MOST_LANES = 20


@dataclass(frozen=True)
class TubeLine:
    """A tube: its tasks by state, and calls a second since the frame before."""

    name: str
    config: TubeConfig
    tasks: dict[str, int]
    rates: dict[str, float] | None
    curve: tuple[float, ...] = ()
    """Acks a second of the last frames, the newest last."""

    @property
    def stir(self) -> tuple[float, int, int, int]:
        """How much goes on in it, for comparison."""
        moving = sum(self.rates.values()) if self.rates else 0.0
        return moving, self.tasks["taken"], self.tasks["ready"], self.tasks["delayed"] + self.tasks["buried"]


@dataclass(frozen=True)
class WorkerLine:
    """A process that holds tasks."""

    name: str
    taken: int
    age: float
    """Seconds since the first of them was taken."""
    tubes: dict[str, int]


@dataclass(frozen=True)
class Frame:
    """All of one moment."""

    at: datetime
    place: str
    state: str
    tubes: list[TubeLine]
    chosen: str | None
    """The tube whose lanes are shown."""
    lanes: list[LaneInfo]
    workers: list[WorkerLine]
    sessions: int
    holdings: list[Holding]
    seconds: float | None = None
    """Since the frame before."""

    def to_data(self) -> dict[str, Any]:
        """The frame as JSON has it."""
        return {
            "at": self.at,
            "place": self.place,
            "state": self.state,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "tubes": [
                {
                    "tube": tube.name,
                    "kind": tube.config.kind,
                    "paused": tube.config.paused,
                    **tube.tasks,
                    "rates": None if tube.rates is None else {name: round(r, 3) for name, r in tube.rates.items()},
                }
                for tube in self.tubes
            ],
            "chosen": self.chosen,
            "lanes": [
                {**lane._asdict(), "limits": lane.limits._asdict()} if lane.limits else lane._asdict()
                for lane in self.lanes
            ],
            "workers": [
                {"worker": worker.name, "taken": worker.taken, "oldest": round(worker.age, 3), "tubes": worker.tubes}
                for worker in self.workers
            ],
            "sessions": self.sessions,
        }


class Sampler:
    """Looks at a queue again and again."""

    def __init__(self, queue: Queue, lookout: Lookout, wanted: str | None = None) -> None:
        self._queue = queue
        self._lookout = lookout
        self.wanted = wanted
        """The tube whose lanes are asked for; None: the busiest that has lanes."""
        self._calls: dict[str, dict[str, int]] = {}
        self._looked_at: float | None = None
        self._curves: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))

    def look(self) -> Frame:
        """The frame of now."""
        statistics = self._queue.statistics()
        moment = time.monotonic()
        configs = {config.name: config for config in self._queue._engine.execute(ops.ListTubes())}
        holdings = self._lookout.holdings()
        seconds = None if self._looked_at is None else max(1e-6, moment - self._looked_at)
        tubes = [
            self._tube(configs[name], found, seconds) for name, found in sorted(statistics.items()) if name in configs
        ]
        self._looked_at = moment
        self._calls = {name: found.calls for name, found in statistics.items()}
        frame = Frame(
            datetime.now(UTC),
            self._queue._engine.name,
            self._queue.state(),
            tubes,
            None,
            [],
            _workers(holdings),
            self._lookout.sessions(),
            holdings,
            seconds,
        )
        return self.chosen(frame)

    def chosen(self, frame: Frame) -> Frame:
        """The frame with the lanes of the tube that is wanted now."""
        tube = _choice(frame, self.wanted)
        if tube is None:
            return replace(frame, chosen=None, lanes=[])
        taken: dict[str, int] = defaultdict(int)
        for holding in frame.holdings:
            if holding.tube == tube and holding.lane is not None:
                taken[holding.lane] += holding.taken
        first = sorted(taken, key=lambda lane: (-taken[lane], lane))
        return replace(frame, chosen=tube, lanes=self._lookout.lanes(tube, first[:MOST_LANES], MOST_LANES))

    def _tube(self, config: TubeConfig, found: Statistics, seconds: float | None) -> TubeLine:
        before = self._calls.get(config.name)
        if seconds is None or before is None:
            return TubeLine(config.name, config, found.tasks, None)
        # Counts of calls begin anew with a run of the store.
        rates = {name: max(0, found.calls[name] - before[name]) / seconds for name in RATES}
        curve = self._curves[config.name]
        curve.append(rates["ack"])
        return TubeLine(config.name, config, found.tasks, rates, tuple(curve))


def _choice(frame: Frame, wanted: str | None) -> str | None:
    """The tube whose lanes are shown."""
    if wanted is not None:
        return wanted if any(tube.name == wanted and tube.config.features.lanes for tube in frame.tubes) else None
    in_lanes = {holding.tube for holding in frame.holdings if holding.lane is not None}
    having = [tube for tube in frame.tubes if tube.config.features.lanes]
    found = max(having, key=lambda tube: (tube.name in in_lanes, tube.stir), default=None)
    return None if found is None else found.name


def _workers(holdings: list[Holding]) -> list[WorkerLine]:
    """Who holds most comes first."""
    grouped = defaultdict[str, list[Holding]](list)
    for holding in holdings:
        grouped[holding.worker].append(holding)
    found = []
    for name, held in grouped.items():
        tubes: dict[str, int] = defaultdict(int)
        for holding in held:
            tubes[holding.tube] += holding.taken
        ordered = dict(sorted(tubes.items(), key=lambda item: (-item[1], item[0])))
        found.append(WorkerLine(name, sum(tubes.values()), max(holding.age for holding in held), ordered))
    return sorted(found, key=lambda worker: (-worker.taken, worker.name))


@contextmanager
def watching(queue: Queue) -> Iterator[Lookout]:
    """What looks at the store of a queue."""
    lookout = lookout_of(queue._engine.store)
    try:
        yield lookout
    finally:
        lookout.close()
