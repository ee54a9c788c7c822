"""The tube of a crawl and the handler that fetches one page. This is the part to copy."""

from __future__ import annotations

import re
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import penstock

LINK = re.compile(r'href="([^"]+)"')


def create_tube(q: penstock.Queue, rate: float, retry: float) -> penstock.Tube:
    """Create one tube for all pages. Lanes need no set-up: the first task of a site creates its lane.

    rate: requests a second to one site
    retry: seconds before the second attempt; the third waits longer
    """
    return q.create_tube(
        "pages",
        lane_concurrency=1,  # one request at a time to a site
        lane_rate=rate,
        max_attempts=3,
        retry=penstock.Exponential(base=retry),
        ttr=120,  # seconds that one attempt may take
        keep=True,  # a page that was fetched is not put again
        history=True,  # for the summary, the lake and the report
    )


def entry(url: str) -> penstock.Entry:
    """Return the task that fetches a page. Its put_id stays known while the task is kept, so it is put only once."""
    return penstock.Entry({"url": url}, lane=urlsplit(url).hostname, put_id=url)


def fetch(page: dict, run: penstock.Run) -> dict:
    """Fetch a page and put its links. If the handler raises, the worker tries the page again later."""
    url = page["url"]
    try:
        with urlopen(url, timeout=30) as response:
            text = response.read().decode()
    except HTTPError as error:
        if error.code in (404, 410):
            raise penstock.Bury(f"{error.code} {error.reason}: {url}") from None  # a retry would not help
        raise
    links = {urljoin(url, link) for link in LINK.findall(text)}
    run.tube.put_many([entry(link) for link in sorted(links)])
    return {"bytes": len(text), "links": len(links)}
