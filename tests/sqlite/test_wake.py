"""Waiting calls notice what other processes and connections do to the file."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.conftest import Background
from tests.crash.children import family
from tests.sqlite import roles

import penstock
from penstock.testing import waiting


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def in_line(q: penstock.Queue, call: Any) -> Background:
    before = waiting(q)
    background = Background(call)
    pause = threading.Event()
    while waiting(q) == before and background.running:
        pause.wait(0.001)
    return background


def test_each_put_of_another_process_wakes_one_taker(path):
    with penstock.connect(str(path)) as q, family() as children:
        jobs = q.create_tube("jobs", "fifo")
        takers = [in_line(q, lambda: jobs.take(timeout=60)) for _ in range(3)]
        putter = children.start(roles.put_when_told, str(path))
        assert putter.line() == ["ready"]
        for data in ("a", "b", "c"):
            putter.tell(data)
            assert putter.line()[0] == "put"
        assert [taker.result().data for taker in takers] == ["a", "b", "c"], "first come, first served"


def test_a_put_into_a_temporary_tube_wakes_too(path):
    # No sign of life of anybody writes to the other file meanwhile.
    with penstock.connect(str(path), session_ttl=float("inf")) as q, family() as children:
        jobs = q.create_tube("jobs", "fifo", temporary=True)
        putter = children.start(roles.put_when_told, str(path), "inf")
        assert putter.line() == ["ready"]
        taker = in_line(q, lambda: jobs.take(timeout=80))
        putter.tell("a")
        assert putter.line()[0] == "put"
        assert taker.result().data == "a"


def test_a_full_tube_has_room_again_when_another_process_acks(path):
    with penstock.connect(str(path)) as q, family() as children:
        jobs = q.create_tube("jobs", "limfifottl", capacity=1)
        jobs.put("first")
        producer = in_line(q, lambda: jobs.put("second", timeout=60))
        taker = children.start(roles.take_and_ack, str(path))
        assert taker.line() == ["holds", 1]
        assert taker.line() == ["acked", "success"]
        assert producer.result().data == "second"


def test_a_result_is_seen_when_another_process_acks(path):
    with penstock.connect(str(path)) as q, family() as children:
        jobs = q.create_tube("jobs", keep=True)
        task = jobs.put("first")
        watcher = in_line(q, lambda: jobs.wait(task.id, timeout=60))
        taker = children.start(roles.take_and_ack, str(path))
        assert taker.line() == ["holds", 1]
        assert watcher.result().reason == "success"


def test_a_delayed_task_of_another_process_is_served_when_it_is_due(path):
    with penstock.connect(str(path)) as q:
        jobs = q.create_tube("jobs")
        taker = in_line(q, lambda: jobs.take(timeout=60))
        own = apsw.Connection(str(path))
        own.set_busy_timeout(60_000)
        own.execute("BEGIN IMMEDIATE")
        jobs.put("later", delay=0.2, transaction=own)
        own.execute("COMMIT")
        own.close()
        assert taker.result().data == "later"


def test_a_taker_that_gives_up_is_in_nobodys_way(path):
    with penstock.connect(str(path)) as q:
        jobs = q.create_tube("jobs", "fifo")
        assert jobs.take(timeout=0.01) is None
        assert waiting(q) == 0
        assert jobs.put("x").state == "ready"
