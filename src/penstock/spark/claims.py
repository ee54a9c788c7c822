"""Tasks as a stream: micro-batches of leased tasks, for `spark.readStream`.

An offset is a place in the stream's claim log (claim_log.py). Spark says in `latestOffset(start)` that everything up to
`start` is done, and it is the only place where it says so for the last batch too; that is where leases end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.engines import arrow
from penstock.engines.scan import id_text
from penstock.model import ops
from penstock.model.duration import SECOND
from penstock.model.errors import DuplicateKey
from penstock.model.task import Record
from penstock.spark.claim_log import Claim, ClaimLog, claims
from penstock.spark.options import Options
from penstock.spark.patience import Idle, patiently
from penstock.spark.place import Place
from penstock.spark.reading import columns_of, ranges
from penstock.spark.schemas import chosen

KNOWN = (
    *("url", "tube", "feed", "columns", "streamId", "maxTasksPerTrigger", "lease", "pollInterval", "claimRetention"),
    "numPartitions",
)
MOST = 100_000
"""Tasks of a batch whose size nobody limits: what a batch holds, nobody else can take."""
HELD = 10_000
"""Tasks that a run of availableNow keeps from itself before it ends."""
PART = 1000
"""A partition with fewer claims is not worth a task."""
TRIM_EVERY = 60.0
R = TypeVar("R")


class ClaimRange(InputPartition):
    """Claims after `lo`, up to and including `hi`, without those that are void."""

    def __init__(self, lo: int, hi: int, void: Sequence[int]) -> None:
        super().__init__((lo, hi))
        self.lo = lo
        self.hi = hi
        self.void = frozenset(void)


class TaskStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Claims tasks of a tube, batch by batch.

    Spark makes one of these to plan batches, in a process that lives as long as the query, and others to read: only
    the first one attaches itself to the stream.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_known(*KNOWN)
        self._place = Place(options)
        self._tube = options.tube
        options.needed("streamId")
        self._stream = str(options.name("streamId"))
        self._columns = columns_of("claims", schema)
        self._limit = options.number("maxTasksPerTrigger", 10_000)
        self._lease = max(1, int(options.seconds("lease", 60) * SECOND))
        self._idle = Idle(options.seconds("pollInterval", 0.5))
        self._retention = int(options.seconds("claimRetention", 24 * 3600) * SECOND)
        self._number = options.number("numPartitions", 0)
        self._log: ClaimLog | None = None
        self._run: Run | None = None
        self._verified = False
        self._trimmed_at = float("-inf")

    def _attached(self) -> ClaimLog:
        if self._log is None:
            self._log = ClaimLog(self._place.store(), self._stream, self._tube, self._lease)
        return self._log

    # -- what Spark calls where it plans -------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit)

    def initialOffset(self) -> dict[str, int]:
        """A new query begins where leases end: what an earlier one claimed and did not finish comes again."""
        return {"seq": self._patiently(lambda: self._attached().acked)}

    def prepareForTriggerAvailableNow(self) -> None:
        self._run = self._patiently(
            lambda: Run(self._attached(), self._place.store().execute(ops.GetExtent(self._tube)))
        )

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"seq": self._patiently(lambda: self._latest(start["seq"], _rows(limit)))}

    def reportLatestOffset(self) -> dict[str, int] | None:
        return None if self._log is None else {"seq": self._log.last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._patiently(lambda: self._ranges(start["seq"], end["seq"]))

    def commit(self, end: dict[str, int]) -> None:
        self._patiently(lambda: self._attached().ack(end["seq"]))

    # -- what that means -----------------------------------------------------------------------------

    def _patiently(self, call: Callable[[], R]) -> R:
        def last_word() -> R:
            try:
                return call()
            except DuplicateKey:
                # The query before this one was about to write when this one attached itself. What it claimed is
                # delivered here, and it writes no more.
                self._attached().reload()
                return call()

        return patiently(last_word, lambda: None if self._log is None else self._log.reload())

    def _latest(self, start: int, number: int) -> int:
        log = self._attached()
        if not self._verified:
            log.check_offset(start)
            log.void_lost(start)
            self._verified = True
        log.ack(start)
        self._forget(log)
        if log.last > start:  # claimed before a crash, and in no batch yet
            return min(log.last, start + number)
        if self._run is not None:
            self._run.take(number)
        elif not self._idle.is_resting:
            found, _ = log.take(number)
            self._idle.found(bool(found))
        return min(log.last, start + number)

    def _forget(self, log: ClaimLog) -> None:
        if time.monotonic() - self._trimmed_at >= TRIM_EVERY:
            self._trimmed_at = time.monotonic()
            log.trim(self._retention)

    def _ranges(self, start: int, end: int) -> list[ClaimRange]:
        if start == end:
            return []
        log = self._attached()
        log.check_offset(start)
        void = log.voided(start, end)
        number = self._number or max(1, min(8, (end - start) // PART))
        return [
            ClaimRange(part.lo, part.hi, [n for n in void if part.lo < n <= part.hi])
            for part in ranges(start + 1, end, number)
        ]

    # -- what Spark calls where rows are read ----------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, as they were claimed."""
        if not isinstance(partition, ClaimRange):  # Spark puts one of its own in the place of none
            return
        kinds = chosen("claims", self._columns)
        for page in claims(self._place.store(), self._stream, partition.lo, partition.hi):
            rows = [claim for claim in page if claim.number not in partition.void]
            yield arrow.from_columns(kinds, [[_value(claim, name) for claim in rows] for name in kinds])


