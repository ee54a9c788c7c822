"""Steps until the lake has all there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.compact import compact, is_worth_it
from penstock.pipeline.lake import Lake
from penstock.pipeline.step import EVENTS, step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Run:
    """What a run has done."""

    version: int
    upto: int
    events: int
    purged: int
    steps: int


def run(
    spark: SparkSession,
    url: str,
    lake: Lake,
    *,
    limit: int = EVENTS,
    purge: bool = False,
    tell: Callable[[int], None] = lambda events: None,
) -> Run:
    """Bring all events that a queue has into its lake; those that come meanwhile are for the next run.

    url, limit, purge: as for step()
    tell: told the number of events so far
    """
    events = purged = steps = 0
    while True:
        done = step(spark, url, lake, limit=limit, purge=purge)
        events += done.events
        purged += done.purged
        steps += done.events > 0
        tell(events)
        if done.events < limit:
            break
    if steps and is_worth_it(lake):
        compact(spark, lake)
    return Run(done.version, done.upto, events, purged, steps)
