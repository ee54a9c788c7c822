"""The crawl as a Spark job: put the addresses of a file, let a fleet fetch them and all that they lead to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import penstock
import penstock.spark
from penstock.pipeline.gold import figures
from penstock.pipeline.lake import Lake
from penstock.pipeline.report.page import write_report
from penstock.pipeline.step import step


def open_pages(q: penstock.Queue, rate: float, retry: float) -> penstock.Tube:
    """One tube for all pages. Lanes need no set-up: the first task of a site makes its lane."""
    return q.create_tube(
        "pages",
        lane_concurrency=1,  # one request at a time to a site
        lane_rate=rate,  # and so many a second
        max_attempts=3,
        retry=penstock.Exponential(base=retry),
        keep=True,  # remember what was fetched
        history=True,  # for the lake
    )


def put_addresses(spark: SparkSession, url: str, file: Path) -> None:
    """Put every address of a file, each once however often it is there. Run again it puts nothing."""
    addresses = spark.read.text(str(file)).where("value <> ''").distinct()
    pages = addresses.selectExpr("value AS url", "value AS key", "parse_url(value, 'HOST') AS lane")
    pages.write.format("penstock").options(url=url, tube="pages", jobId=file.name).mode("append").save()


def fetch_pages(spark: SparkSession, url: str, workers: int, slots: int, grace: float) -> penstock.spark.Fleet:
    """Fetch until nothing is left."""
    return penstock.spark.fleet(
        spark, url, "pages", "crawl.pages:fetch", workers=workers, slots=slots, grace=grace, attempt_limit=120
    )


def build_lake(spark: SparkSession, url: str, folder: Path, say: Callable[[str], None]) -> Path:
    """Bring the history into a lake, and write a page about it."""
    lake = Lake(folder / "lake")
    step(spark, url, lake, at=say)
    return write_report(figures(spark, lake), folder / "report.html")
