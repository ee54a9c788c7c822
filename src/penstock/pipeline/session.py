"""The Spark session that commands work with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING

from penstock.model.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": str(max(2, min(16, os.cpu_count() or 2))),
}
"""What a session on this machine alone is made with; spark-defaults.conf and spark-submit are for all others."""


@contextmanager
def session(master: str | None = None) -> Iterator[SparkSession]:
    """The session of this process, or one that ends with the block.

    master: where to run; spark-submit says it if left out, else it is this machine
    """
    check_installed()
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    import penstock.spark

    active = SparkSession.getActiveSession()
    if active is not None:
        yield penstock.spark.register(active)
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("penstock pipeline")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    if not submitted and (master or "local").startswith("local"):
        quiet = f"-Dlog4j2.configurationFile={files('penstock.pipeline').joinpath('log4j2.properties')}"
        for name, value in {**LOCAL, "spark.driver.extraJavaOptions": quiet}.items():
            builder = builder.config(name, value)
    try:
        made = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise UsageError(f"Spark does not start: {error}; it needs Java 17 or later, in PATH or JAVA_HOME") from None
    try:
        yield penstock.spark.register(made)
    finally:
        made.stop()


def check_installed() -> None:
    """An error that says what to install, if Spark is not there."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"the pipeline needs {error.name}: pip install 'penstock[spark]', and Java 17 or later"
        ) from None
