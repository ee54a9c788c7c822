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
    # With -n, the process that starts the others runs no tests.
    is_controller = bool(session.config.getoption("numprocesses", None)) and not hasattr(session.config, "workerinput")
    if session.config.getoption("no_processes") and not is_controller:
        sys.addaudithook(forbid_processes)


def forbid_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if event in STARTS:
        raise AssertionError(f"{event}{arguments} in the quick run: mark the test `processes`")
