"""fork: the child has no queue, the parent keeps its own, and nobody's tasks are lost."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest
from tests.crash.children import family
from tests.sqlite import roles
from tests.support import invariants

import penstock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.db"
    with penstock.connect(str(path)) as q:
        q.create_tube("jobs", "fifo")
    return path


def data(path: Path) -> list[object]:
    with penstock.connect(str(path)) as q:
        invariants.check(str(path))
        return [task.data for task in q.tube("jobs").tasks(limit=1_000_000)]


def test_a_child_cannot_use_its_parents_queue_and_the_parent_goes_on(path):
    with penstock.connect(str(path)) as q:
        q.tube("jobs").put("work")
    with family() as children:
        child = children.start(roles.forking, str(path))
        assert child.line() == ["parent", 1]
        assert child.line() == ["child", *["UsageError"] * 5]
        assert child.line() == ["child closed"]
        assert child.line() == ["parent", "success", "after", "RUNNING"]
        assert child.rest() == [] and child.exit() == 0
    assert data(path) == ["after"]


@pytest.mark.parametrize("order", ["parent first", "child first"])
def test_a_child_may_connect_anew_and_nothing_is_lost_whoever_closes_first(path, order):
    with family() as children:
        child = children.start(roles.fork_and_connect, str(path), order)
        who, seen = child.line()
        expected = ["child 1", "parent 1", "child 2", "child 3" if order == "parent first" else "parent 2"]
        assert (who, seen) == ("child" if order == "parent first" else "parent", expected)
        assert child.line() == ["end"]
        assert child.exit() == 0
    assert data(path) == expected
    assert apsw.Connection(str(path)).pragma("integrity_check") == "ok"


def test_a_child_that_is_born_inside_a_transaction_cannot_harm_it(path):
    with family() as children:
        child = children.start(roles.fork_in_transaction, str(path))
        assert child.line() == ["child", "UsageError", "UsageError"]
        assert child.line() == ["parent", ["before", "after"]]
        assert child.rest() == [] and child.exit() == 0
    assert data(path) == ["before", "after"]


def test_a_child_that_outlives_its_parent_does_not_keep_the_run_alive(path):
    with penstock.connect(str(path)) as q:
        q.tube("jobs").put("work")
    with family() as children:
        parent = children.start(roles.fork_and_die, str(path))
        said = dict([parent.line(), parent.line()])
        os.kill(parent.pid, 9)
        assert parent.exit() == -9
        os.kill(said["child"], 0)
        with penstock.connect(str(path)) as q:
            assert q.tube("jobs").statistics().calls["take"] == 0, "no run has begun"
            assert q.tube("jobs").take().id == said["parent"]
        parent.tell("end")
        parent.rest()


def test_a_process_may_fork_while_its_threads_are_busy(path):
    with family() as children:
        child = children.start(roles.fork_while_busy, str(path), 15)
        _, statuses, counted, ready = child.line()
        assert child.exit() == 0
    assert statuses == [0] * 15
    assert ready == counted + 15
    assert len(data(path)) == ready
