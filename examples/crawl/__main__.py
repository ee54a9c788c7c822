"""The program: starts the web, crawls it with Spark or without, and prints what happened."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

import penstock
from crawl import pages
from crawl.plan import Plan
from crawl.progress import Screen
from crawl.summary import Site, make_table, summarize
from crawl.web import Server, Web
from penstock.pipeline.java import LEAST, find_java, java_hint

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "demo"
RATE, OWN_RATE = 2.0, 5.0
"""Requests a second to a site, and to the one site that allows more."""


def run(folder: Path, options: argparse.Namespace, screen: Screen) -> int:
    """Crawl a new web and return the exit status: 1 if a limit was not held or a page was fetched twice."""
    missing = explain_missing(options.no_spark)
    pace = 10.0 if options.fast else 1.0
    web = Web(options.sites, options.pages, slowness=1 / pace)
    limits = dict.fromkeys(web.sites, RATE * pace) | {web.sites[0]: OWN_RATE * pace}
    screen.print(
        f"{options.workers} {'local' if missing else 'Spark'} workers fetch {len(web.pages)} pages of {len(web.sites)} "
        f"sites, at most {RATE * pace:g} a second from each"
    )
    if missing:
        from crawl.without_spark import crawl
    else:
        from crawl.with_spark import crawl
    with Server(web) as server, penstock.connect(folder / "crawl.db") as q:
        tube = pages.create_tube(q, rate=RATE * pace, retry=0.5 / pace)
        tube.lane(web.sites[0]).configure(rate=OWN_RATE * pace)

        def put_maps() -> None:
            with screen.phase("Put the site maps", len(web.maps)) as advance:
                advance(len(tube.put_many([pages.entry(url) for url in web.maps])))

        plan = Plan(folder, server.url, len(web.pages), options.workers, options.slots)
        report = crawl(plan, screen, put_maps)
        sites = summarize(q, limits)
    print_results(screen, web, sites)
    print_next_steps(screen, plan, report, missing)
    return 1 if web.fetched_twice() or not all(site.is_held for site in sites) else 0


def explain_missing(no_spark: bool) -> str | None:
    """Return None if Spark can be used, else why it is not and how to get it."""
    command = "make demo"
    if no_spark:
        reason = "--no-spark was given"
    elif not (java := find_java()).is_enough:
        reason, command = f"Spark needs Java {LEAST} or later, and {java.problem}", f"{java_hint()}, then make demo"
    elif not all(find_spec(name) for name in ("pyspark", "pyarrow", "pandas")):
        reason = "pyspark is not installed"
    else:
        return None
    return f"No Spark and no report: {reason}. To get both: {command}"


def print_results(screen: Screen, web: Web, sites: list[Site]) -> None:
    """Print the table, and whether the crawl was correct."""
    screen.print()
    screen.console.print(make_table(sites))
    broken = [site.name for site in sites if not site.is_held]
    limits = f"The limits of {', '.join(broken)} were NOT held" if broken else "All limits were held"
    screen.print(f"{limits}, and {len(web.fetched_twice()) or 'no'} pages were fetched twice.")


def print_next_steps(screen: Screen, plan: Plan, report: Path | None, missing: str | None) -> None:
    """Print where the report is, or how to get one, and what to try with the queue."""
    screen.print()
    screen.print(f"Report: {shorten(report)}" if report else missing or "")
    screen.print("Try next:")
    program, queue = find_program(), shorten(Path(plan.url))
    screen.print(f"  {program} tubes --url {queue}")
    screen.print(f"  {program} tasks pages --state buried --url {queue}")
    screen.print(f"  less {shorten(ROOT / 'docs' / 'tutorial.md')}")


def find_program() -> str:
    """Return how to start the program `penstock` of this Python from a shell."""
    program = Path(sys.executable).with_name("penstock")
    return "penstock" if shutil.which("penstock") == str(program) or not program.exists() else shorten(program)


def shorten(path: Path) -> str:
    """Return a path as a user types it in the current folder."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def check_folder(parser: argparse.ArgumentParser, folder: Path) -> None:
    """Refuse to empty a folder that a demo has not made."""
    is_ours = folder == FOLDER or not folder.exists() or (folder / "crawl.db").exists()
    if not is_ours and (not folder.is_dir() or any(folder.iterdir())):
        parser.error(f"--folder {folder} would be emptied, and has no crawl.db of a demo; name a new or empty folder")


def main() -> int:
    """Read the options, and crawl."""
    parser = argparse.ArgumentParser(prog="crawl", description="A polite crawl of a small web on this machine.")
    parser.add_argument("--sites", type=int, default=24, help="how many sites")
    parser.add_argument("--pages", type=int, default=24, help="how many pages a site has")
    parser.add_argument("--workers", type=int, default=2, help="how many workers fetch, each a process")
    parser.add_argument("--slots", type=int, default=16, help="how many pages a worker fetches at once")
    parser.add_argument("--fast", action="store_true", help="ten times as fast")
    parser.add_argument("--no-spark", action="store_true", help="local workers, without Spark and a report")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the queue, lake and report; it is emptied")
    options = parser.parse_args()
    check_folder(parser, options.folder)
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    folder = options.folder.resolve()
    # Colours for files, which FORCE_COLOR asks for, would put control characters into them.
    screen = Screen(Console(highlight=False, force_terminal=sys.stdout.isatty()))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # as Ctrl-C: no worker is left running
    try:
        return run(folder, options, screen)
    except KeyboardInterrupt:
        screen.print(f"Interrupted: the queue is {shorten(folder / 'crawl.db')}")
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
