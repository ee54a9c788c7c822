"""What a type checker knows about handlers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).resolve().parents[2]
# A line with a comment `# is ..` reveals a type, one with `# refused` has an error; the others have none.
PROGRAM = """
from dataclasses import dataclass
from typing import Any
import penstock
from penstock import Run

@dataclass
class Page:
    url: str

q = penstock.connect("memory:")

@q.handler("crawl", max_attempts=5, attempt_limit=30, retry=[1, 5, 30], ttl="derived", concurrency=4, keep=60)
def crawl(page: Page, deep: bool = False) -> list[str]:
    return [page.url]

@q.handler("check", retry=penstock.Exponential(jitter=0.1), kind="fifottl")
async def check(page: Page, run: Run) -> int:
    return run.attempt

@q.periodic("sweep", every=60, max_attempts=2)
def sweep(data: None) -> None: ...

@q.middleware
async def timed(run: Run, go_on: Any) -> object:
    return await go_on()

reveal_type(crawl(Page("x")))  # is list[str]
reveal_type(crawl(page=Page("x"), deep=True))  # is list[str]
crawl("x")  # refused
crawl(Page("x"), 3)  # refused
crawl()  # refused
reveal_type(sweep(None))  # is None
reveal_type(crawl.put(Page("x"), pri=3, delay=5, key="k").id)  # is int | str | tuple
crawl.put(Page("x"), pri="high")  # refused
crawl.put(Page("x"), priority=3)  # refused
crawl.put({"url": "x"})
crawl.put("x")  # refused
crawl.put()  # refused
crawl.put_many([{"url": "x"}, Page("y"), penstock.Entry(Page("z"), pri=1)])
crawl.put_many(["x"])  # refused
crawl.put_many(["x"], errors="return")  # refused
sweep.put(None)
sweep.put(3)  # refused
check.put(Page("x"))
check.put("x")  # refused
plain = q.handler("plain")(lambda data: data)
plain.put(3)
anything: penstock.Handler[..., Any] = crawl
anything.put(3)
penstock.Worker(q)
penstock.Worker("x")  # refused
reveal_type(crawl.put_many([Page("x")])[0])  # is Task
reveal_type(crawl.put_many([Page("x")], errors="return")[0])  # is Task | PenstockError
q.handler("other", max_attempts="many")  # refused
q.handler("other", retry="often")  # refused

async def main() -> None:
    aq = await penstock.aconnect("memory:")

    @aq.handler("crawl")
    async def crawl(page: Page) -> list[str]:
        return [page.url]

    reveal_type(await crawl(Page("x")))  # is list[str]
    reveal_type(await crawl.put(Page("x")))  # is AsyncTask
    reveal_type(await check(Page("x"), penstock.current_run()))  # is int
    crawl(3)  # refused
    await crawl.put("x")  # refused
    await crawl.put({"url": "x"})
    await crawl.put_many([3])  # refused
    penstock.Worker(aq)
"""


def plain(kind: str) -> str:
    """A type without the modules of its names."""
    return re.sub(r"[\w.]+\.(?=\w)", "", kind)


def test_a_decorated_function_keeps_its_types(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    words = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(file)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=100)
    found: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        if match := re.match(r".*program\.py:(\d+): (note|error): (.*)", line):
            found.setdefault(int(match[1]), []).append(match[3])
    for number, line in enumerate(PROGRAM.splitlines(), 1):
        told = found.get(number, [])
        if " # is " in line:
            wanted = line.partition(" # is ")[2]
            assert any(wanted in plain(text) for text in told), (line, told, done.stdout, done.stderr)
        elif " # refused" in line:
            assert told, (line, done.stdout, done.stderr)
        else:
            assert not told, (line, told)


@pytest.mark.parametrize(
    "name", ["Abort", "AsyncHandler", "Bury", "Handler", "Release", "Run", "Worker", "current_run"]
)
def test_what_programs_name_is_public(name: str) -> None:
    assert name in penstock.__all__
