"""The demo with Spark. Without it, it is in tests/cli/test_demo.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[2]


def test_demo_fetches_pages_with_a_fleet_and_builds_a_report(spark, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    from crawl import pages
    from crawl.plan import Plan
    from crawl.web import Server, Web
    from crawl.with_spark import STAGES, build_report, fetch_pages

    web, fetched, reached = Web(2, 4, slowness=0.1), list[int](), list[str]()
    with Server(web) as server, penstock.connect(tmp_path / "crawl.db") as q:
        plan = Plan(tmp_path, server.url, len(web.pages), workers=1, slots=4)
        for name, value in plan.environment.items():
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        pages.create_tube(q, rate=50, retry=0.05).put_many([pages.entry(url) for url in web.maps])
        fetch_pages(spark, plan, fetched.append)
        report = build_report(spark, plan, reached.append)
    assert fetched[-1] == len(web.pages) and not web.fetched_twice()
    assert reached == list(STAGES) and "<svg" in report.read_text()


@pytest.mark.exhaustive
def test_demo_crawls_every_page_once_and_writes_a_report(tmp_path):
    folder = tmp_path / "demo"
    done = subprocess.run(
        [sys.executable, "-m", "crawl", "--folder", str(folder), "--sites", "3", "--pages", "16", "--fast"],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"examples{os.pathsep}src"},
    )
    out, lines = done.stdout, done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, ""), out + done.stderr
    assert not re.search("WARN|log4j", out)
    assert lines[0].startswith("2 Spark workers fetch 54 pages of 3 sites")
    assert "Fetch the pages: 54 of 54, " in out and "Build the report: " in out
    assert re.search(r"^all 3 sites +51 +6 +3 +yes ", out, re.MULTILINE)
    assert "All limits were held, and no pages were fetched twice." in lines
    assert f"Report: {folder / 'report.html'}" in lines
    assert len(lines) <= 22 and all(line.isprintable() for line in lines)
    assert "<svg" in (folder / "report.html").read_text()
