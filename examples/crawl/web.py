"""A small web on this machine: sites of different speed, with dead links and pages that fail once or twice.

One server plays all sites, as an HTTP proxy does, so addresses look like real ones and no request leaves the machine.
The same seed always makes the same web.
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
"""How many pages a site map covers; it links to every second one."""


@dataclass(frozen=True)
class Page:
    """How the server responds to requests for one address."""

    links: tuple[str, ...]
    seconds: float
    failures: int = 0
    """How many requests get status 503 before one gets the page."""
    dead: bool = False
    """Whether every request gets status 404."""


class Web:
    """Site maps, which a crawl begins with, and pages that link to each other."""

    def __init__(self, sites: int, pages: int, slowness: float, seed: int = 7) -> None:
        self._random = random.Random(seed)
        self._requests: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.sites = [f"{NAMES[i % len(NAMES)]}{i // len(NAMES) or ''}.example" for i in range(sites)]
        self.maps: list[str] = []
        self.pages: dict[str, Page] = {}
        for site in self.sites:
            speed = slowness * self._random.choice((0.02, 0.05, 0.1, 0.3))
            for number in range(pages):
                self.pages[address(site, number)] = self._page(site, number, pages, speed)
            for first in range(0, pages, LISTED):
                # The other pages are found only by links.
                links = [address(site, number) for number in range(first, min(first + LISTED, pages), 2)]
                self.maps.append(f"http://{site}/map/{first // LISTED}")
                self.pages[self.maps[-1]] = Page(tuple(links), speed)

    def _page(self, site: str, number: int, pages: int, speed: float) -> Page:
        """Make a page that links to the next one, so that all are found, and to three anywhere."""
        draw = self._random
        links = [address(site, (number + 1) % pages)]
        links += [address(draw.choice(self.sites), draw.randrange(pages)) for _ in range(3)]
        # Odd pages are found only by the link of the even page before, so even pages must not be dead.
        odd, fate = number % 2, draw.random()
        failures = 99 if odd and fate < 0.04 else 1 + (fate < 0.1) if fate < 0.15 else 0
        return Page(tuple(links), speed * draw.uniform(0.5, 1.5), failures, dead=bool(odd) and fate > 0.92)

    def respond(self, url: str) -> tuple[int, str]:
        """Return a status and a text, after as long as the site needs."""
        page = self.pages.get(url)
        if page is None:
            return 404, ""
        time.sleep(page.seconds)
        with self._lock:
            self._requests[url] += 1
            number = self._requests[url]
        if page.dead:
            return 404, ""
        if number <= page.failures:
            return 503, ""
        return 200, "".join(f'<a href="{link}">{link}</a>\n' for link in page.links)

    def fetched_twice(self) -> list[str]:
        """Return addresses that were requested again after they had been fetched. A correct crawl has none."""
        return [url for url, number in self._requests.items() if number > self.pages[url].failures + 1]


def address(site: str, number: int) -> str:
    """Return the address of a page."""
    return f"http://{site}/{number}"


class Server(ThreadingHTTPServer):
    """Serves a web on a free port of this machine, in threads of this process."""

    daemon_threads = True

    def __init__(self, web: Web) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.web = web
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Server:
        threading.Thread(target=self.serve_forever, name="web", daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()
        self.server_close()


class _Request(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        status, text = self.server.web.respond(self.path)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
