"""Events as a stream: every state change of tubes with history=True, in order, none left out.

An offset is the seq of an event. The history is a log, so any batch can be read again. Only what is complete is
planned: on PostgreSQL a transaction that commits late has events with lower seqs than others that can be seen already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.engines import Engine
from penstock.model import ops
from penstock.model.errors import UsageError
from penstock.model.ledger import FORGOTTEN
from penstock.spark import feeds
from penstock.spark.options import Options
from penstock.spark.patience import Idle, patiently
from penstock.spark.place import Place
from penstock.spark.reading import Range, columns_of, event_ranges, scan_of

KNOWN = (
    *("url", "tube", "feed", "columns", "states", "lanes", "since", "until", "fromSeq", "numPartitions"),
    *("streamId", "maxEventsPerTrigger", "pollInterval", "failOnDataLoss"),
)
Offset = dict[str, int]
"""`seq`: up to here. `gone`: up to where events had been removed when the batch was planned, if that matters."""


class EventStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the history on from where it was.

    With a streamId its position is written down, and what forgets events can ask for it (feeds.py).
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_known(*KNOWN)
        self._place = Place(options)
        self._scan = scan_of(options, columns_of("events", schema))
        self._name = options.name("streamId")
        self._limit = options.number("maxEventsPerTrigger", 1_000_000)
        self._number = options.number("numPartitions", 0)
        self._idle = Idle(options.seconds("pollInterval", 0.5))
        self._loss = options.choice("failOnDataLoss", ("true", "false"), "true") == "true"
        self._clear = -1
        """Up to here this process has seen that nothing which follows its offset is of its tube."""
        self._cap: int | None = None
        self._position = self._latest = -1

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit)

    def initialOffset(self) -> Offset:
        return {"seq": self._scan.lo}

    def prepareForTriggerAvailableNow(self) -> None:
        """Events that come later are for the next run."""
        last = patiently(lambda: self._place.store().execute(ops.MarkHistory(every=0, tube=self._scan.tube)))
        self._cap = last[0] if last else 0

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        return patiently(lambda: self._end(start, rows))

    def _end(self, begin: Offset, rows: int) -> Offset:
        store, start = self._place.store(), begin["seq"]
        if self._name is not None and start > self._position:
            feeds.advance(store, self._name, start)
            self._position = start
        if self._cap is None and self._idle.is_resting:
            return begin
        last = _last(store)
        marks = store.execute(ops.MarkHistory(start, rows, 1, self._scan.tube, self._cap))
        # Asked for last: what goes away while this looks is noticed too.
        gone = _forgotten(store)
        if start != self._scan.lo:
            self._check_known(start, max(last, gone))
            self._check_complete(max(start, self._clear), gone)
        self._idle.found(bool(marks))
        if not marks:
            self._clear = last if self._cap is None else min(last, self._cap)
            return begin
        self._latest = marks[0]
        return {"seq": marks[0], "gone": gone} if gone > start else {"seq": marks[0]}

    def _check_known(self, seq: int, last: int) -> None:
        """Refuse an offset that was never given here."""
        if seq > last:
            raise UsageError(
                f"the checkpoint is at event {seq}, but the last one here is {last}: it belongs to another store, or "
                "this one was restored from a copy; start with an empty checkpointLocation"
            )

    def _check_complete(self, start: int, gone: int) -> None:
        """Refuse to go on from where the events that follow were removed."""
        if self._loss and start < gone:
            raise UsageError(
                f"the checkpoint is at event {start}, and events up to {gone} were removed before they were "
                'read; give a streamId that is waited for, or go on without them: .option("failOnDataLoss", "false")'
            )

    def reportLatestOffset(self) -> Offset | None:
        return {"seq": self._latest} if self._latest >= 0 else None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [] if start["seq"] == end["seq"] else patiently(lambda: self._ranges(start["seq"], end))

    def _ranges(self, start: int, end: Offset) -> list[Range]:
        """After a restart Spark asks for a batch that it planned before anything else."""
        store = self._place.store()
        # What had gone when the batch was planned was no part of it.
        scan = self._scan._replace(lo=max(start, end.get("gone", start)), hi=end["seq"])
        found = event_ranges(store, scan, self._number)
        gone = _forgotten(store)
        self._check_known(end["seq"], max(_last(store), gone))
        self._check_complete(scan.lo, gone)
        return found

    def commit(self, end: Offset) -> None:
        if self._name is not None:
            name = self._name
            patiently(lambda: feeds.advance(self._place.store(), name, end["seq"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a range."""
        if isinstance(partition, Range):  # Spark puts one of its own in the place of none
            store = self._place.store()
            yield from store.scan(self._scan._replace(lo=partition.lo, hi=partition.hi))
            self._check_complete(partition.lo, _forgotten(store))


def _last(store: Engine) -> int:
    """The last event of all tubes."""
    found = store.execute(ops.MarkHistory(every=0))
    return found[0] if found else 0


def _forgotten(store: Engine) -> int:
    """Up to here events were removed."""
    notes = store.execute(ops.LastNotes(FORGOTTEN))
    return notes[0].number if notes else 0
