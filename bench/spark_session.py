"""One Spark session for all cells, started when the first of them asks for it."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
JARS = "org/postgresql/postgresql/*/postgresql-*.jar"
NO_JAR = "no driver: set PENSTOCK_JDBC_JAR to the jar of PostgreSQL's JDBC driver"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def jdbc_jar() -> Path | None:
    """The JDBC driver of PostgreSQL, from the environment or from Maven's own store."""
    if named := os.environ.get("PENSTOCK_JDBC_JAR"):
        return Path(named)
    found = sorted((Path.home() / ".m2" / "repository").glob(JARS))
    return found[-1] if found else None


@functools.cache
def session() -> SparkSession:
    """The session of this run."""
    from pyspark.sql import SparkSession

    import penstock.spark

    source = str(Path(penstock.spark.__file__).parents[2])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    place = tempfile.TemporaryDirectory(prefix="bench-spark-", ignore_cleanup_errors=True)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("penstock bench")
    settings = {**SETTINGS, "spark.local.dir": place.name, "spark.sql.warehouse.dir": place.name}
    if jar := jdbc_jar():
        settings["spark.jars"] = str(jar)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    atexit.register(place.cleanup)
    atexit.register(spark.stop)
    return penstock.spark.register(spark)
