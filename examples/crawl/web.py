"""A small web on this machine: sites of different speed, with dead links and pages that fail now and then.

One server plays all sites, as an HTTP proxy does, so addresses look like real ones and none leaves the machine. The
same seed always makes the same web.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAMES = ("harbour", "lantern", "orchard", "quarry", "saddle", "thimble", "walnut", "bramble", "cinder", "dovetail")
LISTED = 8
"""Pages that one site map lists."""


@dataclass(frozen=True)
class Page:
    links: tuple[str, ...]
    seconds: float
    failures: int = 0
    """How many times it fails before it answers."""
    dead: bool = False


class Web:
    """Site maps, which a crawl starts from, and pages that link to each other."""

    def __init__(self, sites: int, pages: int, slowness: float, seed: int = 7) -> None:
        self._random = random.Random(seed)
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.sites = [f"{NAMES[i % len(NAMES)]}{i // len(NAMES) or ''}.example" for i in range(sites)]
        self.maps: list[str] = []
        self.pages: dict[str, Page] = {}
        for site in self.sites:
            speed = slowness * self._random.choice((0.02, 0.05, 0.1, 0.3))
            for number in range(pages):
                self.pages[address(site, number)] = self._page(site, number, pages, speed)
            for first in range(0, pages, LISTED):
                # Every second page is found by links alone.
                links = [address(site, number) for number in range(first, min(first + LISTED, pages), 2)]
                self.maps.append(f"http://{site}/map/{first // LISTED}")
                self.pages[self.maps[-1]] = Page(tuple(links), speed)

    def _page(self, site: str, number: int, pages: int, speed: float) -> Page:
        """Pages link to the next one, so all are found, and to some anywhere, so many are found often."""
        draw = self._random
        links = [address(site, (number + 1) % pages)]
        links += [address(draw.choice(self.sites), draw.randrange(pages)) for _ in range(3)]
        # Pages that only links lead to come from others that answer, so those with even numbers do.
        odd, fate = number % 2, draw.random()
        failures = 99 if odd and fate < 0.04 else 1 + (fate < 0.1) if fate < 0.15 else 0
        return Page(tuple(links), speed * draw.uniform(0.5, 1.5), failures, dead=bool(odd) and fate > 0.92)

    def answer(self, url: str) -> tuple[int, str]:
        """A status and a page, after as long as its site needs."""
        page = self.pages.get(url)
        if page is None:
            return 404, ""
        time.sleep(page.seconds)
        with self._lock:
            self._asked[url] += 1
            times = self._asked[url]
        if page.dead:
            return 404, ""
        if times <= page.failures:
            return 503, ""
        return 200, "".join(f'<a href="{link}">{link}</a>\n' for link in page.links)

    def answered_twice(self) -> list[str]:
        """Pages that were fetched again after they had answered. A good crawl has none."""
        return [url for url, times in self._asked.items() if times > self.pages[url].failures + 1]


def address(site: str, number: int) -> str:
    return f"http://{site}/{number}"


class Server(ThreadingHTTPServer):
    """Serves a web on a free port of this machine, in threads of this process."""

    daemon_threads = True

    def __init__(self, web: Web) -> None:
        super().__init__(("127.0.0.1", 0), _Visit)
        self.web = web
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Server:
        threading.Thread(target=self.serve_forever, name="web", daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()
        self.server_close()


class _Visit(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        status, text = self.server.web.answer(self.path)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
