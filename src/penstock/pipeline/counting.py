"""From gold to figures: rows of all steps are added up by Spark, and what is left is small."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.pipeline import bronze, gold, silver
from penstock.pipeline.figures import Counts, Failure, Figures, LaneFigures, Point, Spread, TubeFigures
from penstock.pipeline.lake import Lake, Snapshot
from penstock.pipeline.queries import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SECOND = 1_000_000
POINTS, FEWEST = 120, 24
LANES = 1000
ERRORS = 200
MOST_TAKES = 20
"""Tasks that were taken so often or more are counted together."""
STATES = ("ready", "taken", "delayed", "buried")
_MS, _HOUR, _DAY = 1000, 3600 * SECOND, 86_400 * SECOND
SLOTS = (
    *(n * _MS for n in (10, 20, 50, 100, 200, 500)),
    *(n * SECOND for n in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 28, 91, 365, 3650)),
)
"""How long a point of the timeline may be; from a minute on they are whole minutes, as gold has them."""


def figures_of(spark: SparkSession, lake: Lake, snapshot: Snapshot, tube: str | None = None) -> Figures:
    """The figures of a version."""
    by_time = _of(gold.read(spark, lake, snapshot, gold.BY_TIME), tube)
    begin, end, events = spark.sql("SELECT min(first), max(last), sum(n) FROM {rows}", rows=by_time).collect()[0]
    if begin is None:
        return Figures(snapshot.version, snapshot.upto, 0.0, 0.0, 1.0)
    slot = slot_for(end - begin, events)
    if slot < gold.MINUTE:
        # A short history is small enough to count anew, finer than gold has it.
        raw = _of(bronze.read(spark, lake, snapshot.of(bronze.TABLE)), tube)
        by_time = spark.sql(gold.counts(gold.GROWTH[gold.BY_TIME], slot, lanes=False), events=raw)
    by_time = by_time.withColumn("slot", _aligned(slot))
    counts = _counted(spark, by_time, ("slot", "tube"))
    by_tube = _spreads(spark, by_time, ("tube",), gold.BY_TIME)
    lanes, lane_total, fairness = _lanes(spark, _of(gold.read(spark, lake, snapshot, gold.BY_LANE), tube))
    failures, failure_total = _failures(spark, _of(gold.read(spark, lake, snapshot, gold.FAILURES), tube))
    attempts, outcomes, alive = _ends(_of(silver.lives(spark, lake, snapshot), tube))
    whole = _spreads(spark, by_time.withColumn("whole", by_time.slot * 0), ("whole",), gold.BY_TIME).get((0,), {})
    return Figures(
        snapshot.version,
        snapshot.upto,
        begin / SECOND,
        end / SECOND,
        slot / SECOND,
        _sum(rows for rows in counts.values()),
        whole.get("wait"),
        whole.get("run"),
        _timeline(counts, _spreads(spark, by_time, ("slot",), gold.BY_TIME), begin, end, slot),
        _tubes(counts, by_tube, fairness),
        lanes,
        lane_total,
        failures,
        failure_total,
        attempts,
        outcomes,
        alive,
    )


def slot_for(wide: int, events: int) -> int:
    """How long a point of the timeline is. Few events make few points: many would be empty or hold one."""
    points = min(POINTS, max(FEWEST, events // 4))
    return next((it for it in SLOTS if wide / it <= points), SLOTS[-1])


def _of(rows: DataFrame, tube: str | None) -> DataFrame:
    return rows if tube is None else rows.where(rows.tube == tube)


def _aligned(slot: int) -> Any:
    from pyspark.sql import functions as f

    return f.expr(f"slot - pmod(slot, {slot}L)")


Key = tuple[Any, ...]
Rows = list[Any]


def _counted(spark: SparkSession, rows: DataFrame, keys: Sequence[str]) -> dict[Key, Rows]:
    """How often each change happened, for each value of the keys."""
    found: dict[Key, Rows] = defaultdict(list)
    for row in spark.sql(query("changes", keys=", ".join(keys)), rows=rows).collect():
        found[tuple(row[name] for name in keys)].append(row)
    return found


def _spreads(spark: SparkSession, rows: DataFrame, keys: Sequence[str], table: str) -> dict[Key, dict[str, Spread]]:
    """Percentiles of waits and runs, for each value of the keys."""
    growth = gold.GROWTH[table]
    found: dict[Key, dict[str, Spread]] = defaultdict(dict)
    for row in spark.sql(query("spread", keys=", ".join(keys)), rows=rows).collect():
        found[tuple(row[name] for name in keys)]["wait" if row.is_wait else "run"] = _spread(row, growth)
    return found


def _spread(row: Row, growth: float) -> Spread:
    longest = row.longest / SECOND

    def middle(bucket: int) -> float:
        return 0.0 if bucket < 0 else min(longest, 2 * growth**bucket / (growth + 1) / SECOND)

    return Spread(row.total, row.us / row.total / SECOND, middle(row.p50), middle(row.p90), middle(row.p99), longest)


def _sum(groups: Iterable[Rows]) -> Counts:
    """Rows of changes as counts."""
    total: dict[str, int] = defaultdict(int)
    for row in (row for rows in groups for row in rows):
        for name in _names(row):
            total[name] += row.n
    return Counts(**total)


_NAMES = {
    "put": "puts",
    "replace": "puts",
    "take": "takes",
    "ack": "acks",
    "fail": "fails",
    "ttr": "lost",
    "release": "releases",
    "kick": "kicks",
    "ttl": "expired",
    "cancel": "cancelled",
    "delete": "deleted",
}


def _names(row: Row) -> Iterable[str]:
    yield "events"
    if row.event == "release" and row.reason == "lost":
        yield "lost"
    elif row.event in _NAMES:
        yield _NAMES[row.event]
    if row.event == "take" and row.again:
        yield "retries"
    if row.to_state == "buried" and row.from_state != "buried":
        yield "buried"


def _moved(rows: Rows, into: dict[str, int]) -> None:
    """Add to how many tasks there are in each state what the changes did to it."""
    for row in rows:
        into[row.to_state] += row.n
        if row.from_state is not None:
            into[row.from_state] -= row.n


def _timeline(
    counts: dict[Key, Rows], spreads: dict[Key, dict[str, Spread]], begin: int, end: int, slot: int
) -> list[Point]:
    by_slot: dict[int, list[Rows]] = defaultdict(list)
    for (at, _), rows in counts.items():
        by_slot[at].append(rows)
    there: dict[str, int] = defaultdict(int)
    points = list[Point]()
    for at in range(begin - begin % slot, end + 1, slot):
        for rows in by_slot[at]:
            _moved(rows, there)
        known = spreads.get((at,), {})
        points.append(Point(at / SECOND, _sum(by_slot[at]), known.get("wait"), known.get("run"), *_alive(there)))
    return points


def _alive(there: dict[str, int]) -> list[int]:
    # Tasks that were there before the tube had a history leave states that they were never seen to enter.
    return [max(0, there[state]) for state in STATES]


def _tubes(
    counts: dict[Key, Rows], spreads: dict[Key, dict[str, Spread]], fairness: dict[str, tuple[int, float | None]]
) -> list[TubeFigures]:
    by_tube: dict[str, list[Rows]] = defaultdict(list)
    for (_, tube), rows in counts.items():
        by_tube[tube].append(rows)
    found = list[TubeFigures]()
    for tube, groups in sorted(by_tube.items()):
        there: dict[str, int] = defaultdict(int)
        for rows in groups:
            _moved(rows, there)
        times = spreads.get((tube,), {})
        found.append(
            TubeFigures(
                tube,
                _sum(groups),
                times.get("wait"),
                times.get("run"),
                *fairness.get(tube, (0, None)),
                *_alive(there),
            )
        )
    return found


def _lanes(spark: SparkSession, rows: DataFrame) -> tuple[list[LaneFigures], int, dict[str, tuple[int, float | None]]]:
    """The lanes with most events, how many there are, and for each tube how many and how even."""
    totals = spark.sql(query("lanes"), rows=rows)
    even = spark.sql(query("fairness"), lanes=totals).collect()
    top = totals.orderBy("n", "tube", "lane", ascending=[False, True, True]).limit(LANES).collect()
    if not top:
        return [], 0, {}
    wanted = spark.createDataFrame([(row.tube, row.lane) for row in top], "tube string, lane string")
    chosen = spark.sql(query("chosen"), rows=rows, wanted=wanted)
    counts, times = _counted(spark, chosen, ("tube", "lane")), _spreads(spark, chosen, ("tube", "lane"), gold.BY_LANE)
    acks = {row.tube: row.acks for row in even}
    lanes = [
        LaneFigures(
            row.tube,
            row.lane,
            _sum([counts[row.tube, row.lane]]),
            row.acks / acks[row.tube] if acks[row.tube] else 0.0,
            times.get((row.tube, row.lane), {}).get("wait"),
            times.get((row.tube, row.lane), {}).get("run"),
            row.first / SECOND,
            row.last / SECOND,
        )
        for row in top
    ]
    fairness = {row.tube: (row.lanes, row.jain if row.lanes > 1 else None) for row in even}
    return lanes, sum(row.lanes for row in even), fairness


def _failures(spark: SparkSession, rows: DataFrame) -> tuple[list[Failure], int]:
    kinds = spark.sql(query("kinds"), rows=rows).cache()
    try:
        top = kinds.orderBy("n", "tube", "fingerprint", ascending=[False, True, True]).limit(ERRORS).collect()
        total = len(top) if len(top) < ERRORS else kinds.count()
    finally:
        kinds.unpersist()
    found = [
        Failure(
            row.tube,
            row.error_class,
            row.fingerprint,
            row.example,
            row.n,
            row.buried,
            row.lanes,
            row.first / SECOND,
            row.last / SECOND,
        )
        for row in top
    ]
    return found, total


def _ends(lives: DataFrame) -> tuple[dict[int, int], dict[str, int], dict[str, int]]:
    """Of tasks that ended how often they were taken, and why they ended; of others their state."""
    attempts: dict[int, int] = defaultdict(int)
    outcomes: dict[str, int] = defaultdict(int)
    alive: dict[str, int] = defaultdict(int)
    groups = lives.selectExpr("state", "reason", f"least(takes, {MOST_TAKES}L) AS takes").groupBy(
        "state", "reason", "takes"
    )
    for row in groups.count().collect():
        number = row["count"]
        if row.state == "done":
            attempts[row.takes] += number
            outcomes[row.reason or "unseen"] += number
        else:
            alive[row.state] += number
    return dict(sorted(attempts.items())), dict(outcomes), dict(alive)
