"""Opening a file: what is refused, what is asserted, what is looked at after an unclean stop."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.crash.children import Wire, family
from tests.support import postgres

import penstock
from penstock import EngineUnavailable, SchemaMismatch, UsageError
from penstock.engines import open_store
from penstock.engines.sqlite.database import Database, check_library
from penstock.testing import new_run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.mark.parametrize("version", ["3.7.17", "3.51.2", "3.50.9"])
def test_a_library_that_can_corrupt_a_shared_file_is_refused(version):
    with pytest.raises(EngineUnavailable, match="upgrade apsw") as caught:
        check_library(version)
    assert caught.value.outcome == "not_done"


@pytest.mark.parametrize("version", ["3.51.3", "3.52.0", "4.0.0", "3.54.1.2"])
def test_a_newer_library_is_taken(version):
    check_library(version)


def test_a_store_checks_the_library_it_is_opened_with(path, monkeypatch):
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.8.0")
    with pytest.raises(EngineUnavailable, match=r"3\.8\.0"):
        penstock.connect(str(path))


def test_a_file_that_is_no_database_is_refused_and_left_alone(path):
    text = b"just some notes\n" * 500
    path.write_bytes(text)
    with pytest.raises(UsageError, match="not a SQLite database"):
        penstock.connect(str(path))
    assert path.read_bytes() == text


def test_a_folder_is_no_store_and_nothing_is_left_beside_it(tmp_path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    with pytest.raises(EngineUnavailable, match="is a folder, not a file; name a file in it"):
        penstock.connect(str(folder))
    assert list(tmp_path.iterdir()) == [folder]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(EngineUnavailable, match=r"nowhere/tasks.db.*folder"):
        penstock.connect(str(tmp_path / "nowhere" / "tasks.db"))
    assert not (tmp_path / "nowhere").exists()


def open_as_nobody(wire: Wire, *urls: str) -> None:
    """Root may write everywhere, so be somebody else."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    for url in urls:
        try:
            penstock.connect(url)
        except EngineUnavailable as error:
            wire.say("refused", str(error), error.outcome)
        else:
            wire.say("opened")


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that others can come to: pytest shuts the way to its own whenever another run of it begins."""
    made = postgres.folder("penstock-open")
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def refused(*urls: str) -> list[str]:
    """What somebody is told who may not open any of these."""
    with family() as children:
        child = children.start(open_as_nobody, *urls)
        lines = [child.line() for _ in urls]
    assert all((line[0], line[2]) == ("refused", "not_done") for line in lines), lines
    return [line[1] for line in lines]


def test_a_folder_in_which_one_may_not_write_is_named(folder):
    folder.chmod(0o555)
    (told,) = refused(str(folder / "tasks.db"))
    assert str(folder / "tasks.db") in told
    assert list(folder.iterdir()) == []


def test_a_folder_that_one_may_not_enter_is_named(folder):
    path = folder / "inside" / "tasks.db"
    path.parent.mkdir()
    penstock.connect(path).close()
    folder.chmod(0o600)
    for told in refused(str(path), f"sqlite:///{path}?mode=ro"):
        assert str(path) in told


def test_a_schema_from_the_future_is_refused_and_left_alone(path):
    penstock.connect(str(path)).close()
    connection = apsw.Connection(str(path))
    ((before,),) = connection.execute("SELECT schema FROM penstock_store").fetchall()
    connection.execute("UPDATE penstock_store SET schema = 99")
    connection.close()
    with pytest.raises(SchemaMismatch, match=r"99.*upgrade"):
        penstock.connect(str(path))
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT schema FROM penstock_store").fetchall() == [(99,)]
    connection.execute("UPDATE penstock_store SET schema = ?", (before,))
    connection.close()
    penstock.connect(str(path)).close()


def test_a_queue_lives_beside_the_tables_of_an_application(path):
    connection = apsw.Connection(str(path))
    for name in ("store", "tubes", "lanes", "sessions", "events", "edits", "notes", "trims", "tasks_1"):
        connection.execute(f"CREATE TABLE {name} (x); INSERT INTO {name} VALUES (1)")  # noqa: S608
    connection.pragma("user_version", 42)
    connection.close()
    with penstock.connect(str(path)) as q:
        q.create_tube("jobs").put(1)
    with penstock.connect(str(path)) as q:
        assert q.tube("jobs").take().data == 1
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == 42
    assert connection.execute("SELECT count(*) FROM sessions").fetchall() == [(1,)]


def test_the_file_is_in_wal_mode_and_synced_in_full(path):
    with penstock.connect(str(path)) as q, q.transaction() as tx:
        assert tx.connection.pragma("journal_mode") == "wal"
        assert tx.connection.pragma("synchronous") == 2
        assert tx.connection.pragma("trusted_schema") == 0


def test_a_library_that_ignores_synchronous_is_refused(path):
    class Deaf(Database):
        def _set_up(self, level: Any, read_only: bool) -> None:
            connection = self.connection

            class Connection:
                def __getattr__(self, name: str) -> Any:
                    return getattr(connection, name)

                def pragma(self, name: str, *value: Any) -> Any:
                    return None if name == "synchronous" and value else connection.pragma(name, *value)

            self.connection = Connection()  # type: ignore[assignment]
            super()._set_up(level, read_only)

    with pytest.raises(EngineUnavailable, match="synchronous=OFF"):
        Deaf(path, "OFF")


def test_files_of_a_store_belong_to_their_owner_alone(path):
    with penstock.connect(str(path)) as q:
        q.create_tube("jobs").put(1)
        q.create_tube("cache", temporary=True).put(1)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(modes) >= {"tasks.db", "tasks.db-wal", "tasks.db-lock", "tasks.db-temporary"}
    assert set(modes.values()) == {0o600}, modes


def corrupt(path: Path) -> None:
    """Flip bytes in every page but the first ones, as a broken disk might."""
    content = bytearray(path.read_bytes())
    assert len(content) > 8 * 4096
    for start in range(2 * 4096, len(content), 4096):
        for offset in range(64):
            content[start + offset] ^= 0x5A
    path.write_bytes(content)


def fill(path: Path) -> None:
    with penstock.connect(str(path)) as q:
        q.create_tube("jobs").put_many(["x" * 500] * 200)
    assert not path.with_name("tasks.db-wal").exists()


def test_a_damaged_file_is_noticed_after_an_unclean_stop(path):
    fill(path)
    dead = penstock.connect(str(path))
    new_run(str(path))
    del dead
    assert apsw.Connection(str(path)).execute("SELECT clean FROM penstock_store").fetchall() == [(0,)]
    checkpointed(path)
    corrupt(path)
    with pytest.raises(EngineUnavailable, match="damaged") as caught:
        penstock.connect(str(path))
    assert caught.value.outcome == "not_done"
    assert open_store(str(path)) is None


def checkpointed(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose soundness was looked at."""
    seen: list[Path] = []
    check = Database.check_integrity

    def counted(self: Database) -> None:
        seen.append(self.path)
        check(self)

    monkeypatch.setattr(Database, "check_integrity", counted)
    return seen


def test_a_clean_stop_needs_no_check(path, checks):
    fill(path)
    penstock.connect(str(path)).close()
    assert checks == []


def test_an_unclean_stop_is_checked_once(path, checks):
    dead = penstock.connect(str(path))
    new_run(str(path))
    del dead
    q = penstock.connect(str(path))
    assert checks == [path]
    with penstock.connect(str(path)):
        assert checks == [path]
    q.close()
    penstock.connect(str(path)).close()
    assert checks == [path]


def test_an_open_that_fails_leaves_the_store_free_for_the_next(path, monkeypatch):
    fill(path)

    def refuse(self: Database, folder: str) -> None:
        raise apsw.FullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "migrate", refuse)
        with pytest.raises(EngineUnavailable, match="full"):
            penstock.connect(str(path))
    with penstock.connect(str(path)) as q:
        assert q.tube("jobs").statistics().tasks["ready"] == 200
        assert q.state() == "RUNNING"
