"""Tubes that are made and dropped while others look at all of them."""

from __future__ import annotations

import threading

import penstock
from penstock.model import ops

TUBES = 25


def test_who_looks_at_all_tubes_does_not_stumble_over_those_that_are_dropped_meanwhile(place):
    failures: list[Exception] = []

    def churn(name: str) -> None:
        with penstock.connect(place) as q:
            for n in range(TUBES):
                tube = q.create_tube(f"{name}-{n}")
                tube.put(n, delay=60)
                tube.drop(force=True)

    def look() -> None:
        with penstock.connect(place) as q:
            while any(thread.is_alive() for thread in churning):
                try:
                    q._engine.execute(ops.GetStatistics())
                    q._engine.execute(ops.Tick())
                except Exception as error:
                    failures.append(error)

    churning = [threading.Thread(target=churn, args=(name,)) for name in ("one", "two")]
    looking = threading.Thread(target=look)
    for thread in (*churning, looking):
        thread.start()
    for thread in (*churning, looking):
        thread.join()
    assert failures == []
