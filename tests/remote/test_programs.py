"""Programs over a server: the command line, and a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.forks import ForkedShell
from tests.worker.bench import work


def test_commands_work_on_a_server(url: str, near: Any, tmp_path: Path) -> None:
    shell = ForkedShell(url, tmp_path)
    near.create_tube("jobs")
    assert shell.run("put", "jobs", '{"a": 1}').status == 0
    assert "jobs" in shell.run("top", "--once", "--interval", "0.1").out
    taken = shell.run("take", "jobs", "--hold", "60")
    assert '{"a": 1}' in taken.out
    assert near.tube("jobs").peek(1).state == "taken", "it stays taken when the command has ended"
    refused = shell.run("doctor")
    assert refused.status == 64 and "where the server runs" in refused.err


def test_a_worker_runs_handlers_over_a_server(near: Any) -> None:
    done: list[int] = []

    @near.handler("squares", max_attempts=2)
    def square(n: int) -> None:
        done.append(n * n)

    for n in range(50):
        square.put(n)
    work(near)
    assert sorted(done) == [n * n for n in range(50)]
