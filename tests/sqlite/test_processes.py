"""Several processes on one file: each task once, each session on its own, runs that begin and end."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.crash.children import family
from tests.sqlite import roles
from tests.support import invariants

import penstock
from penstock import NotOwner
from penstock.engines import open_store

LIMIT = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.db"
    with penstock.connect(str(path)) as q:
        q.create_tube("jobs", "fifo")
    return path


def until(condition: Callable[[], Any]) -> Any:
    """Look again and again until something is true; nobody but the store does anything meanwhile."""
    pause = threading.Event()
    for _ in range(int(LIMIT / 0.02)):
        if found := condition():
            return found
        pause.wait(0.02)
    raise AssertionError("it does not become true")


def is_stopped(pid: int) -> bool:
    """Whether a process has been stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def end_session(path: Path, ttl: float) -> None:
    """The time of a session is over: to wait for it would show no more."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(int(LIMIT * 1000))
    ended = connection.execute(
        "UPDATE penstock_sessions SET expires_at = 1, ttl = 1 WHERE ttl = ? RETURNING 1", (int(ttl * 1_000_000),)
    ).fetchall()
    connection.close()
    assert ended == [(1,)]


def epoch(path: Path) -> int:
    connection = apsw.Connection(str(path))
    value = connection.execute("SELECT epoch FROM penstock_store").fetchone()[0]
    connection.close()
    return value


@pytest.mark.parametrize("kind", ["fifo", "utube", "standard"])
def test_four_processes_put_and_take_and_each_task_is_done_once(tmp_path, kind):
    path = tmp_path / "tasks.db"
    number = 40
    with penstock.connect(str(path)) as q, family() as children:
        q.create_tube("jobs", kind)
        workers = [children.start(roles.put_and_take, str(path), name, number) for name in "abcd"]
        for worker in workers:
            assert worker.line() == ["ready"]
        for worker in workers:
            worker.tell("go")
        lines = [line for worker in workers for line in worker.rest()]
        assert [worker.exit() for worker in workers] == [0] * 4
        assert sum(line == ["end"] for line in lines) == 4
        done = Counter(line[1] for line in lines if line[0] == "did")
        assert done == Counter(f"{name}:{n}" for name in "abcd" for n in range(number))
        statistics = q.tube("jobs").statistics()
        assert statistics.tasks["total"] == 0
        assert [statistics.calls[name] for name in ("put", "take", "ack")] == [4 * number] * 3
        invariants.check(str(path))


def test_a_waiting_take_is_woken_by_a_put_of_another_process(path):
    with family() as children:
        takers = [children.start(roles.take_and_say, str(path)) for _ in range(2)]
        for taker in takers:
            assert taker.line() == ["ready"]
        with penstock.connect(str(path)) as q:
            q.tube("jobs").put_many(["one", "two"])
            assert sorted(taker.line()[1] for taker in takers) == ["one", "two"]


def test_a_killed_holders_tasks_come_back_without_anybodys_help(path):
    """The second process calls nothing: its keeper alone gives the tasks back, as a raw look at the file shows."""
    with penstock.connect(str(path)) as q, family() as children:
        jobs = q.tube("jobs")
        jobs.put_many([1, 2, 3])
        holder = children.start(roles.hold, str(path), 1000, 2)
        assert holder.line()[1] == [1, 2]
        holder.kill()
        end_session(path, 1000)
        look = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        states = "SELECT count(*) FROM penstock_tasks_1 WHERE state = 'taken'"
        until(lambda: look.execute(states).fetchone()[0] == 0)
        look.close()
        assert [task.id for task in jobs.take_many(5)] == [1, 2, 3]
        assert jobs.statistics().calls["release"] == 2


def test_a_killed_holders_task_goes_to_a_taker_that_waits_in_another_process(path):
    with penstock.connect(str(path)) as q, family() as children:
        q.tube("jobs").put("work")
        holder = children.start(roles.hold, str(path), 1000, 1)
        assert holder.line()[1] == [1]
        taker = children.start(roles.take_and_say, str(path))
        assert taker.line() == ["ready"]
        holder.kill()
        end_session(path, 1000)
        assert taker.line() == ["took", "work"]


def test_a_holder_that_closes_gives_its_tasks_back_at_once(path):
    with penstock.connect(str(path)) as q, family() as children:
        jobs = q.tube("jobs")
        jobs.put("work")
        holder = children.start(roles.hold, str(path), 1000, 1)
        assert holder.line()[0] == "holds"
        with pytest.raises(NotOwner) as caught:
            jobs.ack(1)
        assert caught.value.owner.endswith(f":{holder.pid}")
        holder.tell("close")
        assert holder.line() == ["closed"]
        assert jobs.take().data == "work"


def test_a_process_that_was_stopped_for_longer_than_its_session_has_lost_its_lease(path):
    with penstock.connect(str(path)) as q, family() as children:
        jobs = q.tube("jobs")
        jobs.put("work")
        holder = children.start(roles.stop_and_go, str(path), 0.3)
        assert holder.line() == ["holds", 1]
        until(lambda: is_stopped(holder.pid))  # what is sent before that would not wake it
        task = until(lambda: jobs.take())
        assert task.data == "work" and task.attempt == 2
        os.kill(holder.pid, signal.SIGCONT)
        assert holder.line() == ["lost", "taken"]
        assert holder.line() == ["put", 2]
        assert task.ack().reason == "success"


# -- runs ----------------------------------------------------------------------------------------------


def test_the_next_open_after_the_last_process_was_killed_begins_a_run(path):
    with family() as children:
        with penstock.connect(str(path)) as q:
            q.create_tube("cache", "fifo", temporary=True).put_many([1, 2])
            q.tube("jobs").put_many([1, 2, 3])
            holder = children.start(roles.hold, str(path), 1000, 2)
            _, _, tokens = holder.line()
            first = epoch(path)
        holder.kill()
        with penstock.connect(str(path)) as q:
            jobs = q.tube("jobs")
            statistics = jobs.statistics()
            assert statistics.tasks["ready"] == 3 and statistics.tasks["taken"] == 0
            assert statistics.calls["put"] == statistics.calls["take"] == 0
            assert q.tube("cache").statistics().tasks["total"] == 0
            assert q.tube("cache").take() is None
            assert epoch(path) > first
            assert jobs.take().token > max(tokens)
            assert jobs.take().token >> 32 == epoch(path)


def test_no_run_begins_while_another_process_has_the_store_open(path):
    with family() as children:
        with penstock.connect(str(path)) as q:
            q.create_tube("cache", "fifo", temporary=True).put("kept")
            q.tube("jobs").put_many([1, 2])
            holder = children.start(roles.hold, str(path), 1000, 1)
            holder.line()
            first = epoch(path)
        with penstock.connect(str(path)) as q:
            assert epoch(path) == first
            assert q.tube("cache").take().data == "kept"
            statistics = q.tube("jobs").statistics()
            assert statistics.tasks["taken"] == 1
            assert statistics.calls["put"] == 2 and statistics.calls["take"] == 1
            with pytest.raises(NotOwner):
                q.tube("jobs").ack(1)


def test_runs_follow_each_other_and_every_epoch_is_higher(path):
    epochs = []
    for _ in range(3):
        penstock.connect(str(path)).close()
        epochs.append(epoch(path))
    assert epochs == sorted(set(epochs))


def test_a_store_that_was_closed_in_good_order_is_clean(path):
    def clean() -> int:
        connection = apsw.Connection(str(path))
        value = connection.execute("SELECT clean FROM penstock_store").fetchone()[0]
        connection.close()
        return value

    assert clean() == 1
    with family() as children:
        other = children.start(roles.put_when_told, str(path))
        other.line()
        with penstock.connect(str(path)):
            assert clean() == 0
        assert clean() == 0, "another process has it open"
        other.tell(None)
        assert other.line() == ["closed"]
        assert clean() == 1


def test_two_queues_of_one_process_share_a_store(path):
    with penstock.connect(str(path)) as one, penstock.connect(f"sqlite:///{path}") as two:
        assert one._engine.store is two._engine.store is open_store(str(path))
        one.tube("jobs").put(1)
        task = two.tube("jobs").take()
        with pytest.raises(NotOwner):
            one.tube("jobs").ack(task.id)
        one.close()
        assert task.ack().reason == "success"
    assert open_store(str(path)) is None


def test_a_change_of_tubes_in_one_process_is_seen_by_another(path):
    with penstock.connect(str(path)) as q, family() as children:
        putter = children.start(roles.put_when_told, str(path))
        putter.line()
        q.tube("jobs").drop()
        q.create_tube("jobs", "standard", capacity=100)
        putter.tell("new tube")
        assert putter.line() == ["put", 1]
        assert q.tube("jobs").take().data == "new tube"
        q.tube("jobs").pause()
        putter.tell("x")
        assert putter.line() == ["put", 2]
        assert q.tube("jobs").take() is None
