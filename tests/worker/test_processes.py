"""Handlers in processes of their own."""

from __future__ import annotations

import functools
import importlib
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.engines import parameters
from tests.worker import crunching
from tests.worker.bench import PATIENCE, Later, Working, until, until_state, work
from tests.worker.conftest import ONE_EACH
from tests.worker.crunching import DEEDS, Order

import penstock
from penstock import UsageError
from penstock.testing import ManualClock
from penstock.worker import processes

ROOT = Path(__file__).resolve().parents[2]
BIG = (1 << 20) - 2


EXPECTED: dict[str, tuple[str, str | None, str]] = {  # state, reason, and what its error or result has in it
    "return": ("done", "success", "{'ä': [1, None, '\U0001f600']}"),
    "object": ("buried", "aborted", "the work was done, but its result cannot be stored"),
    "coroutine": ("buried", "no_attempts", "plain function"),
    "raise": ("buried", "no_attempts", "ValueError: odd ä\ufffd?"),
    "odd": ("buried", "no_attempts", "Odd: "),
    "exit": ("buried", "no_attempts", "SystemExit: 3"),
    "interrupt": ("buried", "no_attempts", "KeyboardInterrupt"),
    "abort": ("buried", "aborted", "no such page"),
    "wrapped": ("buried", "aborted", "no such page"),
    "bury": ("buried", "asked", "needs ? a look"),
    "group": ("buried", "asked", "in a group"),
    "release": ("delayed", None, ""),
    "until": ("delayed", None, ""),
    "never": ("buried", "no_attempts", "delay"),
    "kill": ("buried", "no_attempts", "SIGKILL"),
    "quit": ("buried", "no_attempts", "exit code 3"),
    "ack": ("buried", "no_attempts", "by returning or raising"),
}


@pytest.mark.parametrize("pair", parameters(ONE_EACH[::2][:2], in_every_run=("memory-blocking",)))
def test_what_a_handler_does_in_a_process_ends_its_task_as_elsewhere(q: Any) -> None:
    handler = q.handler("jobs", process=True, keep=True, max_attempts=1)(crunching.act)
    ids = {do: handler.put(Order(do, {"ä": [1, None, "\U0001f600"]})).id for do in EXPECTED}
    bad = q.tube("jobs").put({"no": "order"}).id
    tally = work(q, processes=1, horizon=60)
    for do, (state, reason, text) in EXPECTED.items():
        task = q.tube("jobs").peek(ids[do])
        assert (task.state, task.reason) == (state, reason), (do, task.error)
        assert text in (task.error or str(task.result)), do
    raised = q.tube("jobs").peek(ids["raise"]).error.splitlines()
    assert "in act" in raised[1] and not any("penstock/worker" in line for line in raised)
    assert "the data are no Order" in q.tube("jobs").peek(bad).error
    assert (tally.ok, tally.lost) == (3, 0)


def test_a_process_lives_from_task_to_task_and_a_new_one_follows_a_crash() -> None:
    q = penstock.connect("memory:")
    handler = q.handler("jobs", process=True, keep=True, max_attempts=1)(crunching.act)
    orders = ["count", "pid", "count", "quit", "count", "pid"]
    tasks = [handler.put(Order(do)) for do in orders]
    work(q, processes=1, concurrency=1)
    results = [q.tube("jobs").peek(task.id).result for task in tasks]
    assert (results[0], results[2], results[4]) == (1, 2, 1)
    assert len({results[1], results[5], os.getpid()}) == 3


def test_what_a_crashed_process_leaves_behind_holds_nobody_up() -> None:
    q = penstock.connect("memory:")
    task = q.handler("jobs", process=True, max_attempts=1)(crunching.act).put(Order("fork"))
    work(q, processes=1)
    error = q.tube("jobs").peek(task.id).error
    assert error == "the process of the handler ended with exit code 4 in the middle of the task"


def test_tasks_run_in_as_many_processes_as_there_may_be() -> None:
    q = penstock.connect("memory:")
    handler = q.handler("jobs", process=True, keep=True)(crunching.act)
    tasks = [handler.put(Order("pid")) for _ in range(12)]
    work(q, processes=2, concurrency=6)
    pids = {q.tube("jobs").peek(task.id).result for task in tasks}
    assert 1 <= len(pids) <= 2 and os.getpid() not in pids


