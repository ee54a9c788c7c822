"""How rows of a table are stored. Parquet is built in; another format joins as a LakeTable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


LOCAL = "file://"
"""Spark may have another file system by default."""


class Size(NamedTuple):
    """Of what was written."""

    rows: int
    bytes: int


class LakeTable(Protocol):
    """Writes rows into directories of their own and reads many of them as one.

    Which of them count is the business of the lake's log, so a format needs no transactions.
    """

    def write(self, rows: DataFrame, path: str, by: str | None = None) -> None:
        """Store rows in a directory that is not there yet; `by` makes directories in it, one for each value."""
        ...

    def read(self, spark: SparkSession, paths: Sequence[str], schema: str) -> DataFrame:
        """The rows of directories and files; columns that they do not have are null."""
        ...

    def size(self, path: Path) -> Size:
        """How much a directory or file holds."""
        ...


class Parquet:
    """Plain Parquet files."""

    def write(self, rows: DataFrame, path: str, by: str | None = None) -> None:
        writer = rows.write.option("compression", "zstd")
        (writer.partitionBy(by) if by else writer).parquet(LOCAL + path)

    def read(self, spark: SparkSession, paths: Sequence[str], schema: str) -> DataFrame:
        if not paths:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).option("recursiveFileLookup", "true").parquet(*map(_escaped, paths))

    def size(self, path: Path) -> Size:
        import pyarrow.parquet as pq

        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        return Size(sum(pq.read_metadata(file).num_rows for file in files), sum(file.stat().st_size for file in files))


def _escaped(path: str) -> str:
    """Spark reads patterns, and a directory may be called lake[1]."""
    return LOCAL + re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
