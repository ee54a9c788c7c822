"""Streaming queries for tests.

Spark gives the process that serves a source ten seconds to start, which a machine that runs much else may not keep.
Such a query has done nothing, so it is started again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

PATIENCE = 600
TOO_SLOW = "failed to connect back"


def finish(writer: DataStreamWriter, checkpoint: Path) -> None:
    """Handle what there is now."""
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    end = time.monotonic() + PATIENCE
    while True:
        try:
            assert writer.start().awaitTermination(PATIENCE), "the query does not end"
        except StreamingQueryException as error:
            if TOO_SLOW not in str(error) or time.monotonic() > end:
                raise
        else:
            return


def begun(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query after its first batch, which may be empty, or its end."""
    end = time.monotonic() + PATIENCE
    while True:
        query = start()
        while query.isActive and not query.recentProgress:
            threading.Event().wait(0.05)
        if query.isActive or TOO_SLOW not in str(query.exception()) or time.monotonic() > end:
            return query


@contextmanager
def running(writer: DataStreamWriter, checkpoint: Path) -> Iterator[StreamingQuery]:
    """A query that goes on until the context ends, from after its first batch, which may be empty."""
    query = begun(writer.option("checkpointLocation", str(checkpoint)).start)
    try:
        yield query
    finally:
        query.stop()
