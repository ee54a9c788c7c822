"""Signals: real processes that are told to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crash.children import Child, Children, family
from tests.worker import roles
from tests.worker.bench import until
from tests.worker.conftest import DURABLE, FILES

import penstock


@pytest.fixture
def children() -> Iterator[Children]:
    with family() as children:
        yield children


@pytest.fixture(params=FILES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    url = request.param.url(tmp_path)
    yield url
    request.param.clean(url)


@pytest.fixture
def q(url: str) -> Iterator[Any]:
    with penstock.connect(url, durability="relaxed") as queue:
        yield queue


def started(children: Children, url: str, *tubes: str, stuck: float = 1000.0, **worker: Any) -> Child:
    """A worker for some tubes, whose loop is taken for stuck after so many seconds."""
    child = children.start(roles.program, url, {"tubes": tubes, **worker}, {}, stuck)
    assert child.line()[0] == "started"
    return child


def states(q: Any) -> list[tuple[str, str, int]]:
    return [(tube.name, task.state, task.attempt) for tube in q.tubes() for task in tube.tasks(limit=1000)]


on_both = pytest.mark.parametrize("url", DURABLE, indirect=True, ids=lambda engine: engine.name)


@on_both
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_lets_what_runs_finish(q: Any, url: str, children: Children, number: int) -> None:
    q.create_tube("loop").put(1)
    q.create_tube("thread").put(2)
    child = started(children, url, "loop", "thread")
    assert {child.line()[1], child.line()[1]} == {"loop", "thread"}
    os.kill(child.pid, number)
    child.tell("go")
    assert sorted(child.line()[:2] for _ in range(2)) == [["ran", "loop"], ["ran", "thread"]]
    assert child.line() == ["ended", 2, 0, 0]
    assert child.exit() == 0
    assert states(q) == []


def test_when_the_grace_is_over_all_is_given_back_and_the_process_ends(q: Any, url: str, children: Children) -> None:
    for name in ("loop", "thread", "stuck"):
        q.create_tube(name).put(name)
    child = started(children, url, "loop", "thread", "stuck", grace=0.1)
    assert {child.line()[1] for _ in range(3)} == {"loop", "thread", "stuck"}
    os.kill(child.pid, signal.SIGTERM)
    said = child.rest()
    assert ["told", "loop", "loop", "stopping"] in said
    assert ["ended", 0, 0, 3] in said  # nobody waits for the thread, which may say what it was told after that
    assert child.exit() == 0
    assert sorted(states(q)) == [(name, "ready", 0) for name in ("loop", "stuck", "thread")]


def test_the_second_signal_stops_at_once(q: Any, url: str, children: Children) -> None:
    for name in ("loop", "stuck"):
        q.create_tube(name).put(name)
    child = started(children, url, "loop", "stuck", grace=1000)
    assert {child.line()[1] for _ in range(2)} == {"loop", "stuck"}
    os.kill(child.pid, signal.SIGTERM)
    os.kill(child.pid, signal.SIGINT)
    assert child.rest()[-1] == ["ended", 0, 0, 2]
    assert child.exit() == 0
    assert sorted(states(q)) == [("loop", "ready", 0), ("stuck", "ready", 0)]


def test_a_handler_that_keeps_the_loop_busy_is_interrupted(q: Any, url: str, children: Children) -> None:
    q.create_tube("thread").put(2)
    q.create_tube("bad").put(1)
    child = started(children, url, "thread", "bad", stuck=0, grace=0)  # nothing starts after the bad one
    assert {child.line()[1] for _ in range(2)} == {"bad", "thread"}

    def again() -> bool:
        """One signal may be heard by another thread, and then a loop that is stuck does not notice it."""
        if child._process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
        return not child._process.is_alive()

    until(again)
    child.rest()
    assert sorted(states(q)) == [("bad", "ready", 0), ("thread", "ready", 0)]


def test_a_flood_of_signals_does_no_harm(q: Any, url: str, children: Children) -> None:
    q.create_tube("loop").put(1)
    q.create_tube("quick").put_many(range(500))
    child = started(children, url, "loop", "quick", grace=1000)

    def flood() -> bool:
        try:
            os.kill(child.pid, signal.SIGTERM)
            os.kill(child.pid, signal.SIGHUP)
        except ProcessLookupError:
            return True
        return False

    until(flood)  # after the worker's end, signals end the process as they always do
    ran = {line[2] for line in child.rest() if line[:2] == ["ran", "quick"]}
    assert all((state, attempt) == ("ready", 0) for _, state, attempt in states(q))
    left = {task.data for task in q.tube("quick").tasks(limit=1000)}
    assert left | ran == set(range(500))


PROGRAM = """
import os, signal, sys, threading
import penstock

q = penstock.connect(sys.argv[1])

@q.handler("jobs")
def job(n: int) -> None:
    print("began", flush=True)
    threading.Event().wait()

if __name__ == "__main__":
    if sys.argv[2] == "early":
        make = q._engine.twin
        q._engine.twin = lambda: (os.kill(os.getpid(), signal.SIGINT), make())[1]
    print(penstock.Worker(q, grace=0).run(), flush=True)
"""


def program(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, str(file), str(tmp_path / "tasks.db"), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_program_ends_although_a_handler_does_not(tmp_path: Path) -> None:
    with penstock.connect(tmp_path / "tasks.db") as q:
        q.create_tube("jobs").put(1)
    with program(tmp_path, "") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "<Tally ok 0, trouble 0, given back 1, lost 0>\n"), errors


def test_ctrl_c_while_a_worker_starts_stops_it(tmp_path: Path) -> None:
    with program(tmp_path, "early") as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "<Tally ok 0, trouble 0, given back 0, lost 0>\n"), errors


def test_a_worker_that_waits_for_nothing_ends_at_once(q: Any, url: str, children: Children) -> None:
    q.create_tube("quick")
    child = started(children, url, "quick")
    os.kill(child.pid, signal.SIGTERM)
    assert child.rest() == [["ended", 0, 0, 0]]
    assert child.exit() == 0
