"""What the history of the tube shows about a crawl, site by site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from rich.table import Table

import penstock

PAGE = 10_000
"""Events that are read at a time."""
COLUMNS = ("site", "fetched", "retried", "buried", "limit/s", "peak/s", "held", "wait p50", "wait p95")


@dataclass
class Site:
    """What happened to the pages of one site."""

    name: str
    limit: float
    """Requests a second that it allows."""
    fetched: int = 0
    retried: int = 0
    buried: int = 0
    requests: list[float] = field(default_factory=list)
    """When each request began."""
    waits: list[float] = field(default_factory=list)
    """Seconds from when a page was ready to be fetched to its request."""

    def add(self, event: penstock.HistoryEvent) -> None:
        """Count an event."""
        self.fetched += event.event == "ack"
        self.retried += event.event == "fail" and event.to_state == "delayed"
        self.buried += event.to_state == "buried"
        if event.event == "take":
            assert event.taken_at is not None and event.ready_at is not None
            self.requests.append(event.taken_at.timestamp())
            self.waits.append((event.taken_at - event.ready_at).total_seconds())

    @property
    def peak(self) -> float:
        """Requests a second at the two that were closest together."""
        gaps = [later - earlier for earlier, later in pairwise(sorted(self.requests))]
        return 1 / max(min(gaps), 1e-6) if gaps else 0.0

    @property
    def is_held(self) -> bool:
        """Whether the limit was held; moments in the history are whole microseconds."""
        return self.peak <= self.limit * 1.001


def summarize(q: penstock.Queue, limits: dict[str, float]) -> list[Site]:
    """Read the history of the tube and count it by site."""
    sites = {name: Site(name, limit) for name, limit in limits.items()}
    for event in read_history(q):
        sites[str(event.lane)].add(event)
    return list(sites.values())


def read_history(q: penstock.Queue) -> Iterator[penstock.HistoryEvent]:
    """Yield all events of the tube, oldest first."""
    last = 0
    while events := q.history(after=last, limit=PAGE, tube="pages"):
        yield from events
        last = events[-1].seq


def make_table(sites: list[Site], rows: int = 6) -> Table:
    """Return a table of the sites with the most to see, and a last row for all of them."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "site" else "right", no_wrap=True)
    # First sites whose limit was not held, then those with a higher limit, then those with most failures.
    ranked = sorted(sites, key=lambda site: (site.is_held, -site.limit, -site.buried - site.retried, site.name))
    for site in ranked[:rows]:
        rates = (f"{site.limit:g}", f"{site.peak:.1f}")
        table.add_row(site.name, *counts([site]), *rates, held([site]), *percentiles(site.waits))
    waits = [wait for site in sites for wait in site.waits]
    table.add_row(f"all {len(sites)} sites", *counts(sites), "", "", held(sites), *percentiles(waits), style="bold")
    return table


def counts(sites: list[Site]) -> list[str]:
    """Return the cells with numbers of pages."""
    return [str(sum(getattr(site, name) for site in sites)) for name in ("fetched", "retried", "buried")]


def held(sites: list[Site]) -> str:
    """Return the cell that shows whether limits were held."""
    return "yes" if all(site.is_held for site in sites) else "NO"


def percentiles(waits: Iterable[float]) -> Iterator[str]:
    """Yield the cells for the median wait, and for the wait that 95 of 100 pages did not exceed."""
    ranked = sorted(waits)
    for share in (0.5, 0.95):
        yield f"{ranked[round(share * (len(ranked) - 1))]:.1f} s" if ranked else ""
