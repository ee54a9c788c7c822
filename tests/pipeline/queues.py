"""Figures of queues that never were, of every size. The same arguments make the same figures."""

from __future__ import annotations

import math
from random import Random

from penstock.pipeline.figures import Counts, Failure, Figures, LaneFigures, Point, Spread, TubeFigures

BEGIN = 1_794_807_000.0
"""2026-11-16 05:30:00 UTC."""
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
ERRORS = (
    ("ConnectionError", "ConnectionError: timeout after # s", "ConnectionError: timeout after 30 s"),
    (
        "ValueError",
        "ValueError: '#' is no address",
        "ValueError: 'nobody' is no address\nTraceback (most recent call last):",
    ),
    (None, "lost", "lost"),
    ("HTTPError", "HTTPError: # for url #", "HTTPError: 503 for url http://site-7.example/page/12"),
)


def spread(random: Random, count: int, typical: float) -> Spread | None:
    """A number of lengths of time around a typical one."""
    if not count:
        return None
    p50 = typical * random.uniform(0.7, 1.4)
    return Spread(count, p50 * 1.3, p50, p50 * 2.2, p50 * 7, p50 * 15)


def total(parts: list[Counts]) -> Counts:
    """The sum of counts."""
    return Counts(**{name: sum(getattr(part, name) for part in parts) for name in Counts.__dataclass_fields__})


def queue(
    tasks: int,
    seconds: float = 180.0,
    lanes: int = 1,
    tubes: int = 1,
    failing: float = 0.03,
    spike: bool = False,
    seed: int = 7,
) -> Figures:
    """A queue that did this many tasks in this time."""
    random = Random(seed)
    slot = next((step for step in STEPS if seconds / step <= 120), STEPS[-1])
    slots = max(1, math.ceil(seconds / slot))
    weights = [1.0 + math.sin(place / slots * 9) ** 2 + random.random() / 3 for place in range(slots)]
    if spike:
        weights = [1000.0 if place == slots // 3 else 0.01 for place in range(slots)]
    timeline = _timeline(random, tasks, weights, slot, failing)
    counts = total([point.counts for point in timeline])
    last = timeline[-1]
    states = {"ready": last.ready, "taken": last.taken, "delayed": last.delayed, "buried": last.buried}
    by_lane = _lanes(random, counts, lanes, tubes, seconds)
    by_error = _failures(counts, by_lane, seconds)
    again = min(counts.acks, counts.retries)
    return Figures(
        version=12,
        upto=counts.events,
        begin=BEGIN,
        end=BEGIN + seconds,
        slot=slot,
        counts=counts,
        wait=spread(random, counts.takes, 0.8),
        run=spread(random, counts.acks + counts.fails, 0.12),
        timeline=timeline,
        tubes=_tubes(random, by_lane, states, tubes),
        lanes=by_lane,
        lane_total=lanes,
        failures=by_error,
        failure_total=len(by_error),
        attempts={1: counts.acks - again, 2: again - again // 5, 3: again // 5},
        outcomes={"success": counts.acks},
        open={state: number for state, number in states.items() if number},
    )


def _timeline(random: Random, tasks: int, weights: list[float], slot: float, failing: float) -> list[Point]:
    points: list[Point] = []
    ready = buried = put = 0
    grown = 0.0
    for place, weight in enumerate(weights):
        grown += weight
        due = tasks if place == len(weights) - 1 else round(tasks * grown / sum(weights))
        puts, put = due - put, due
        able = max(1, round(1.05 * tasks / len(weights)))
        takes = min(ready + puts, able)
        fails = sum(random.random() < failing for _ in range(min(takes, 400))) * max(1, takes // 400)
        dead = min(fails, fails // 4 + (fails % 4 > 2))
        acks = takes - fails
        ready += puts - takes + fails - dead
        buried += dead
        counts = Counts(
            events=puts + 2 * takes, puts=puts, takes=takes, retries=fails - dead, acks=acks, fails=fails, buried=dead
        )
        at = BEGIN + place * slot
        delayed = ready // 6
        wait, run = spread(random, takes, 0.05 + ready / 800), spread(random, acks + fails, 0.12)
        points.append(Point(at, counts, wait, run, ready - delayed, 0, delayed, buried))
    return points


def _lanes(random: Random, counts: Counts, lanes: int, tubes: int, seconds: float) -> list[LaneFigures]:
    weights = sorted((random.paretovariate(1.5) for _ in range(lanes)), reverse=True)
    whole = sum(weights)
    found = []
    for place, weight in enumerate(weights):
        share = weight / whole
        own = Counts(**{name: round(getattr(counts, name) * share) for name in Counts.__dataclass_fields__})
        lane = f"site-{place}.example" if lanes > 1 else None
        wait, run = spread(random, own.takes, 0.8), spread(random, own.acks, 0.1 + random.random())
        last = BEGIN + seconds
        found.append(LaneFigures(f"crawl{place % tubes or ''}", lane, own, share, wait, run, BEGIN, last))
    return found


def _tubes(random: Random, lanes: list[LaneFigures], states: dict[str, int], tubes: int) -> list[TubeFigures]:
    found = []
    for place in range(tubes):
        name = f"crawl{place or ''}"
        own = [lane for lane in lanes if lane.tube == name]
        acks = [lane.counts.acks for lane in own]
        squares = len(acks) * sum(number**2 for number in acks)
        fairness = sum(acks) ** 2 / squares if len(acks) > 1 and squares else None
        counts = total([lane.counts for lane in own])
        wait, run = spread(random, counts.takes, 0.8), spread(random, counts.acks, 0.12)
        held = states if place == 0 else dict.fromkeys(states, 0)
        found.append(TubeFigures(name, counts, wait, run, len(own), fairness, **held))
    return found


def _failures(counts: Counts, lanes: list[LaneFigures], seconds: float) -> list[Failure]:
    found = []
    left = counts.fails
    for name, fingerprint, example in ERRORS:
        number = (left + 1) // 2
        left -= number
        if number:
            buried, among = number // 4, min(number, len(lanes))
            last = BEGIN + seconds
            found.append(Failure("crawl", name, fingerprint, example, number, buried, among, BEGIN, last))
    return found


def nothing() -> Figures:
    """An empty lake."""
    return Figures(version=0, upto=0, begin=0, end=0, slot=1)


def single() -> Figures:
    """One task, done at once."""
    counts = Counts(events=3, puts=1, takes=1, acks=1)
    quick, at = Spread(1, 0.004, 0.004, 0.004, 0.004, 0.004), BEGIN + 0.25
    return Figures(
        version=1,
        upto=3,
        begin=at,
        end=at + 0.01,
        slot=1,
        counts=counts,
        wait=quick,
        run=quick,
        timeline=[Point(BEGIN, counts, quick, quick, 0, 0, 0, 0)],
        tubes=[TubeFigures("mails", counts, quick, quick, 1, None, 0, 0, 0, 0)],
        lanes=[LaneFigures("mails", None, counts, 1.0, quick, quick, at, at + 0.01)],
        lane_total=1,
        attempts={1: 1},
        outcomes={"success": 1},
    )
