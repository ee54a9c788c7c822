"""Replay: from the lake back into a tube, every task once.

What is to be put is written down first, in chunks, and a note in the queue says where. From then on a replay means the
same whatever happens to the lake. Each chunk is one job of `format("penstock")`, which is put once; so a replay that
was cut off goes on where it was, and one that is done does nothing.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.model import ops
from penstock.model.errors import DuplicateKey, UsageError
from penstock.pipeline import bronze, silver
from penstock.pipeline.lake import PLANS, Lake, Snapshot
from penstock.pipeline.queries import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engines import Engine

CHUNK = 100_000
LEDGER = "replay:"
FINISHED = "state IN ('done', 'buried')"
"""What no worker takes any more."""
SCHEMA = "first bigint, pri bigint, lane string, key string, data string, body binary"


@dataclass(frozen=True)
class Replay:
    """What a replay came to."""

    id: str
    tube: str
    tasks: int
    """How many lives were chosen."""
    put: int
    existing: int
    """Tasks that were not put because a live one has their key."""
    without_data: int = 0
    """Lives that were chosen but cannot be put: their tube had no history_data."""
    unfinished: int = 0
    """Lives that `where` means too, and that were left out: their tasks wait or run."""


def replay(
    spark: SparkSession,
    url: str,
    lake: Lake,
    tube: str,
    id: str,
    *,
    where: str = "true",
    unfinished: bool = False,
    chunk: int = CHUNK,
    dry_run: bool = False,
    tell: Callable[[int, int], None] = lambda done, all: None,
) -> Replay:
    """Put tasks again that the lake knows.

    url: where the queue is, as for format("penstock")
    tube: where to put them
    id: the replay's name; with the same one it goes on, and never puts a task twice
    where: SQL over the columns of silver.lives()
    unfinished: also tasks that wait or run, which are then there twice
    chunk: tasks of one transaction, about
    dry_run: only count
    tell: told how many chunks of how many are done
    """
    from penstock.spark.options import Options
    from penstock.spark.place import Place

    if not id:
        raise UsageError("a replay needs an id, a name by which it is known when it is started again")
    engine = Place(Options({"url": url, "tube": tube})).store()
    payload = engine.execute(ops.GetTube(tube)).payload
    plan = _plan(engine, id)
    if plan is None or dry_run:
        snapshot = lake.needed()
        meant = _chosen(spark, lake, snapshot, where)
        chosen = meant if unfinished else meant.where(FINISHED)
        counts = _counted(meant, unfinished)
        if dry_run or not counts["tasks"] - counts["without"]:
            _check_data(counts["tasks"], dry_run)
            return Replay(id, tube, counts["tasks"], 0, 0, counts["without"], counts["unfinished"])
        meaning = {"lake": snapshot.id, "tube": tube, "where": where, "all": unfinished}
        plan = _planned(spark, engine, lake, snapshot, chosen, id, {**meaning, **counts}, chunk)
    _check_same(plan, id, tube, where, unfinished, lake)
    for number in range(_done(engine, id), len(plan["chunks"])):
        tell(number, len(plan["chunks"]))
        _put_once(spark, engine, url, lake, plan, id, number, payload)
        with suppress(DuplicateKey):
            engine.execute(ops.WriteLedger(LEDGER + id, number + 1, ("{}",)))
    shutil.rmtree(lake.path(plan["path"]), ignore_errors=True)
    return _outcome(engine, plan, id)


def _chosen(spark: SparkSession, lake: Lake, snapshot: Snapshot, where: str) -> DataFrame:
    from pyspark.errors import AnalysisException, ParseException

    try:
        return silver.lives(spark, lake, snapshot).where(where)
    except (AnalysisException, ParseException) as error:
        told = next(filter(None, str(error).splitlines()), "")  # what cannot be parsed begins with an empty line
        columns = ", ".join(silver.lives(spark, lake, snapshot).columns)
        raise UsageError(f"where {where!r} cannot be used: {told}; there are {columns}") from None


def _counted(meant: DataFrame, unfinished: bool) -> dict[str, int]:
    chosen = "true" if unfinished else FINISHED
    found = meant.selectExpr(
        f"count_if({chosen}) AS tasks",
        f"count_if({chosen} AND data_seq IS NULL) AS without",
        f"count_if(NOT ({chosen})) AS unfinished",
    ).collect()[0]
    return dict(found.asDict())


def _check_data(tasks: int, dry_run: bool) -> None:
    if tasks and not dry_run:
        raise UsageError(
            f"the lake has no data of these {tasks} tasks: a tube keeps it in its history with history_data=True "
            "(`penstock alter TUBE --history-data yes`)"
        )


def _planned(
    spark: SparkSession,
    engine: Engine,
    lake: Lake,
    snapshot: Snapshot,
    chosen: DataFrame,
    id: str,
    meaning: dict[str, Any],
    chunk: int,
) -> dict[str, Any]:
    """Write down what is to be put; of two that do so at one time the first counts."""
    chunks = math.ceil((meaning["tasks"] - meaning["without"]) / chunk)
    path = lake.place(PLANS, 0, snapshot.upto)
    events = bronze.read(spark, lake, snapshot.of(bronze.TABLE))
    rows = spark.sql(query("replay"), lives=chosen, events=events)
    numbered = rows.repartitionByRange(chunks, "first").sortWithinPartitions("first")
    lake.table.write(numbered.selectExpr("*", "spark_partition_id() AS chunk"), lake.path(path), by="chunk")
    lake.keep([path])
    sizes = [lake.segment(PLANS, f"{path}/chunk={number}", 0, 0) for number in range(chunks)]
    used = lake.table.read(spark, [lake.path(path)], SCHEMA).selectExpr(
        "coalesce(bool_or(pri <> 0), false)", "coalesce(bool_or(lane IS NOT NULL), false)", "bool_or(key IS NOT NULL)"
    )
    names = [name for name, is_used in zip(("pri", "lane", "key"), used.collect()[0], strict=True) if is_used]
    counted = [0 if size is None else size.rows for size in sizes]
    note = json.dumps({**meaning, "path": path, "columns": names, "chunks": counted})
    try:
        engine.execute(ops.WriteLedger(LEDGER + id, 0, (note,)))
    except DuplicateKey:
        shutil.rmtree(lake.path(path), ignore_errors=True)
    found = _plan(engine, id)
    assert found is not None
    return found


def _plan(engine: Engine, id: str) -> dict[str, Any] | None:
    notes = engine.execute(ops.ReadLedger(LEDGER + id, limit=1))
    found: dict[str, Any] | None = json.loads(notes[0].text) if notes else None
    return found


def _done(engine: Engine, id: str) -> int:
    """How many chunks have been put."""
    notes = engine.execute(ops.LastNotes(LEDGER + id))
    return notes[0].number if notes else 0


def _check_same(plan: dict[str, Any], id: str, tube: str, where: str, unfinished: bool, lake: Lake) -> None:
    meaning = {"tube": tube, "where": where, "unfinished": unfinished, "lake": lake.needed().id}
    for name, given in meaning.items():
        begun = plan["all" if name == "unfinished" else name]
        if begun != given:
            raise UsageError(f"replay {id!r} was begun with {name} {begun!r}, not {given!r}; give this one another id")


def _put_once(
    spark: SparkSession,
    engine: Engine,
    url: str,
    lake: Lake,
    plan: dict[str, Any],
    id: str,
    number: int,
    payload: str,
) -> None:
    """Put a chunk. Another replay with this id may put it meanwhile, and remove what is read here when it is done."""
    from penstock.spark import jobs

    try:
        _put(spark, url, lake, plan, id, number, payload)
    except Exception:
        if jobs.outcome(engine, _job(id, number)) is None:
            raise


def _put(spark: SparkSession, url: str, lake: Lake, plan: dict[str, Any], id: str, number: int, payload: str) -> None:
    path = lake.root / plan["path"] / f"chunk={number}"
    if not plan["chunks"][number]:
        return
    if not path.exists():
        raise UsageError(f"chunk {number} of replay {id!r} is gone from {path}: begin another one, with another id")
    data = "body" if payload == "bytes" else "data"
    rows = lake.table.read(spark, [str(path)], SCHEMA).coalesce(1).sortWithinPartitions("first")
    writer = rows.select(data, *plan["columns"]).write.format("penstock").mode("append")
    writer.options(url=url, tube=plan["tube"], jobId=_job(id, number), onConflict="ignore").save()


def _job(id: str, number: int) -> str:
    return f"{LEDGER}{id}:{number}"


def _outcome(engine: Engine, plan: dict[str, Any], id: str) -> Replay:
    from penstock.spark import jobs

    outcomes = [jobs.outcome(engine, _job(id, number)) for number in range(len(plan["chunks"]))]
    put = sum(outcome.new for outcome in outcomes if outcome is not None)
    existing = sum(outcome.existing for outcome in outcomes if outcome is not None)
    return Replay(id, plan["tube"], plan["tasks"], put, existing, plan["without"], plan["unfinished"])
