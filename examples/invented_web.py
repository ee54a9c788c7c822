"""A small web that exists only here: sites of different speed, with dead links and pages that fail now and then.

The demo crawls it. Nothing leaves the machine and the same seed always makes the same web.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass

NAMES = ("harbour", "lantern", "orchard", "quarry", "saddle", "thimble", "walnut", "bramble", "cinder", "dovetail")


class Unreachable(Exception):
    """The site did not answer this time."""


class NotFound(Exception):
    """The page is not there, and asking again will not help."""


@dataclass(frozen=True)
class Page:
    links: tuple[str, ...]
    seconds: float
    failures: int
    """How many times it fails before it answers."""
    dead: bool


class Web:
    """`fetch(url)` is all that a crawler sees of it."""

    def __init__(self, sites: int, pages: int, slowness: float, seed: int = 7) -> None:
        self._random = random.Random(seed)
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.sites = [f"{NAMES[i % len(NAMES)]}{i // len(NAMES) or ''}.example" for i in range(sites)]
        self.pages: dict[str, Page] = {}
        for site in self.sites:
            speed = slowness * self._random.uniform(0.02, 0.08)
            for number in range(pages):
                self.pages[address(site, number)] = self._page(site, number, pages, speed)

    def _page(self, site: str, number: int, pages: int, speed: float) -> Page:
        """Pages link to the two below them, so all are found, and to some anywhere, so many are found twice."""
        draw = self._random
        links = [address(site, child) for child in (2 * number + 1, 2 * number + 2) if child < pages]
        links += [address(draw.choice(self.sites), draw.randrange(pages)) for _ in range(3)]
        is_leaf = 2 * number + 1 >= pages
        fate = draw.random()
        failures = 99 if is_leaf and fate < 0.06 else 1 + (fate < 0.1) if fate < 0.2 else 0
        return Page(tuple(links), speed * draw.uniform(0.5, 1.5), failures, dead=is_leaf and fate > 0.9)

    def fetch(self, url: str) -> tuple[str, ...]:
        """The links of a page, after as long as its site needs to answer."""
        page = self.pages[url]
        time.sleep(page.seconds)
        with self._lock:
            self._asked[url] += 1
            times = self._asked[url]
        if page.dead:
            raise NotFound(f"404 {url}")
        if times <= page.failures:
            raise Unreachable(f"503 {url}")
        return page.links

    def answered_twice(self) -> list[str]:
        """Pages that were fetched again after they had answered. A good crawl has none."""
        return [url for url, times in self._asked.items() if times > self.pages[url].failures + 1]


def address(site: str, number: int) -> str:
    return f"http://{site}/{number}"


def site_of(url: str) -> str:
    return url.split("/")[2]
