"""A polite crawl on an embedded queue, to watch: `make demo`.

One lane a site: never two requests at once to the same site, and never more a second than it likes. What
fails is tried again later, what is dead is buried, and no page is fetched twice.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import quantiles

from invented_web import NotFound, Unreachable, Web, address, site_of
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import penstock

# -- the crawl: this is the part to copy ---------------------------------------------------------------


def open_pages(q: penstock.Queue, rate: float, retry: float) -> penstock.Tube:
    """One tube for all pages. Lanes need no set-up: the first task of a site makes its lane."""
    return q.create_tube(
        "pages",
        lane_concurrency=1,  # one request at a time to a site
        lane_rate=rate,  # and so many a second
        max_attempts=3,
        retry=penstock.Exponential(base=retry),
        keep=True,  # remember what was fetched, so that it is not fetched again
        history=True,
    )


def put_links(pages: penstock.Tube, links: tuple[str, ...]) -> None:
    """A put with a put_id that is known already changes nothing: the page is waiting, running or done."""
    pages.put_many([penstock.Entry(link, lane=site_of(link), put_id=link) for link in links])


def fetch_pages(pages: penstock.Tube, web: Web) -> None:
    """One worker. It ends when nothing is ready, delayed or taken any more."""
    while task := pages.take(timeout=None, drain=True):
        try:
            links = web.fetch(task.data)
        except NotFound as error:
            task.bury(error)  # for a person to look at
        except Unreachable as error:
            task.fail(error)  # again after a pause; buried after the last attempt
        else:
            put_links(pages, links)
            task.ack()


# -- the show ------------------------------------------------------------------------------------------


@dataclass
class Site:
    """What the history says about one site."""

    rate: float
    fetched: int = 0
    retried: int = 0
    buried: int = 0
    taken_at: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @property
    def top_rate(self) -> float:
        """Requests a second at the two that came closest together."""
        gaps = [later - earlier for earlier, later in pairwise(sorted(self.taken_at))]
        return 1 / min(gaps) if gaps else 0.0

    @property
    def polite(self) -> bool:
        return self.top_rate <= self.rate * 1.001  # moments are whole microseconds

    def wait(self, percent: int) -> float:
        """How long tasks were ready before somebody took them, in seconds."""
        return quantiles(self.waits, n=100)[percent - 1] if len(self.waits) > 1 else sum(self.waits)


def events(q: penstock.Queue) -> Iterator[penstock.HistoryEvent]:
    after = 0
    while page := q.history(after):
        yield from page
        after = page[-1].seq


def read_history(q: penstock.Queue, rates: dict[str, float]) -> dict[str, Site]:
    sites = {name: Site(rate) for name, rate in rates.items()}
    for event in events(q):
        site = sites[event.lane or ""]
        if event.event == "take" and event.taken_at and event.ready_at:
            site.taken_at.append(event.taken_at.timestamp())
            site.waits.append((event.taken_at - event.ready_at).total_seconds())
        site.fetched += event.event == "ack"
        site.retried += event.event == "fail" and event.to_state == "delayed"
        site.buried += event.to_state == "buried"
    return sites


def follow(pages: penstock.Tube, progress: Progress, names: list[str]) -> None:
    """A bar a site, moved by the changes that this process makes."""
    bars = {name: progress.add_task(name, total=0, note="") for name in names}
    seen: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def moved(task: penstock.Task, event: str) -> None:
        count = seen[task.lane or ""]
        count["found"] += event == "put"
        count["ended"] += task.state == "buried" or event == "ack"
        count["retried"] += event == "fail" and task.state == "delayed"
        count["buried"] += task.state == "buried"
        notes = [f"{count[word]} {word}" for word in ("retried", "buried") if count[word]]
        progress.update(bars[task.lane or ""], total=count["found"], completed=count["ended"], note=", ".join(notes))

    pages.on_task_change(moved)


def work(pages: penstock.Tube, web: Web, stopping: threading.Event) -> None:
    """A worker that does not complain when the queue is closed under it because somebody pressed Ctrl-C."""
    try:
        fetch_pages(pages, web)
    except penstock.PenstockError:
        if not stopping.is_set():
            raise


def crawl(pages: penstock.Tube, web: Web, number: int) -> None:
    """So many workers, until all is fetched."""
    stopping = threading.Event()
    workers = [threading.Thread(target=work, args=(pages, web, stopping)) for _ in range(number)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        stopping.set()
        raise


def summary(sites: dict[str, Site]) -> Table:
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        caption="p50, p95: half, and 95 of 100, of the ready tasks waited at most so long",
        caption_justify="left",
    )
    for column in ("site", "fetched", "retried", "buried", "limit/s", "top/s", "held", "p50 s", "p95 s"):
        table.add_column(column, justify="left" if column == "site" else "right", no_wrap=True)
    for name, site in sites.items():
        table.add_row(
            name,
            str(site.fetched),
            str(site.retried),
            str(site.buried),
            f"{site.rate:.0f}",
            f"{site.top_rate:.1f}",
            "yes" if site.polite else "NO",
            f"{site.wait(50):.2f}",
            f"{site.wait(95):.2f}",
        )
    return table


def run(folder: Path, options: argparse.Namespace, console: Console) -> int:
    pace = 20.0 if options.fast else 1.0
    web = Web(options.sites, options.pages, slowness=1 / pace)
    with penstock.connect(str(folder / "crawl.db")) as q:
        pages = open_pages(q, rate=4 * pace, retry=0.3 / pace)
        rates = dict.fromkeys(web.sites, 4 * pace)
        rates[web.sites[0]] = 10 * pace  # one site takes more than the others
        pages.lane(web.sites[0]).configure(rate=10 * pace)
        columns = (
            TextColumn("{task.description:>17}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
            follow(pages, progress, web.sites)
            put_links(pages, tuple(address(site, 0) for site in web.sites))
            crawl(pages, web, options.workers)
        pages.on_task_change(None)
        sites = read_history(q, rates)
        console.print()
        console.print(summary(sites))
        console.print()
        counted = pages.statistics()
        twice = web.answered_twice()
        buried = pages.tasks("buried", limit=3)
    console.print(
        f"{counted.calls['take']} requests by {options.workers} threads for {len(web.pages)} pages: "
        f"{counted.tasks['kept']} fetched, {counted.tasks['buried']} buried, {len(twice)} fetched twice.",
        soft_wrap=True,
    )
    for task in buried:
        why = (task.error or "no error text").splitlines()[0]
        console.print(f"  buried: {task.data} ({task.reason}, attempt {task.attempt}): {why}", soft_wrap=True)
    return 1 if twice or not all(site.polite for site in sites.values()) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="A polite crawl of an invented web on an embedded queue.")
    parser.add_argument("--sites", type=int, default=8, help="how many sites")
    parser.add_argument("--pages", type=int, default=36, help="how many pages a site has")
    parser.add_argument("--workers", type=int, default=8, help="how many threads fetch")
    parser.add_argument("--fast", action="store_true", help="twenty times as fast")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return run(Path(folder), options, Console())
    except KeyboardInterrupt:
        print("stopped before the end: what was taken was given back, the queue's file is removed")
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
