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


class EventStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the history on from where it was.

    With a streamId its position is written down, and what forgets events can ask for it (feeds.py).
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_known(*KNOWN)
        self._place = Place(options)
        self._scan = scan_of(options, columns_of("events", schema))
        self._name = options.text("streamId")
        self._limit = options.number("maxEventsPerTrigger", 1_000_000)
        self._number = options.number("numPartitions", 0)
        self._idle = Idle(options.seconds("pollInterval", 0.5))
        self._loss = options.choice("failOnDataLoss", ("true", "false"), "true") == "true"
        self._checked = False
        self._cap: int | None = None
        self._position = self._latest = -1

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit)

    def initialOffset(self) -> dict[str, int]:
        return {"seq": self._scan.lo}

    def prepareForTriggerAvailableNow(self) -> None:
        """Events that come later are for the next run."""
        last = patiently(lambda: self._place.store().execute(ops.MarkHistory(every=0, tube=self._scan.tube)))
        self._cap = last[0] if last else 0

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        return {"seq": patiently(lambda: self._end(start["seq"], rows))}

    def _check_complete(self, store: Engine, start: int) -> None:
        """Refuse to go on from where the events that follow were removed."""
        notes = store.execute(ops.LastNotes(FORGOTTEN))
        if self._loss and notes and self._scan.lo < start < notes[0].number:
            raise UsageError(
                f"the checkpoint is at event {start}, and events up to {notes[0].number} were removed before they were "
                'read; give a streamId that is waited for, or go on without them: .option("failOnDataLoss", "false")'
            )
        self._checked = True

    def _end(self, start: int, rows: int) -> int:
        store = self._place.store()
        if not self._checked:
            self._check_complete(store, start)
        if self._name is not None and start > self._position:
            feeds.advance(store, self._name, start)
            self._position = start
        if self._cap is None and self._idle.is_resting:
            return start
        marks = store.execute(ops.MarkHistory(start, rows, 1, self._scan.tube, self._cap))
        self._idle.found(bool(marks))
        self._latest = marks[0] if marks else start
        return self._latest

    def reportLatestOffset(self) -> dict[str, int] | None:
        return {"seq": self._latest} if self._latest >= 0 else None

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start == end:
            return []
        scan = self._scan._replace(lo=start["seq"], hi=end["seq"])
        return patiently(lambda: event_ranges(self._place.store(), scan, self._number))

    def commit(self, end: dict[str, int]) -> None:
        if self._name is not None:
            name = self._name
            patiently(lambda: feeds.advance(self._place.store(), name, end["seq"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a range."""
        if isinstance(partition, Range):  # Spark puts one of its own in the place of none
            yield from self._place.store().scan(self._scan._replace(lo=partition.lo, hi=partition.hi))