def test_a_process_that_dies_while_idle_costs_nothing() -> None:
    q = penstock.connect("memory:")
    handler = q.handler("jobs", process=True, keep=True, max_attempts=1)(crunching.act)
    tube = q.create_tube("jobs", max_attempts=1)
    with Working(q, processes=1):
        pid = until_state(tube, handler.put(Order("pid"), keep=True).id, "done").result
        os.kill(pid, signal.SIGKILL)
        task = until_state(tube, handler.put(Order("pid"), keep=True).id, "done")
    assert (task.attempt, task.result != pid) == (1, True)


LIMIT = 600.0
"""Seconds that a run may last; over when a test says so."""


def words(file: Path) -> list[str]:
    """What is in a file as soon as there is something."""
    found: list[str] = until(lambda: file.exists() and file.read_text().split())
    return found


def test_a_handler_over_its_limit_is_killed(
    still_memory: Any, clock: ManualClock, later: Later, tmp_path: Path
) -> None:  # case 288
    file = tmp_path / "pid"
    spin = still_memory.handler("spin", process=True, attempt_limit=LIMIT, max_attempts=1)(crunching.spin)
    task = spin.put(str(file))
    with Working(still_memory, processes=1) as working:
        (pid,) = words(file)
        later(LIMIT)
        until(lambda: working.tally.lost)
        clock.advance(LIMIT)
        found = until_state(still_memory.tube("spin"), task.id, "buried")
    assert (found.reason, working.tally.lost) == ("lost", 1)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def taken(q: Any) -> int:
    """How many tasks are taken in all tubes."""
    return sum(tube.tasks["taken"] for tube in q.statistics().values())


def test_tasks_are_not_taken_before_there_is_a_process_for_them(
    still_memory: Any, later: Later, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"process": True, "keep": True, "attempt_limit": LIMIT, "max_attempts": 1}
    act = still_memory.handler("act", **options)(crunching.act)
    also = still_memory.handler("also", **options)(crunching.act)
    gate = tmp_path / "gate"
    with Working(still_memory, processes=1, concurrency=10) as working:
        act.put(Order("wait", str(gate)), ttr=100 * LIMIT)  # which keeps the process
        until(lambda: working.tally.busy)
        act.put_many([Order("return")] * 3)
        also.put_many([Order("return")] * 3)
        until(lambda: taken(still_memory) == 1)
        later(LIMIT)
        gate.touch()
        until(lambda: working.tally.ok + working.tally.trouble + working.tally.lost == 7)
    assert (working.tally.ok, working.tally.lost) == (7, 0)


def is_there(pid: int) -> bool:
    """Whether a process runs; one that is dead and that nobody has asked about does not."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip()[:1] not in ("", "Z")


def test_what_a_handler_over_its_limit_has_started_ends_with_it(
    still_memory: Any, later: Later, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    handler = still_memory.handler("jobs", process=True, attempt_limit=LIMIT, max_attempts=1)(crunching.leave_behind)
    handler.put(str(file))
    with Working(still_memory, processes=1) as working:
        pids = words(file)
        later(LIMIT)
        until(lambda: working.tally.lost)
    assert len(pids) == 2
    until(lambda: not any(is_there(int(pid)) for pid in pids))


SLOW = """
import pathlib, threading, penstock
q = penstock.connect("memory:")
here = pathlib.Path(__file__).parent
with (here / "importing").open("a") as file:
    file.write("x ")
while not (here / "go").exists():
    threading.Event().wait(0.005)

def total(numbers):
    return sum(numbers)
