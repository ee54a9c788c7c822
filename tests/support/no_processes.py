"""A pytest plugin: with `--no-processes` a test that starts a process fails, so that `make quick` stays quick."""

from __future__ import annotations

import sys
from typing import Any

import pytest

STARTS = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
"""Audit events of the interpreter."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-processes", action="store_true", help="fail tests that start a process")


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    # Worker processes of xdist start no others; the process that starts them runs no tests.
    if session.config.getoption("no_processes") and hasattr(session.config, "workerinput"):
        sys.addaudithook(forbid_processes)


def forbid_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if event in STARTS:
        raise AssertionError(f"{event}{arguments} in the quick run: mark the test `processes`")
