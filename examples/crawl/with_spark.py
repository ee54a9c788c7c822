"""The crawl with Spark: a fleet of workers fetches the pages, and the history becomes a lake and a report."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import penstock.spark
from crawl.plan import Plan
from crawl.progress import Screen
from penstock.pipeline.gold import figures
from penstock.pipeline.lake import Lake
from penstock.pipeline.report import write_report
from penstock.pipeline.session import deferred_signals
from penstock.pipeline.step import step

STAGES = ("begun", "bronze", "written", "published", "counted", "report")
"""What is reached one after the other while the report is built."""
SETTINGS = {
    # These make the start and small queries faster. A job that runs for hours is better off without them.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}


def crawl(plan: Plan, screen: Screen, put_maps: Callable[[], None]) -> Path | None:
    """Fetch all pages and return the path of the report.

    put_maps: called when Spark has started, so that no page waits for that
    """
    with stderr_to(plan.folder / "spark.log"):
        with screen.phase("Start Spark"):
            spark = start_spark(plan)
        try:
            put_maps()
            with screen.phase("Fetch the pages", plan.pages) as advance:
                fetch_pages(spark, plan, advance)
            with screen.phase("Build the report", len(STAGES)) as advance:
                return build_report(spark, plan, lambda stage: advance(STAGES.index(stage) + 1))
        finally:
            spark.stop()


def fetch_pages(spark: SparkSession, plan: Plan, advance: Callable[[int], None]) -> None:
    """Run a fleet until no page is left to fetch; each of its workers is a Spark task.

    advance: called several times a second with the number of pages that are fetched or buried
    """

    def show(counts: penstock.spark.Counts) -> None:
        advance(counts.done + counts.buried)

    fleet = penstock.spark.fleet(
        spark,
        plan.url,
        "pages",
        "crawl.pages:fetch",
        workers=plan.workers,
        slots=plan.slots,
        grace=2,
        progress=show,
    )
    show(fleet.counts)


def build_report(spark: SparkSession, plan: Plan, reached: Callable[[str], None]) -> Path:
    """Copy the history of the queue into a lake, and write a page about it.

    reached: called with each of the STAGES
    """
    lake = Lake(plan.folder / "lake")
    step(spark, plan.url, lake, at=reached)
    counted = figures(spark, lake)
    reached("counted")
    report = write_report(counted, plan.folder / "report.html")
    reached("report")
    return report


def start_spark(plan: Plan) -> SparkSession:
    """Start a session on this machine whose processes have the plan's environment."""
    os.environ.update(plan.environment, PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master(f"local[{plan.workers},4]").appName("crawl")
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": str(plan.folder / "warehouse")}.items():
        builder = builder.config(name, value)
    with deferred_signals():
        spark = builder.getOrCreate()
        # Spark's own handler calls the JVM, even if the signal comes in the middle of another call.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return penstock.spark.register(spark)


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Redirect stderr to a file. Processes that are started meanwhile keep it for as long as they live."""
    sys.stderr.flush()
    before = os.dup(2)
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
