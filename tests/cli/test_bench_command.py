"""`penstock bench`: it measures, says what it has measured, and leaves nothing."""

from __future__ import annotations

import signal

import pytest
from tests.cli.running import Running
from tests.cli.shell import Shell
from tests.support import postgres

import penstock

PARTS = ["put", "take + ack", "put + take + ack", "the same by 20", "worker, 4 slots"]


def test_it_measures_a_store_and_leaves_nothing(any_shell):
    results = any_shell.run("bench", "--tasks", "40", "-c", "4", "--batch", "20", "--json").documents
    assert [result["what"] for result in results] == PARTS
    assert [result["tasks"] for result in results] == [40] * 5
    assert all(result["rate"] > 0 and result["seconds"] > 0 for result in results)
    assert any_shell.inside("tubes", "--json").documents == []


def test_a_person_gets_a_table(tmp_path):
    done = Shell("memory:", tmp_path).run("bench", "--seconds", "0.05", "--batch", "5")
    assert (done.status, done.err) == (0, "")
    head, *rows = done.out.splitlines()
    assert head.split() == ["WHAT", "TASKS/S", "TASKS", "SECONDS"] and len(rows) == 5


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_leaves_nothing_when_it_is_interrupted(shell, number, status):
    command = ("bench", "--seconds", "600")
    with Running(shell, *command) as process, penstock.connect(shell.folder / "tasks.db") as q:
        postgres.until(lambda: q.tubes() and q.tubes()[0].statistics().tasks["ready"], "nothing is put")
        process.signal(number)
        assert process.ended() == status
        assert q.tubes() == []


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--tasks", "0"], ["--batch", "0"], ["-c", "0"]])
def test_numbers_that_make_no_sense_are_refused(arguments, shell):
    done = shell.inside("bench", *arguments)
    assert done.status == penstock.UsageError.exit_status() and arguments[1] in done.err
    assert list(shell.folder.iterdir()) == []
