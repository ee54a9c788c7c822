"""What `penstock pipeline` says before it starts Spark; what it does with Spark is in tests/spark/."""

from __future__ import annotations

import sys
from unittest import mock

import pytest
from tests.cli.shell import Shell

import penstock
from penstock.model.errors import EngineUnavailable
from penstock.pipeline.run import keep_on
from penstock.spark import feeds, stores

COMMANDS = ("run lake", "report lake", "replay lake mail --id x", "compact lake", "vacuum lake")


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_spark_the_extra_is_named(shell: Shell, words: str, missing: str):
    with penstock.connect(shell.folder / "tasks.db") as queue:
        queue.create_tube("mail")
    with mock.patch.dict(sys.modules, {missing: None}):
        ran = shell.inside("pipeline", *words.split())
    assert ran.status == 64
    assert f"the pipeline needs {missing}: pip install 'penstock[spark]'" in ran.err


@pytest.mark.parametrize("words", COMMANDS[1:])
def test_a_directory_that_is_no_lake_is_refused_before_spark_starts(shell: Shell, words: str):
    with penstock.connect(shell.folder / "tasks.db") as queue:
        queue.create_tube("mail")
    ran = shell.inside("pipeline", *words.split())
    assert ran.status == 64 and "is no lake; `penstock pipeline run --lake" not in ran.err
    assert "`penstock pipeline run " in ran.err


def test_a_queue_that_is_not_there_is_refused_before_spark_starts(shell: Shell):
    ran = shell.inside("pipeline", "run", "lake")
    assert ran.status != 0 and "there is no file" in ran.err
    assert not (shell.folder / "lake").exists()
    ran = shell.inside("pipeline", "run", "lake", "--url", "memory:")
    assert ran.status == 64 and "lives and ends with one process" in ran.err
    ran = shell.inside("pipeline", "run", "s3a://bucket/lake")
    assert ran.status == 64 and "a lake is a directory" in ran.err


@pytest.mark.parametrize("words", COMMANDS)
def test_what_cannot_be_a_lake_is_refused_before_spark_starts(shell: Shell, words: str):
    with penstock.connect(shell.folder / "tasks.db") as queue:
        queue.create_tube("mail")
    (shell.folder / "lake").write_text("notes")
    ran = shell.inside("pipeline", *words.split())
    assert ran.status == 64 and "cannot be listed, Not a directory: a lake is a directory" in ran.err


def test_a_directory_with_other_things_becomes_no_lake(shell: Shell):
    with penstock.connect(shell.folder / "tasks.db") as queue:
        queue.create_tube("mail")
    (shell.folder / "lake").mkdir()
    (shell.folder / "lake" / "notes").write_text("mine")
    ran = shell.inside("pipeline", "run", "lake")
    assert ran.status == 64 and "is no lake and not empty: notes is in it" in ran.err


def test_the_group_explains_itself_without_spark(shell: Shell):
    ran = shell.run("pipeline")
    assert ran.status == 0 and "vacuum" in ran.out


@pytest.fixture
def closing():
    """The stores that Spark's processes keep open are closed again in this one."""
    yield
    stores.close_all()


def test_a_reader_that_will_not_come_back_is_forgotten(shell: Shell, closing):
    url = str(shell.folder / "tasks.db")
    with penstock.connect(url) as queue:
        queue.create_tube("mail", history=True).put(1)
    store = stores.store(stores.absolute(url))
    feeds.advance(store, "dashboard", 1)
    feeds.advance(store, "lake:1", 0)
    assert shell.inside("pipeline", "readers").out == "READER     SEQ\nlake:1       0\ndashboard    1\n"
    ran = shell.inside("pipeline", "forget", "board")
    assert ran.status == 64 and "nobody called 'board' reads events" in ran.err
    assert shell.inside("pipeline", "forget", "lake:1", "--json").document == {"forgotten": 1, "reader": "lake:1"}
    assert shell.inside("pipeline", "readers", "--json").document == {"reader": "dashboard", "seq": 1}


class Enough(Exception):
    """The end of a run that has none."""


def test_a_run_that_stays_goes_on_after_a_queue_did_not_answer():
    results = [None, EngineUnavailable("no answer"), RuntimeError("EngineUnavailable: none"), None, Enough()]
    told, pauses = list[str](), list[float]()

    def once() -> None:
        if (result := results.pop(0)) is not None:
            raise result

    with pytest.raises(Enough):
        keep_on(once, 5, lambda error: told.append(str(error)), pauses.append)
    assert told == ["no answer", "none"] and pauses == [5, 5, 5, 5]
