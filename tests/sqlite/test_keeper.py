"""The thread that keeps sessions alive and does what is due."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import apsw
import pytest
from tests.crash.children import family
from tests.sqlite import roles
from tests.support.postgres import until

import penstock
from penstock.engines import open_store
from penstock.engines.keeper import Trouble
from penstock.engines.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.db"
    with penstock.connect(str(path)) as q:
        q.create_tube("jobs", "fifo")
    return path


def keepers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock keeper of sqlite:")]


def test_a_holder_that_computes_for_longer_than_its_session_lives_keeps_it(path):
    with penstock.connect(str(path)) as q, family() as children:
        q.tube("jobs").put("work")
        holder = children.start(roles.hold_and_compute, str(path), 1.0, 3.0)
        assert holder.line() == ["holds", 1]
        assert q.tube("jobs").take(timeout=2) is None, "the task was given to somebody else"
        assert holder.line() == ["acked", "success"]
        assert q.tube("jobs").statistics().calls["release"] == 0


def test_an_idle_store_moves_on_by_itself(path):
    """A delay that nobody waits for is over in the file, though nobody calls anything."""
    with penstock.connect(str(path)) as q:
        q.create_tube("later").put("x", delay=0.05)
        look = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        pause = threading.Event()
        for _ in range(3000):
            if look.execute("SELECT count(*) FROM penstock_tasks_2 WHERE state = 'ready'").fetchone()[0] == 1:
                break
            pause.wait(0.02)
        else:
            raise AssertionError("the delay is never over")
        look.close()


def test_one_keeper_serves_all_queues_of_a_store_and_ends_with_the_last(path):
    assert keepers() == []
    one, two = penstock.connect(str(path)), penstock.connect(str(path))
    assert len(keepers()) == 1
    one.close()
    assert len(keepers()) == 1
    two.close()
    assert keepers() == []


def test_a_keeper_that_fails_says_so_and_goes_on(path, monkeypatch, caplog):
    failed = threading.Event()
    beat = SqliteStore.beat

    def fail_once(self: SqliteStore) -> float:
        if not failed.is_set():
            failed.set()
            raise apsw.IOError("broken")
        return beat(self)

    monkeypatch.setattr(SqliteStore, "beat", fail_once)
    with caplog.at_level(logging.WARNING, "penstock"), penstock.connect(str(path), session_ttl=0.5) as q:
        assert failed.wait(30)
        q.tube("jobs").put("x")
        assert q.tube("jobs").take().data == "x"
        assert len(keepers()) == 1
        until(lambda: len(caplog.records) > 1, "the end of the trouble is never said")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and "tries again each second: IOError: broken" in said[0] and "again" in said[1], said
    assert "Traceback" not in caplog.text


def test_an_error_that_lasts_is_named_once_a_minute_without_its_traceback(caplog):
    moments = iter([*(float(second) for second in range(131)), 131.0, 134.0])
    trouble = Trouble("tasks.db", lambda: next(moments))
    with caplog.at_level(logging.INFO, "penstock"):
        for number in range(130):
            trouble.met(apsw.IOError(f"block {number} is broken\nHINT: mend it"))
        assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
        assert "IOError: block 0 is broken HINT: mend it" in caplog.text and "Traceback" not in caplog.text
        trouble.met(apsw.FullError("no room"))
        assert "FullError: no room" in caplog.records[-1].getMessage()
        trouble.over()
        assert len(caplog.records) == 4, "one good beat is no end of it"
        trouble.over()
        trouble.over()
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 4 + ["WARNING"]


def test_whoever_wants_to_see_where_an_error_came_from_asks_for_debug(caplog):
    with caplog.at_level(logging.DEBUG, "penstock"):
        try:
            raise apsw.IOError("broken")
        except apsw.IOError as error:
            Trouble("tasks.db").met(error)
    assert "Traceback" in caplog.text


def test_a_queue_that_is_dropped_without_close_leaves_the_next_one_alone(path):
    q = penstock.connect(str(path))
    store = open_store(str(path))
    assert store is not None
    q.tube("jobs").put(1)
    del q
    with penstock.connect(str(path)) as again:
        assert again.tube("jobs").take().data == 1
    assert store.closed and keepers() == []
