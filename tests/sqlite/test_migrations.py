"""The schema: made step by step, the same whoever makes it and how often."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from tests.crash.children import Wire, family

import penstock
from penstock.engines.sqlite import database
from penstock.engines.sqlite.database import Database, migrations
from penstock.model import ops
from penstock.model.ledger import Note

OPENERS = 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def schema(path: Path) -> list[tuple[str, str, str]]:
    connection = apsw.Connection(str(path))
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
    connection.close()
    return rows


def test_a_migrated_schema_equals_a_fresh_one(path, tmp_path, monkeypatch):
    steps = [*migrations("migrations"), "CREATE TABLE later (x);", "ALTER TABLE later ADD COLUMN y;"]
    for number in range(1, len(steps) + 1):
        monkeypatch.setattr(database, "migrations", lambda folder, number=number: steps[:number])
        step = Database(path, "FULL")
        step.migrate("migrations")
        assert step.schema_version() == number
        step.close()
    fresh = Database(tmp_path / "fresh.db", "FULL")
    fresh.migrate("migrations")
    fresh.close()
    assert schema(path) == schema(tmp_path / "fresh.db")


def test_tasks_survive_a_migration(path, monkeypatch):
    with penstock.connect(str(path)) as q:
        q.create_tube("jobs").put_many(list("abc"))
    steps = [*migrations("migrations"), "ALTER TABLE penstock_store ADD COLUMN later INTEGER;"]
    monkeypatch.setattr(database, "migrations", lambda folder: steps)
    with penstock.connect(str(path)) as q:
        assert [task.data for task in q.tube("jobs").tasks()] == ["a", "b", "c"]


def test_migrating_twice_changes_nothing(path):
    first = Database(path, "FULL")
    first.migrate("migrations")
    first.execute("UPDATE penstock_store SET epoch = 7")
    before = schema(path)
    first.migrate("migrations")
    assert schema(path) == before
    assert first.value("SELECT epoch FROM penstock_store") == 7
    first.close()


def test_a_step_that_fails_leaves_the_schema_as_it_was(path, monkeypatch):
    with penstock.connect(str(path)) as q:
        q.create_tube("jobs").put(1)
    before = schema(path)
    steps = [*migrations("migrations"), "CREATE TABLE half (x); CREATE TABLE penstock_store (x);"]
    monkeypatch.setattr(database, "migrations", lambda folder: steps)
    with pytest.raises(penstock.EngineUnavailable):
        penstock.connect(str(path))
    assert schema(path) == before
    monkeypatch.undo()
    with penstock.connect(str(path)) as q:
        assert q.tube("jobs").take().data == 1


@pytest.fixture
def old(path, monkeypatch) -> Path:
    """A file as the first version made it."""
    monkeypatch.setattr(database, "migrations", lambda folder: migrations(folder)[:1])
    with penstock.connect(str(path)) as q:
        q.create_tube("jobs", history=True).put_many(list("abc"))
    monkeypatch.undo()
    return path


def test_a_file_of_the_first_version_gains_ledgers(old):
    with penstock.connect(str(old)) as q:
        q._engine.execute(ops.WriteLedger("a", 0, ("x",)))
        assert q._engine.execute(ops.LastNotes("a")) == [Note(0, "x")]
        assert [task.data for task in q.tube("jobs").tasks()] == ["a", "b", "c"]


def test_a_file_of_the_first_version_that_is_only_read_says_what_it_lacks(old):
    with penstock.connect(f"sqlite:///{old}?mode=ro") as q:
        assert [task.data for task in q.tube("jobs").tasks()] == ["a", "b", "c"]
        assert q._engine.execute(ops.MarkHistory(every=2)) == [2, 3]
        with pytest.raises(penstock.SchemaMismatch, match=r"schema 1 .*open it once for writing"):
            q._engine.execute(ops.LastNotes("a"))


def open_and_put(wire: Wire, path: str, number: int) -> None:
    wire.say("ready")
    wire.hear()
    q = penstock.connect(path)
    task = q.create_tube("jobs", if_not_exists=True).put(number)
    wire.say("put", task.id)
    wire.hear()
    q.close()


@pytest.mark.parametrize("attempt", [0, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(1, 6))])
def test_many_processes_may_open_a_new_file_at_one_moment(path, attempt):
    with family() as children:
        openers = [children.start(open_and_put, str(path), number) for number in range(OPENERS)]
        for child in openers:
            assert child.line() == ["ready"]
        for child in openers:
            child.tell("go")
        ids = [child.line()[1] for child in openers]
        assert sorted(ids) == list(range(1, OPENERS + 1))
        for child in openers:
            child.tell("close")
        assert [child.exit() for child in openers] == [0] * OPENERS
    with penstock.connect(str(path)) as q:
        assert sorted(task.data for task in q.tube("jobs").tasks()) == list(range(OPENERS))
