"""fork: the child has no queue, the parent's connections are untouched, and nobody's tasks are lost."""

from __future__ import annotations

import os

import pytest
from tests.crash.children import family
from tests.postgres import roles
from tests.sqlite import roles as common

import penstock


@pytest.fixture
def url(lent: str) -> str:
    with penstock.connect(lent) as q:
        q.create_tube("jobs", "fifo")
    return lent


def data(url: str) -> list[object]:
    with penstock.connect(url) as q:
        return [task.data for task in q.tube("jobs").tasks(limit=1_000_000)]


def test_a_child_cannot_use_its_parents_queue_and_the_parent_goes_on(url):
    with penstock.connect(url) as q:
        q.tube("jobs").put("work")
    with family() as children:
        child = children.start(common.forking, url)
        assert child.line() == ["parent", 1]
        assert child.line() == ["child", *["UsageError"] * 5]
        assert child.line() == ["child closed"]
        assert child.line() == ["parent", "success", "after", "RUNNING"]
        assert child.rest() == [] and child.exit() == 0
    assert data(url) == ["after"]


def test_a_parent_that_listens_and_waits_does_not_notice_its_child(url):
    with family() as children:
        child = children.start(roles.fork_with_open_connections, url)
        assert child.line() == ["parent", 0, "from the child", True], "on the very same connection as before"
        assert child.line() == ["acked", "success", 0]
        assert child.exit() == 0


@pytest.mark.parametrize("order", ["parent first", pytest.param("child first", marks=pytest.mark.exhaustive)])
def test_a_child_may_connect_anew_and_nothing_is_lost_whoever_closes_first(url, order):
    with family() as children:
        child = children.start(common.fork_and_connect, url, order)
        who, seen = child.line()
        expected = ["child 1", "parent 1", "child 2", "child 3" if order == "parent first" else "parent 2"]
        assert (who, seen) == ("child" if order == "parent first" else "parent", expected)
        assert child.line() == ["end"]
        assert child.exit() == 0
    assert data(url) == expected


def test_a_child_that_is_born_inside_a_transaction_cannot_harm_it(url):
    with family() as children:
        child = children.start(roles.fork_in_transaction, url)
        assert child.line() == ["child", "nothing", "UsageError"]
        assert child.line() == ["parent", ["before", "after"]]
        assert child.rest() == [] and child.exit() == 0
    assert data(url) == ["before", "after"]


def test_a_child_that_outlives_its_parent_does_not_keep_its_session_alive(url):
    with penstock.connect(url) as q, family() as children:
        q.tube("jobs").put("work")
        parent = children.start(roles.fork_and_die, url)
        said = dict([parent.line(), parent.line()])
        os.kill(parent.pid, 9)
        assert parent.exit() == -9
        os.kill(said["child"], 0)
        assert q.tube("jobs").take(timeout=60).id == said["parent"]
        parent.tell("end")
        parent.rest()


@pytest.mark.parametrize("forks", [3, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_a_process_may_fork_while_its_threads_are_busy(url, forks):
    with family() as children:
        child = children.start(common.fork_while_busy, url, forks)
        _, statuses, counted, ready = child.line()
        assert child.exit() == 0
    assert statuses == [0] * forks
    assert ready == counted + forks
    assert len(data(url)) == ready
