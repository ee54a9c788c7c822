"""One Spark session for all tests of this folder; starting one takes ten seconds."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from penstock.spark import stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.driver import Driver

collect_ignore_glob = ["drivers/*"]
"""Programs that tests start; they do their work when they are imported."""
ROOT = Path(__file__).parents[2]
PATIENCE = 900
"""Seconds after which a test is taken for stuck."""
# A JVM that lives for minutes does more work for its start than for all its jobs. Without the optimizing compiler the
# start is half of that, and a fifth of the rest is saved by not verifying the classes of Spark. An archive of loaded
# classes saves as much again, but takes longer to make than all JVMs of one run save.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
INSTALLED = Path(pyspark.__file__).parent
# A class is searched for in one jar after the other, and there are 280. Most classes are in these.
FIRST = ("scala-library", "spark-catalyst_", "spark-core_", "spark-sql_", "spark-sql-api_", "hadoop-client-api")
CLASSES = os.pathsep.join(str(jar) for name in FIRST for jar in (INSTALLED / "jars").glob(f"{name}*.jar"))
SETTINGS = {
    "spark.driver.extraJavaOptions": BRIEF,
    "spark.executor.extraJavaOptions": BRIEF,
    "spark.driver.extraClassPath": CLASSES,
    "spark.executor.extraClassPath": CLASSES,
    "spark.python.daemon.module": "tests.spark.daemon",
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
"""For a few rows that are read once, compiling a plan takes longer than interpreting it. Other drivers compile."""


def environment(home: Path | None = None) -> dict[str, str]:
    """The environment of a program that starts Spark: this interpreter, and this tree before any installed package.

    home: of Spark; for fixtures that outlive a test, for others `spark_environment` has set it
    """
    paths = [str(ROOT / "src"), str(ROOT)]
    return {
        **os.environ,
        **({} if home is None else of_home(home)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def of_home(home: Path) -> dict[str, str]:
    """The variables with which Spark is started from a home."""
    return {"SPARK_HOME": str(home), "SPARK_SUBMIT_OPTS": BRIEF}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Close the stores that penstock.spark keeps open in this process: the next test opens the same ones anew."""
    stores.close_all()


@pytest.fixture(scope="session")
def spark_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Spark from which processes start faster than from the installed one.

    It has no python/lib/pyspark.zip. Each of the hundred Python processes that Spark starts would import pyspark from
    there and compile it, because compiled modules are not kept beside a zip file. It has no MLlib, which Spark would
    load into every session. Executors of a local cluster work in this folder too.
    """
    home = tmp_path_factory.mktemp("home")
    for name in ("bin", "sbin"):
        (home / name).symlink_to(INSTALLED / name)
    (home / "jars").mkdir()
    for jar in (INSTALLED / "jars").iterdir():
        if not jar.name.startswith("spark-mllib"):
            (home / "jars" / jar.name).symlink_to(jar)
    return home


@pytest.fixture(autouse=True)
def spark_environment(spark_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests start uses the home, and JVMs that start fast."""
    for name, value in of_home(spark_home).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def standalone(spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master of a cluster for all tests that need one; its three processes take long to start."""
    from tests.spark.cluster import cluster

    with cluster(tmp_path_factory.mktemp("cluster"), spark_home) as master:
        yield master


@pytest.fixture(scope="session")
def driver(spark_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver beside the one of this process, for all tests that need one."""
    from tests.spark.driver import Driver

    made = Driver(tmp_path_factory.mktemp("driver"), spark_home)
    yield made
    made.kill()


@pytest.fixture(scope="session")
def spark(spark_home: Path) -> Iterator[SparkSession]:
    """A local session in which a failed task is tried again."""
    from pyspark.sql import SparkSession

    import penstock.spark

    with tempfile.TemporaryDirectory(prefix="penstock-spark-", ignore_cleanup_errors=True) as place:
        builder = SparkSession.builder.master("local[2,4]").appName("penstock tests")
        for name, value in {**SETTINGS, **PLAIN, "spark.local.dir": place, "spark.sql.warehouse.dir": place}.items():
            builder = builder.config(name, value)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment(spark_home).items():
                patch.setenv(name, value)
            # Relative paths in the snippets of pages are relative to the folder that the JVM was started in.
            patch.chdir(place)
            session = builder.getOrCreate()
        yield penstock.spark.register(session)
        session.stop()
