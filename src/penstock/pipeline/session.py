"""The Spark session that commands work with."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING

from penstock.model.errors import UsageError
from penstock.pipeline.java import missing_java

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
    if not submitted:
        check_java()
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    if not submitted and (master or "local").startswith("local"):
        quiet = f"-Dlog4j2.configurationFile={files('penstock.pipeline').joinpath('log4j2.properties')}"
        for name, value in {**LOCAL, "spark.driver.extraJavaOptions": quiet}.items():
            builder = builder.config(name, value)
    try:
        with deferred_signals():
            made = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise UsageError("; ".join(filter(None, (f"Spark does not start: {error}", missing_java())))) from None
    try:
        yield penstock.spark.register(made)
    finally:
        made.stop()


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Handle SIGINT and SIGTERM at the end of the block. A JVM whose start is interrupted would never end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = list[int]()

    def note(number: int, frame: object) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is note:  # Spark replaces the one of SIGINT by its own
                signal.signal(number, handler)
        for missed in received:
            signal.raise_signal(missed)


def check_installed() -> None:
    """Raise an error with the commands that install what is missing, if the packages of the extra are not there."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        packages = f"the pipeline needs {error.name}: pip install 'penstock[spark]'"
        raise UsageError("; ".join(filter(None, (packages, missing_java())))) from None


def check_java() -> None:
    """Raise an error with the command that installs Java, if Spark finds none that is new enough."""
    if os.environ.get("SPARK_HOME") or os.environ.get("SPARK_CONF_DIR"):
        return  # spark-env.sh there may choose a Java that is not in PATH
    if missing := missing_java():
        raise UsageError(missing)
