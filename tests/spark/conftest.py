"""One Spark session for all tests of this folder; starting one takes ten seconds."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.driver import Driver

collect_ignore_glob = ["drivers/*"]
"""Programs that tests start; they do their work when they are imported."""
ROOT = Path(__file__).parents[2]
PATIENCE = 900
"""Seconds after which a test is taken for stuck; the first one of a machine waits for its archive of classes too."""
# What lives for minutes is not worth compiling well: half the work of a start is that.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.extraJavaOptions": BRIEF,
    "spark.executor.extraJavaOptions": f"{BRIEF} {os.environ.get('SPARK_SUBMIT_OPTS', '')}",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.pollingDelay": "50ms",
    # A process that has to wait for its turn for long may come late to where its rows are handed over.
    "spark.python.authenticate.socketTimeout": "600s",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

PLAIN = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Of a few rows that are read once: compiling a plan takes longer than walking through it. Other drivers do compile."""


def environment() -> dict[str, str]:
    """What a program that starts Spark needs: this interpreter, and this tree before any installed package."""
    paths = [str(ROOT / "src"), str(ROOT)]
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.fixture(scope="session", autouse=True)
def classes() -> Iterator[None]:
    """Every JVM that a test starts begins with classes that are loaded already."""
    options = archive.options(BRIEF, environment(), ROOT / "build")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", f"{BRIEF} {options}")
        yield


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master of a cluster for all tests that need one; its three processes take long to start."""
    from tests.spark.cluster import cluster

    with cluster(tmp_path_factory.mktemp("cluster")) as master:
        yield master


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver beside the one of this process, for all tests that need one."""
    from tests.spark.driver import Driver

    made = Driver(tmp_path_factory.mktemp("driver"))
    yield made
    made.kill()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session in which a failed task is tried again."""
    from pyspark.sql import SparkSession

    import penstock.spark

    os.environ.update(environment())
    with tempfile.TemporaryDirectory(prefix="penstock-spark-", ignore_cleanup_errors=True) as place:
        builder = SparkSession.builder.master("local[2,4]").appName("penstock tests")
        for name, value in {**SETTINGS, **PLAIN, "spark.local.dir": place, "spark.sql.warehouse.dir": place}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield penstock.spark.register(session)
        session.stop()
