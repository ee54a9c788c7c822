"""`penstock bench`: it measures, says what it has measured, and leaves nothing."""

from __future__ import annotations

import signal

import pytest
from tests.cli.running import Running, documents, ran, refused
from tests.support import postgres

import penstock

PARTS = ["put", "take + ack", "put + take + ack", "the same by 20", "worker, 4 slots"]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_it_measures_every_engine(engine, tmp_path):
    url = "tasks.db" if engine == "sqlite" else postgres.lent_place()
    results = documents(ran(tmp_path, "bench", "--tasks", "40", "-c", "4", "--batch", "20", "--json", "--url", url))
    assert [result["what"] for result in results] == PARTS
    assert [result["tasks"] for result in results] == [40] * 5
    assert all(result["rate"] > 0 and result["seconds"] > 0 for result in results)
    with penstock.connect(tmp_path / url if engine == "sqlite" else url) as q:
        assert q.tubes() == []
    if engine == "postgres":
        postgres.give_back(url)


def test_a_person_gets_a_table(tmp_path):
    done = ran(tmp_path, "bench", "--seconds", "0.05", "--batch", "5", "--url", "memory:")
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["WHAT", "TASKS/S", "TASKS", "SECONDS"] and len(rows) == 5


def test_it_leaves_nothing_when_it_is_interrupted(tmp_path):
    command = ("bench", "--seconds", "600", "--url", "tasks.db")
    with Running(tmp_path, *command) as process, penstock.connect(tmp_path / "tasks.db") as q:
        postgres.until(lambda: q.tubes() and q.tubes()[0].statistics().tasks["ready"], "nothing is put")
        process.signal(signal.SIGINT)
        assert process.ended() == 130
        assert q.tubes() == []


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--tasks", "0"], ["--batch", "0"], ["-c", "0"]])
def test_numbers_that_make_no_sense_are_refused(arguments, tmp_path, monkeypatch, capsys):
    status, line = refused(tmp_path, "bench", "--url", "tasks.db", *arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert status == penstock.UsageError.exit_status() and arguments[1] in line
    assert not (tmp_path / "tasks.db").exists()
