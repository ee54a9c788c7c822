"""Fetching one page: what every worker of the fleet does. This and job.py are the parts to copy."""

from __future__ import annotations

import re
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import penstock

LINK = re.compile(r'href="([^"]+)"')


def fetch(page: dict, run: penstock.Run) -> dict:
    """Fetch a page and put its links. Whatever it raises, the page is tried again later."""
    url = page["url"]
    try:
        with urlopen(url, timeout=30) as answer:
            text = answer.read().decode()
    except HTTPError as error:
        if error.code in (404, 410):
            raise penstock.Bury(f"{error.code} {error.reason}: {url}") from None  # for a person to look at
        raise
    links = {urljoin(url, link) for link in LINK.findall(text)}
    # A put_id is remembered for as long as its task is kept: what was fetched is not fetched again.
    entries = [penstock.Entry({"url": link}, lane=urlsplit(link).hostname, put_id=link) for link in sorted(links)]
    run.tube.put_many(entries)
    return {"bytes": len(text), "links": len(links)}