class Run:
    """One run of availableNow: what is there when it begins, each task once, so it ends.

    What was put later, or comes back after a retry, is kept out of the way until the run has ended.
    """

    def __init__(self, log: ClaimLog, extent: tuple[int, int] | None) -> None:
        self._log = log
        self._highest = -1 if extent is None else extent[1]
        self._claimed = Numbers()
        self._looked: list[int] = []
        self._held: list[ops.Lease] = []
        self._over = extent is None

    def take(self, number: int) -> int:
        """Claim up to this many tasks; answers how many, 0 when the run is over."""
        while not self._over:
            self._looked = []
            found, others = self._log.take(number, self._is_wanted)
            # Not before: what a call has leased that failed comes again.
            self._claimed.update(self._looked)
            self._held += others
            self._over = not found and (not others or len(self._held) >= HELD)
            if found:
                return found
        self._log.give_back(self._held)
        self._held = []
        return 0

    def _is_wanted(self, record: Record) -> bool:
        wanted = record.seq <= self._highest and record.seq not in self._claimed
        if wanted:
            self._looked.append(record.seq)
        return wanted


class Numbers:
    """A set of numbers that mostly follow each other, in little room.

    >>> seen = Numbers()
    >>> seen.update([7, 1_000_000, -3])
    >>> [number in seen for number in (7, 8, 1_000_000, -3, 2)]
    [True, False, True, True, False]
    """

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def update(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._bits[number >> 10] = self._bits.get(number >> 10, 0) | 1 << (number & 1023)

    def __contains__(self, number: int) -> bool:
        return bool(self._bits.get(number >> 10, 0) >> (number & 1023) & 1)


def _rows(limit: ReadLimit) -> int:
    if isinstance(limit, ReadMaxRows):
        return min(MOST, limit.max_rows)
    assert isinstance(limit, ReadAllAvailable), limit
    return MOST


def _value(claim: Claim, name: str) -> Any:
    """A column of a row; moments and durations stay whole microseconds."""
    record = claim.record
    if name == "claim":
        return claim.number
    if name == "data":
        return record.data if isinstance(record.data, str) else None
    if name == "body":
        return record.data if isinstance(record.data, bytes) else None
    value = getattr(record, name)
    return id_text(value) if name == "id" else value
