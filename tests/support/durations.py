"""A pytest plugin: where the time of a run went, by folder of tests.

With `-n 2` the times of both processes are added, so the sum is about twice the time that passed. With
`--durations-json=FILE` the seconds of every test are written to a file instead; tools/suite.py adds up several.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-json", metavar="FILE", help="write the seconds of every test to FILE")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that prints, not one of xdist's workers
        config.pluginmanager.register(Durations(config.getoption("durations_json")), "penstock-durations")


class Durations:
    """Collects the reports of a run, and writes or prints them at its end."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._file is not None:
            Path(self._file).write_text(json.dumps(self._seconds))
        elif len(lines := list(by_folder(self._seconds))) > 2:
            terminalreporter.section("seconds by folder, all processes added")
            for line in lines:
                terminalreporter.line(line)


def by_folder(seconds: Mapping[str, float]) -> Iterator[str]:
    """Lines of a table: each folder of tests and its share, the longest first, and the sum."""
    folders: dict[str, list[float]] = defaultdict(list)
    for nodeid, duration in seconds.items():
        folders[folder_of(nodeid)].append(duration)
    for folder, durations in sorted(folders.items(), key=lambda entry: -sum(entry[1])):
        yield f"{sum(durations):8.1f} s {len(durations):6} tests  {folder}"
    yield f"{sum(seconds.values()):8.1f} s {len(seconds):6} tests  together"


def folder_of(nodeid: str) -> str:
    """The folder a test is counted under: `tests/NAME`, or the first folder elsewhere."""
    parts = nodeid.partition("::")[0].split("/")
    return "/".join(parts[:2]) if parts[0] == "tests" else parts[0]
