"""The format `penstock`: which reader or writer serves which feed.

Spark makes these objects several times, in several processes, and sends them around: they hold options and nothing
else, and what connects to a store does so where it is used.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.model.errors import UsageError
from penstock.spark import schemas
from penstock.spark.options import Options


class PenstockSource(DataSource):
    """Tasks, events and results of a queue, for `spark.read`, `df.write`, `spark.readStream` and `df.writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        options = Options(self.options)
        # A stream of tasks has an id, and a snapshot has none: nothing else tells Spark's two calls apart.
        claims = options.feed == "tasks" and options.text("streamId") is not None
        return schemas.ddl("claims" if claims else options.feed, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.reading import Reader

        return Reader(Options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.writing import Writer

        if overwrite:
            raise UsageError('a queue cannot be overwritten: write with mode("append"); truncate() empties a tube')
        return Writer(Options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = Options(self.options)
        if options.feed == "events":
            from penstock.spark.events import EventStream

            return EventStream(options, schema)
        if options.feed == "tasks":
            from penstock.spark.claims import TaskStream

            return TaskStream(options, schema)
        raise UsageError(f"feed {options.feed!r} cannot be streamed; tasks and events can")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.spark.sink import Sink

        if overwrite:
            raise UsageError('a stream into a queue needs outputMode("append")')
        return Sink(Options(self.options), schema)
