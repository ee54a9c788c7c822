"""The show: a web to crawl, the crawl, and what came of it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

import penstock
import penstock.spark
from crawl import job, summary
from crawl.web import Server, Web

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # half the start; not for long jobs
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def logging_to(file: Path) -> Iterator[None]:
    """What Spark's processes say goes to a file: they keep the stderr that they were started with."""
    sys.stderr.flush()
    before = os.dup(2)
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def spark_on(folder: Path, cores: int, proxy: str) -> Iterator[SparkSession]:
    """A session on this machine, whose processes ask the proxy for pages."""
    os.environ.update(http_proxy=proxy, PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master(f"local[{cores},4]").appName("crawl")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    with logging_to(folder / "spark.log"):
        spark = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
    try:
        yield penstock.spark.register(spark)
    finally:
        with logging_to(folder / "spark.log"):
            spark.stop()


class Show:
    """Says what is done now, and how long it took."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def step(self, text: str, bar: bool = False) -> Iterator[Callable[[str], None]]:
        """Something moves until it is over; what is given says where it is. bar: it has a bar of its own."""
        began = time.monotonic()
        with nullcontext() if bar else self.console.status(text) as status:
            yield lambda word: status.update(f"{text}: {word}") if status else None
        self.console.print(f"{text}: {time.monotonic() - began:.1f} s")

    def end(self, web: Web, done: penstock.spark.Fleet, sites: list[summary.Site], rates: dict[str, float]) -> None:
        self.console.print()
        self.console.print(summary.table(sites, rates))
        self.console.print(
            f"\n{done.counts.taken} requests for {len(web.pages)} pages of {len(web.sites)} sites: "
            f"{done.counts.done} fetched, {done.counts.failed} failed, {done.counts.buried} buried, "
            f"{len(web.answered_twice())} fetched twice.",
            soft_wrap=True,
        )


def run(folder: Path, options: argparse.Namespace, show: Show) -> int:
    pace = 10.0 if options.fast else 1.0
    web = Web(options.sites, options.pages, slowness=1 / pace)
    rates = dict.fromkeys(web.sites, 2 * pace)
    rates[web.sites[0]] = 5 * pace  # one site takes more than the others
    url, addresses = str(folder / "crawl.db"), folder / "sitemaps.txt"
    addresses.write_text("\n".join([*web.maps, *web.maps[:5], ""]))  # some of them twice
    with ExitStack() as stack:
        server = stack.enter_context(Server(web))
        q = stack.enter_context(penstock.connect(url))
        pages = job.open_pages(q, rate=2 * pace, retry=0.5 / pace)
        pages.lane(web.sites[0]).configure(rate=5 * pace)
        with show.step("starting Spark"):
            spark = stack.enter_context(spark_on(folder, options.workers, server.url))
        with show.step(f"putting {len(web.maps)} site maps of {len(web.sites)} sites"):
            job.put_addresses(spark, url, addresses)
        with show.step("fetching them and all pages they lead to", bar=True):
            done = job.fetch_pages(spark, url, options.workers, options.slots, grace=2)
        with show.step("building the lake and the report") as say:
            report = job.build_lake(spark, url, folder, say)
        with show.step("reading the history"):
            sites = summary.read_sites(spark, url)
        buried = pages.tasks("buried", limit=3)
    show.end(web, done, sites, rates)
    for task in buried:
        why = (task.error or "no error text").splitlines()[0]
        show.console.print(
            f"  buried: {task.data['url']} ({task.reason}, attempt {task.attempt}): {why}", soft_wrap=True
        )
    show.console.print(f"The report: {report}", soft_wrap=True)
    return 1 if web.answered_twice() or not all(site.polite(rates[site.site]) for site in sites) else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="crawl", description="A polite crawl of a small web on this machine.")
    parser.add_argument("--sites", type=int, default=30, help="how many sites")
    parser.add_argument("--pages", type=int, default=40, help="how many pages a site has")
    parser.add_argument("--workers", type=int, default=2, help="how many workers fetch, each a process")
    parser.add_argument("--slots", type=int, default=16, help="how many pages a worker fetches at once")
    parser.add_argument("--fast", action="store_true", help="ten times as fast")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "demo", help="where the queue and lake are kept"
    )
    options = parser.parse_args()
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        parser.error("Spark needs Java 17 or later: install it, or set JAVA_HOME")
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    try:
        return run(options.folder.resolve(), options, Show(Console()))
    except KeyboardInterrupt:
        print(f"stopped before the end: what was taken was given back; the queue is {options.folder / 'crawl.db'}")
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
