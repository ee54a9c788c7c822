"""What the history says about a crawl, site by site: Spark reads it as a table."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from rich.table import Table

SITES = """
WITH moments AS (
    SELECT lane, event, to_state, unix_micros(taken_at) / 1e6 AS taken, unix_micros(ready_at) / 1e6 AS ready
    FROM {events}
), steps AS (
    SELECT *, taken - lag(taken) OVER (PARTITION BY lane, event ORDER BY taken) AS gap FROM moments
)
SELECT lane AS site,
       count_if(event = 'ack') AS fetched,
       count_if(event = 'fail' AND to_state = 'delayed') AS retried,
       count_if(to_state = 'buried') AS buried,
       1 / min(gap) FILTER (WHERE event = 'take') AS top_rate,
       percentile(taken - ready, array(0.5, 0.95)) FILTER (WHERE event = 'take') AS waits
FROM steps GROUP BY lane ORDER BY lane
"""


@dataclass
class Site:
    site: str
    fetched: int
    retried: int
    buried: int
    top_rate: float | None
    """Requests a second at the two that came closest together."""
    waits: list[float]

    def polite(self, rate: float) -> bool:
        return (self.top_rate or 0.0) <= rate * 1.001  # moments are whole microseconds


def read_sites(spark: SparkSession, url: str) -> list[Site]:
    events = spark.read.format("penstock").options(url=url, feed="events", tube="pages").load()
    rows = spark.sql(SITES, events=events).collect()
    return [Site(row.site, row.fetched, row.retried, row.buried, row.top_rate, row.waits) for row in rows]


def table(sites: list[Site], rates: dict[str, float]) -> Table:
    made = Table(
        box=None,
        padding=(0, 1, 0, 0),
        caption="p50, p95: half, and 95 of 100, of the ready tasks waited at most so long for their turn",
        caption_justify="left",
    )
    for column in ("site", "fetched", "retried", "buried", "limit/s", "top/s", "held", "p50 s", "p95 s"):
        made.add_column(column, justify="left" if column == "site" else "right", no_wrap=True)
    for site in sites:
        held = "yes" if site.polite(rates[site.site]) else "NO"
        numbers = (site.fetched, site.retried, site.buried)
        rates_of = (f"{rates[site.site]:.0f}", f"{site.top_rate or 0:.1f}", held)
        made.add_row(site.site, *map(str, numbers), *rates_of, *(f"{wait:.1f}" for wait in site.waits))
    return made
