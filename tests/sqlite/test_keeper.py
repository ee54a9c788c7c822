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
from penstock.engines import keeper, open_store
from penstock.engines.keeper import Trouble
from penstock.engines.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.db"
    with penstock.connect(str(path)) as q:
        q.create_tube("jobs", "fifo")
    return path


def keepers(path: Path) -> list[str]:
    """Of this file: another test may have left one that is about to end."""
    return [thread.name for thread in threading.enumerate() if thread.name == f"penstock keeper of sqlite:///{path}"]


def life_of_the_longest(path: Path) -> int:
    """When the session that lives longest ends, as the file has it."""
    look = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return look.execute("SELECT max(expires_at) FROM penstock_sessions").fetchone()[0]
    finally:
        look.close()


def test_the_session_of_a_holder_that_computes_without_a_break_is_kept_alive(path):
    with penstock.connect(str(path)) as q, family() as children:
        q.tube("jobs").put("work")
        holder = children.start(roles.hold_and_compute, str(path))
        assert holder.line() == ["holds", 1]
        before = life_of_the_longest(path)
        holder.tell("compute")
        assert holder.line() == ["kept", 1]
        assert life_of_the_longest(path) > before
        assert q.tube("jobs").take() is None, "the task was given to somebody else"
        holder.tell("end")
        assert holder.line() == ["acked", "success"]
        assert q.tube("jobs").statistics().calls["release"] == 0


def test_an_idle_store_moves_on_by_itself(path):
    """A delay that nobody waits for is over in the file, though nobody calls anything."""
    with penstock.connect(str(path)) as q:
        q.create_tube("later").put("x", delay=0.05)
        look = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        ready = "SELECT count(*) FROM penstock_tasks_2 WHERE state = 'ready'"
        until(lambda: look.execute(ready).fetchone()[0] == 1, "the delay is never over")
        look.close()


def test_one_keeper_serves_all_queues_of_a_store_and_ends_with_the_last(path):
    until(lambda: not keepers(path), "the keeper of the one before does not end")
    one, two = penstock.connect(str(path)), penstock.connect(str(path))
    assert len(keepers(path)) == 1
    one.close()
    assert len(keepers(path)) == 1
    two.close()
    until(lambda: not keepers(path), "the keeper does not end")


def test_a_keeper_that_fails_says_so_and_goes_on(path, monkeypatch, caplog):
    failed = threading.Event()
    beat = SqliteStore.beat

    def fail_once(self: SqliteStore) -> float:
        if self.name.endswith(str(path)) and not failed.is_set():
            failed.set()
            raise apsw.IOError("broken")
        return beat(self)

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if str(path) in record.getMessage()]

    monkeypatch.setattr(SqliteStore, "beat", fail_once)
    monkeypatch.setattr(keeper, "CALM", 0.1)
    with caplog.at_level(logging.WARNING, "penstock"), penstock.connect(str(path)) as q:
        assert failed.wait(90)
        q.tube("jobs").put("x")
        assert q.tube("jobs").take().data == "x"
        assert len(keepers(path)) == 1
        store = open_store(str(path))
        assert store is not None
        # Not to wait for the second after which it tries again.
        until(lambda: store._keeper.poke() or len(said()) > 1, "the end of the trouble is never said")
    first, second = said()
    assert "tries again each second: IOError: broken" in first and "again" in second
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
    assert store.closed
    until(lambda: not keepers(path), "the keeper does not end")
