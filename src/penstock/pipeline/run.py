"""Steps until the lake has all there is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.errors import EngineUnavailable
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
    held_by: str | None = None
    """Who reads the feed and keeps events from being forgotten that are in the lake."""


def run(
    spark: SparkSession,
    url: str,
    lake: Lake,
    *,
    limit: int = EVENTS,
    purge: bool = False,
    allow_loss: bool = False,
    tell: Callable[[int], None] = lambda events: None,
) -> Run:
    """Bring all events that a queue has into its lake; those that come meanwhile are for the next run.

    url, limit, purge, allow_loss: as for step()
    tell: told the number of events so far
    """
    events = purged = steps = 0
    while True:
        done = step(spark, url, lake, limit=limit, purge=purge, allow_loss=allow_loss)
        events += done.events
        purged += done.purged
        steps += done.events > 0
        tell(events)
        if done.events < limit:
            break
    if steps and is_worth_it(lake):
        compact(spark, lake)
    return Run(done.version, done.upto, events, purged, steps, done.held_by)


def keep_on(
    once: Callable[[], object],
    pause: float,
    tell: Callable[[EngineUnavailable], None],
    wait: Callable[[float], object] = lambda seconds: threading.Event().wait(seconds),
) -> None:
    """Do something again and again, also after a queue did not answer; every other error ends it.

    tell: told of a queue that does not answer
    """
    while True:
        try:
            once()
        except Exception as error:
            if (found := unavailable(error)) is None:
                raise
            tell(found)
        wait(pause)


def unavailable(error: Exception) -> EngineUnavailable | None:
    """The error of a queue that does not answer; Spark tells it as the text of an error of its own.

    >>> unavailable(RuntimeError("Job aborted: penstock.model.errors.EngineUnavailable: no answer\\nat java"))
    EngineUnavailable('no answer')
    >>> unavailable(ValueError("no")) is None
    True
    """
    if isinstance(error, EngineUnavailable):
        return error
    _, name, text = str(error).partition(f"{EngineUnavailable.__name__}: ")
    return EngineUnavailable(text.splitlines()[0]) if name else None
