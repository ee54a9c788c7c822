"""What `penstock pipeline` says before it starts Spark; what it does with Spark is in tests/spark/."""

from __future__ import annotations

import sys
from unittest import mock

import pytest
from tests.cli.shell import Shell

import penstock

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


def test_the_group_explains_itself_without_spark(shell: Shell):
    ran = shell.run("pipeline")
    assert ran.status == 0 and "vacuum" in ran.out