"""


def test_the_time_of_a_task_does_not_run_while_its_process_starts(
    still_memory: Any, later: Later, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    importing, go = tmp_path / "importing", tmp_path / "go"
    go.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    slow = importlib.import_module("slow_to_import")
    options: dict[str, Any] = {"process": True, "keep": True, "attempt_limit": LIMIT, "max_attempts": 1}
    handler = still_memory.handler("jobs", **options)(slow.total)
    also = still_memory.handler("also", **options)(crunching.act)

    def starts_slowly(number: int) -> None:
        """Put a task while a process starts, the so-manieth that imports the module."""
        task = handler.put([number])
        until(lambda: len(words(importing)) == number)
        until(lambda: taken(still_memory) == 0)
        later(LIMIT)
        go.touch()
        assert until_state(still_memory.tube("jobs"), task.id, "done").result == number
        go.unlink()

    go.unlink()
    with Working(still_memory, processes=1) as working:
        starts_slowly(2)
        until_state(still_memory.tube("also"), also.put(Order("kill")).id, "buried")
        starts_slowly(3)
    assert (working.tally.ok, working.tally.trouble, working.tally.lost) == (2, 1, 0)


def test_one_process_has_one_task_although_several_tubes_have_some_at_once(tmp_path: Path) -> None:
    q = penstock.connect("memory:")
    names = [f"tube-{n}" for n in range(4)]
    handlers = [q.handler(name, process=True, keep=True, max_attempts=1)(crunching.act) for name in names]
    gate = tmp_path / "gate"
    with Working(q, processes=1, concurrency=10) as working:
        handlers[0].put(Order("return"))
        until(lambda: working.tally.ok)
        until(lambda: all(line.waiter for line in working.worker._slots.fetcher.lines.values() if line.in_process))
        tubes = [q.tube(name) for name in names]
        with q.transaction() as together:
            for tube in tubes:
                tube.put({"do": "wait", "with_": str(gate)}, transaction=together)
        until(lambda: working.tally.busy)
        until(lambda: taken(q) == 1)
        gate.touch()
        until(lambda: working.tally.ok + working.tally.lost == 5)
    assert (working.tally.ok, working.tally.lost) == (5, 0)
    assert [task.attempt for tube in tubes for task in tube.tasks()] == [1] * 5


def test_a_process_is_ready_before_there_is_a_task_and_again_after_a_crash() -> None:
    q = penstock.connect("memory:")
    handler = q.handler("jobs", process=True, max_attempts=1)(crunching.act)
    with Working(q, processes=2) as working:
        until(lambda: working.worker._slots and working.worker._slots.runners.processes == 1)
        task = handler.put(Order("kill"))
        until_state(q.tube("jobs"), task.id, "buried")
        until(lambda: working.worker._slots.runners.processes)


def test_a_worker_that_is_told_to_stop_now_kills_what_runs(tmp_path: Path) -> None:
    q = penstock.connect("memory:")
    file = tmp_path / "pid"
    task = q.handler("jobs", process=True)(crunching.spin).put(str(file))
    with Working(q, processes=1) as working:
        until(lambda: file.exists() and file.read_text())
        tally = working.stop(now=True)
    assert tally.given_back == 1
    found = q.tube("jobs").peek(task.id)
    assert (found.state, found.attempt) == ("ready", 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_a_handler_in_a_process_knows_its_run() -> None:
    q = penstock.connect("memory:")
    handler = q.handler("jobs", process=True, keep=True, attempt_limit=600, max_attempts=2)(crunching.facts)
    task = handler.put({"n": 1}, lane="a", key="k", pri=7)
    work(q, processes=1)
    told = q.tube("jobs").peek(task.id).result
    assert told["task"] == [task.id, "jobs", {"n": 1}, "a", "k", 7, 2]
    assert (told["same"], told["attempt"]) == (True, [1, False, False])
    assert 0 < told["left"] <= 600 and isinstance(told["token"], int)
    assert told["facts"] == {"tube": "jobs", "task_id": task.id, "attempt": 1, "lane": "a", "key": "k"}
    assert told["argv"] == sys.argv
    assert told["path"] == ("PYTHONPATH" in os.environ)


def test_big_data_go_both_ways(q: Any) -> None:
    handler = q.handler("jobs", process=True, keep=True, max_payload=2 << 20)(crunching.act)
    blobs = q.handler("blobs", process=True, keep=True)(crunching.blob)
    tasks = [handler.put(Order("return", "x" * BIG)), handler.put(Order("return", "ä" * (BIG // 2)))]
    blob = blobs.put(b"\xff\x00" * (1 << 19))
    assert work(q, processes=1).ok == 3
    assert [len(q.tube("jobs").peek(task.id).result) for task in tasks] == [BIG, BIG // 2]
    assert q.tube("blobs").peek(blob.id).result == 1 << 20


def test_a_function_is_found_by_its_name() -> None:
    q = penstock.connect("memory:")
    found = {
        "total": (q.handler("total", process=True, keep=True)(crunching.total), [1, 2], 3),
        "static": (q.handler("static", process=True, keep=True)(crunching.Shelf.static), None, "static"),
        "class": (q.handler("class", process=True, keep=True)(crunching.Shelf.of_class), None, "Shelf"),
        "math": (q.handler("math", process=True, keep=True)(math.factorial), 5, 120),
        "one": (q.handler("one", process=True, keep=True)(crunching.first), None, "one"),
        "two": (q.handler("two", process=True, keep=True)(crunching.same), None, "two"),
        "hidden": (q.handler("hidden", process=True, keep=True)(crunching.q.handlers["hidden"]), None, "found"),
    }
    ids = {name: handler.put(data).id for name, (handler, data, _) in found.items()}
    work(q, processes=1)
    for name, (_, _, result) in found.items():
        task = q.tube(name).peek(ids[name])
        assert task.result == result, (name, task.error)


@pytest.mark.parametrize(
    "function",
    [lambda data: None, functools.partial(crunching.total), crunching.Shelf().method, (lambda: lambda data: 1)()],
    ids=["a lambda", "a partial", "a method of an object", "a function in a function"],
)
def test_what_has_no_name_in_a_module_is_refused_when_it_is_decorated(function: Any) -> None:
    q = penstock.connect("memory:")
    with pytest.raises(UsageError, match="top of a module"):
        q.handler("jobs", process=True)(function)


def test_a_process_that_cannot_start_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    q = penstock.connect("memory:")
    monkeypatch.setattr(processes, "BOOT", "raise SystemExit(5)")
    task = q.handler("jobs", process=True, max_attempts=1)(crunching.total).put([1])
    assert work(q, processes=1).trouble == 1
    assert "when it is started" in q.tube("jobs").peek(task.id).error


@pytest.mark.parametrize("number", [0, -1, 1.5, "two"])
def test_a_worker_has_at_least_one_process(number: Any) -> None:
    with pytest.raises(UsageError, match="processes"):
        penstock.Worker(penstock.connect("memory:"), processes=number)


# -- programs --------------------------------------------------------------------------------------

SCRIPT = """
import os, sys, penstock
from dataclasses import dataclass

