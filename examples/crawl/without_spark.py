"""The crawl without Spark: the same handler, run by processes of `penstock worker`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import penstock
from crawl import pages
from crawl.plan import Plan
from crawl.progress import Screen

POLL = 0.2
"""Seconds between two polls of how many pages are fetched."""
GRACE = 2
"""Seconds that handlers have to end when the crawl is interrupted."""


def open_queue() -> penstock.Queue:
    """Open the queue with its handler; each process of `penstock worker crawl.without_spark:open_queue` calls this."""
    q = penstock.connect(os.environ["PENSTOCK_URL"])
    q.handler("pages", keep=True)(pages.fetch)
    return q


def crawl(plan: Plan, screen: Screen, put_maps: Callable[[], None]) -> Path | None:
    """Fetch all pages with worker processes on this machine. Return None, because no report is written."""
    put_maps()
    with (
        penstock.connect(plan.url) as q,
        screen.phase("Fetch the pages", plan.pages) as advance,
        workers_of(plan) as workers,
    ):
        for worker in workers:
            while not has_ended(worker):
                advance(count_ended(q))
        advance(count_ended(q))
    return None


def count_ended(q: penstock.Queue) -> int:
    """Return how many pages are fetched or buried."""
    tasks = q.tube("pages").statistics().tasks
    return tasks["kept"] + tasks["buried"]


@contextmanager
def workers_of(plan: Plan) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the workers; those that still run at the end of the block are stopped and return their tasks."""
    options = ["--url", plan.url, "--concurrency", str(plan.slots), "--grace", str(GRACE), "--until-empty"]
    command = [sys.executable, "-m", "penstock", "worker", "crawl.without_spark:open_queue", *options]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **plan.environment, "PYTHONPATH": path}
    workers = list[subprocess.Popen[bytes]]()
    with (plan.folder / "workers.log").open("ab") as log:
        try:
            for _ in range(plan.workers):
                # In a group of its own a worker does not receive Ctrl-C, but one SIGTERM from this process.
                workers.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, process_group=0
                    )
                )
            yield workers
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.wait()
    if any(worker.returncode for worker in workers):
        raise SystemExit(f"a worker ended with an error, see {log.name}")


def has_ended(worker: subprocess.Popen[bytes]) -> bool:
    """Wait for a worker, but no longer than POLL seconds."""
    try:
        worker.wait(POLL)
    except subprocess.TimeoutExpired:
        return False
    return True
