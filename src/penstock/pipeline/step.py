"""One step: events that are not in the lake yet become bronze, silver and gold, all in one version.

The lake's own log says where to go on, so a step that was cut off anywhere is simply made again. Of two steps at one
time one publishes; the other throws its files away and looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.model import ops
from penstock.model.errors import UsageError
from penstock.model.ledger import FORGOTTEN
from penstock.pipeline import bronze, gold, silver
from penstock.pipeline.lake import Lake, Snapshot, discard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engines import Engine
    from penstock.spark.place import Place

EVENTS = 2_000_000
"""Of one step, at most."""
TRIES = 20


@dataclass(frozen=True)
class Step:
    """What a step has done. Nothing new: version and upto are those of the lake, and events is 0."""

    version: int
    upto: int
    events: int
    purged: int = 0
    held_by: str | None = None
    """Who reads the feed and keeps events from being forgotten that are in the lake."""


def step(
    spark: SparkSession,
    url: str,
    lake: Lake,
    *,
    limit: int = EVENTS,
    purge: bool = False,
    allow_loss: bool = False,
    at: Callable[[str], None] = lambda stage: None,
) -> Step:
    """Bring the next events of a queue into its lake.

    url: where the queue is, as for format("penstock"): no password in it, env:NAME or file:PATH instead
    limit: how many events, at most
    purge: forget events in the queue that are in the lake and that no other reader of the feed needs
    allow_loss: go on although events were removed from the queue before they were in the lake
    at: told of every stage that was reached; what it raises ends the step
    """
    from penstock.spark.options import Options
    from penstock.spark.place import Place

    place = Place(Options({"url": url, "feed": "events"}))
    engine = place.store()
    for _ in range(TRIES):
        before = _beginning(engine, lake, allow_loss)
        marks = engine.execute(ops.MarkHistory(before.upto, limit, 1))
        if not marks:
            return _after(engine, Step(before.version, before.upto, 0), before, purge)
        taken = _apply(spark, place, lake, before, marks[0], at)
        if taken is not None:
            at("published")
            return _after(engine, taken[0], taken[1], purge)
    raise UsageError(f"{lake.root} was changed {TRIES} times while this step worked; let fewer write to one lake")


def _beginning(engine: Engine, lake: Lake, allow_loss: bool) -> Snapshot:
    """The version to go on from. The queue keeps a note of the lake, by which the two know each other."""
    from penstock.spark import feeds

    lake.begin()
    known, forgotten = feeds.position(engine, consumer(lake.snapshot()), -1), _forgotten(engine)
    # Read after these, which follow a version that is published.
    snapshot = lake.snapshot()
    if known < 0 and snapshot.upto:
        raise UsageError(
            f"{lake.root} holds the history of another queue, up to {snapshot.upto}, or of one that was told to forget "
            "it; name the queue it was made from, or another directory"
        )
    if known > snapshot.upto:
        raise UsageError(
            f"{lake.root} ends at {snapshot.upto}, but it was at {known} before: it is an old copy, and events between "
            "may be gone; bring back the newer one, or begin a lake in another directory"
        )
    if forgotten > snapshot.upto > 0 and not allow_loss:
        raise UsageError(
            f"{lake.root} ends at event {snapshot.upto}, and the queue was told to forget events up to {forgotten} "
            "before they were in the lake; go on without them by --allow-loss (allow_loss=True)"
        )
    _check_same_history(engine, lake, snapshot)
    if known < 0:
        feeds.advance(engine, consumer(snapshot), 0)
    return snapshot


def _forgotten(engine: Engine) -> int:
    """Up to which event the history was forgotten."""
    notes = engine.execute(ops.LastNotes(FORGOTTEN))
    return notes[0].number if notes else 0


def _check_same_history(engine: Engine, lake: Lake, snapshot: Snapshot) -> None:
    """The queue has the event at which the lake ends, or had it."""
    there = brief(engine, snapshot.upto)
    if there == snapshot.last or (not there and _forgotten(engine) >= snapshot.upto):
        return
    raise UsageError(
        f"the queue has no event {snapshot.upto} like the last one in {lake.root}: it was restored from a backup that "
        "is older than the lake; begin a lake in another directory"
    )


def brief(engine: Engine, seq: int) -> str:
    """An event of the history, shortly; empty if it is not there."""
    found = engine.execute(ops.ReadHistory(after=seq - 1, limit=1, upto=seq))
    return " ".join(str(it) for row in found for it in (row.at, row.tube, row.task_id, row.event, row.attempt))


def consumer(snapshot: Snapshot) -> str:
    """What the queue calls the lake."""
    return f"lake:{snapshot.id}"


def _apply(
    spark: SparkSession, place: Place, lake: Lake, before: Snapshot, hi: int, at: Callable[[str], None]
) -> tuple[Step, Snapshot] | None:
    """Write and publish (before.upto, hi]; None if somebody else was faster."""
    lo, last = before.upto, brief(place.store(), hi)
    at("begun")
    raw = bronze.write(spark, lake, place, lo, hi)
    at("bronze")
    events = bronze.read(spark, lake, raw)
    with ThreadPoolExecutor(2) as pool:  # small steps are mostly waiting for Spark to plan
        folding = pool.submit(silver.write, spark, lake, before, events, lo, hi)
        counted = gold.write(spark, lake, events, lo, hi)
        settled, replaced = folding.result()
    at("written")
    added = [*raw, *settled, *counted]
    base = before
    while not lake.publish(after := base.with_segments(added, replaced, hi, last), added):
        base = lake.snapshot()
        if base.upto != before.upto or not set(replaced) <= set(base.segments):
            discard(lake, added)
            return None
        # It was no step but a compaction, which this one does not depend on.
    return Step(after.version, after.upto, sum(segment.rows for segment in raw)), after


def _after(engine: Engine, step: Step, snapshot: Snapshot, purge: bool) -> Step:
    """Tell the queue how far the lake is, and forget what nobody needs any more."""
    from penstock.spark import feeds

    feeds.advance(engine, consumer(snapshot), snapshot.upto)
    if not purge:
        return step
    slowest, position = min(feeds.positions(engine).items(), key=lambda it: it[1])
    upto = min(snapshot.upto, position)
    purged = engine.execute(ops.ForgetHistory(upto)) if upto > 0 else 0
    return replace(step, purged=purged, held_by=slowest if upto < snapshot.upto else None)