q = penstock.connect(sys.argv[1])

@dataclass
class Page:
    url: str

@q.handler("pages", process=True, keep=True, max_attempts=1)
def crawl(page: Page, run: penstock.Run) -> str:
    print("crawling", page.url, __name__)
    print("a word", file=sys.stderr)
    return f"{page.url} {os.getpid()}"
"""
MAIN = """
if __name__ == "__main__":
    penstock.worker.processes.TIME_TO_END = 60
    task = crawl.put(Page("ä"))
    tally = penstock.Worker(q, processes=1).run(until_empty=True)
    print(tally.ok, q.tube("pages").peek(task.id).result == f"ä {os.getpid()}")
"""
NO_GUARD = """
task = crawl.put(Page("ä"), key="one", on_conflict="ignore")
tally = penstock.Worker(q, processes=1).run(until_empty=True)
print(q.tube("pages").peek(task.id).error)
"""


def ran(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, *words, str(tmp_path / "tasks.db")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize("how", ["a file", "a package"])
def test_a_program_that_is_started_may_have_handlers_for_processes(tmp_path: Path, how: str) -> None:
    if how == "a package":
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "__init__.py").touch()
    file = tmp_path / ("shop/__main__.py" if how == "a package" else "shop.py")
    file.write_text(SCRIPT + MAIN)
    done = ran(tmp_path, *(["shop.py"] if how == "a file" else ["-m", "shop"]))
    name = "__penstock_main__" if how == "a file" else "shop.__main__"
    assert done.stdout.splitlines() == [f"crawling ä {name}", "1 False"], done.stderr
    assert done.stderr == "a word\n"


def test_a_program_without_a_guard_is_told(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SCRIPT + NO_GUARD)
    done = ran(tmp_path, "shop.py")
    assert done.returncode == 0, done.stderr
    assert 'if __name__ == "__main__"' in done.stdout


def test_a_function_that_was_typed_in_is_refused(tmp_path: Path) -> None:
    done = ran(tmp_path, "-c", SCRIPT)
    assert done.returncode == 1
    assert "must be in a file" in done.stderr


ORPHANS = """
import penstock
from tests.support.engines import parameters
from tests.worker import crunching

if __name__ == "__main__":
    q = penstock.connect("memory:")
    q.handler("jobs", process=True)(crunching.leave_behind).put("pids")
    penstock.Worker(q, processes=2).run()
"""


def test_processes_end_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(ORPHANS)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    pids = tmp_path / "pids"
    with subprocess.Popen([sys.executable, "shop.py"], cwd=tmp_path, env=environment) as worker:
        until(lambda: pids.exists() and pids.read_text())
        worker.kill()
    until(lambda: not any(is_there(int(pid)) for pid in pids.read_text().split()))


def test_every_deed_is_expected_or_used_elsewhere() -> None:
    assert set(DEEDS) - set(EXPECTED) == {"pid", "count", "fork", "wait"}
