"""Reading a queue as a DataFrame: tasks, events, results.

What is read is planned once for each load(): ranges of seq, up to the last one there was then. A seq is given once, so
whatever happens to tasks meanwhile, each is read once. A range is one look at the store, by the engine's own scan.

There is no pushFilters: Spark keeps what one query has pushed for the next one on the same DataFrame, which then lacks
rows. Options choose rows and columns instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.engines import Engine
from penstock.engines.scan import Scan
from penstock.model import ops
from penstock.model.errors import UsageError
from penstock.model.state import State
from penstock.spark import schemas
from penstock.spark.collector import spare_modules
from penstock.spark.options import Options
from penstock.spark.place import Place

PARTITIONS = 8
SMALLEST = 10_000
"""A partition is not worth its own connection below this, unless numPartitions says so."""
FINER = 10
MARKS = 1000
ENDED = (State.DONE.value, State.BURIED.value)
READS = ("url", "tube", "feed", "columns", "numPartitions", "states", "lanes", "since", "until")
KNOWN = {"tasks": READS, "results": READS, "events": (*READS, "fromSeq", "toSeq")}


class Range(InputPartition):
    """Seqs after `lo`, up to and including `hi`."""

    def __init__(self, lo: int, hi: int) -> None:
        super().__init__((lo, hi))
        self.lo = lo
        self.hi = hi


class Reader(DataSourceReader):
    """Reads a feed. Made where the query is planned, used where partitions are read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_known(*KNOWN[options.feed])
        self._feed = options.feed
        self._place = Place(options)
        self._number = options.number("numPartitions", 0)
        self._scan = scan_of(options, columns_of(options.feed, schema))

    def partitions(self) -> Sequence[Range]:
        """Ranges of seq that follow each other."""
        with self._place.borrowed() as store:
            return event_ranges(store, self._scan, self._number) if self._feed == "events" else self._task_ranges(store)

    def _task_ranges(self, store: Engine) -> list[Range]:
        tube = str(self._scan.tube)
        extent = store.execute(ops.GetExtent(tube))
        if extent is None:
            return []
        # Rows of a table of the user's are found from its beginning alone.
        adopted = store.execute(ops.GetTube(tube)).adopted is not None
        return ranges(*extent, 1 if adopted else self._number)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range."""
        spare_modules()
        if isinstance(partition, Range):  # Spark puts one of its own in the place of none
            yield from self._place.scan(self._scan._replace(lo=partition.lo, hi=partition.hi))


def columns_of(feed: str, schema: StructType) -> tuple[str, ...]:
    """The columns of `.schema(..)`, which may leave some out but not change them."""
    known = schemas.chosen(feed, schema.names)
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind != known[field.name]:
            raise UsageError(
                f"column {field.name!r} is {known[field.name]}, not {kind}; cast() changes it after the read"
            )
    return tuple(known)


def scan_of(options: Options, columns: tuple[str, ...]) -> Scan:
    """What options ask for."""
    feed, states = options.feed, options.listed("states")
    if feed == "results":
        if others := [state for state in states or () if state not in ENDED]:
            raise UsageError(
                f"feed 'results' has tasks that are {' or '.join(ENDED)}, not {others[0]!r}; feed 'tasks' has all"
            )
        states = states or ENDED
    hi = options.number("toSeq", 0, 0) if options.text("toSeq") is not None else None
    return Scan(
        "events" if feed == "events" else "tasks",
        options.text("tube") or None if feed == "events" else options.tube,
        columns,
        options.number("fromSeq", 0, 0),
        hi,
        states,
        options.listed("lanes"),
        options.moment("since"),
        options.moment("until"),
        by_end=feed == "results",
    ).check()


def ranges(first: int, last: int, number: int = 0) -> list[Range]:
    """Equal parts of the seqs from first to last; as many as are worth it unless a number is given.

    >>> [part.value for part in ranges(1, 10, 3)]
    [(0, 3), (3, 6), (6, 10)]
    """
    width = last - first + 1
    number = min(width, number or max(1, min(PARTITIONS, width // SMALLEST)))
    bounds = [first - 1 + width * i // number for i in range(number + 1)]
    return [Range(lo, hi) for lo, hi in pairwise(bounds)]


def event_ranges(store: Engine, scan: Scan, number: int = 0) -> list[Range]:
    """Parts of the history with about as many events each. All of it is complete: nothing can appear there later."""
    every = SMALLEST
    marks = _marks(store, scan, every)
    while number > len(marks) > 0 and every > 1:
        every //= FINER
        marks = _marks(store, scan, every)
    number = min(len(marks), number or PARTITIONS)
    bounds = [scan.lo, *(marks[len(marks) * i // number - 1] for i in range(1, number + 1))]
    return [Range(lo, hi) for lo, hi in pairwise(bounds)]


def _marks(store: Engine, scan: Scan, every: int) -> list[int]:
    marks: list[int] = []
    while True:
        after = marks[-1] if marks else scan.lo
        page = store.execute(ops.MarkHistory(after, every, MARKS, scan.tube, scan.hi))
        marks += page
        if len(page) < MARKS:
            return marks
