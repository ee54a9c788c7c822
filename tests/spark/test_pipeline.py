"""`penstock pipeline` as a person types it, with the session of the tests."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.cli.shell import Shell

import penstock
from penstock.cli.app import program
from penstock.pipeline import run as pipeline
from penstock.pipeline.lake import Lake
from penstock.spark import feeds, stores

PATIENCE = 300.0
ORDER = ("run", "report", "replay", "compact", "vacuum", "readers", "forget")


@pytest.fixture
def shell(spark: Any, tmp_path: Path) -> Shell:
    with penstock.connect(tmp_path / "tasks.db") as queue:
        mail = queue.create_tube("mail", history=True, history_data=True)
        mail.put_many([{"to": number} for number in range(8)])
        for task in mail.take_many(4):
            task.bury("no such address") if task.data["to"] == 2 else task.ack()
    return Shell(str(tmp_path / "tasks.db"), tmp_path)


def examples(name: str) -> list[list[str]]:
    group: Any = typer.main.get_command(program("pipeline"))
    epilog = group.commands["pipeline"].commands[name].epilog
    return [shlex.split(line)[1:] for line in epilog.splitlines() if line.startswith("penstock ")]


def test_the_examples_of_the_pipeline_run_one_after_another(shell: Shell):
    for name in ORDER:
        if name == "forget":
            feeds.advance(stores.store(str(shell.folder / "tasks.db")), "dashboard", 3)
        for words in examples(name):
            ran = shell.inside(*words)
            assert ran.status == 0, (words, ran)
            left = "4 tasks left out that wait or run; --unfinished puts them too\n"
            assert ran.err == (left if "all" in words else ""), words
    assert (shell.folder / "report.html").read_text().startswith("<!doctype html>")
    assert (shell.folder / "mail.html").exists()
    with penstock.connect(shell.folder / "tasks.db") as queue:
        (left,) = queue.history()
        assert (left.event, left.data) == ("put", {"to": 2}), "all else was purged; this is what the replay has put"
        assert [task.data["to"] for task in queue.tube("mail").tasks("ready")] == [4, 5, 6, 7, 2]


@pytest.mark.exhaustive
def test_the_pipeline_speaks_json(shell: Shell):
    ran = shell.inside("pipeline", "run", "lake", "--json")
    told = ran.document
    assert told == {"events": 16, "version": 2, "upto": told["upto"], "purged": 0, "steps": 1, "held_by": None}
    assert shell.inside("pipeline", "run", "lake").out == "0\n"
    figures = shell.inside("pipeline", "report", "lake", "--json", "--tube", "mail").document
    assert (figures["counts"]["puts"], figures["counts"]["acks"]) == (8, 3)
    assert not (shell.folder / "report.html").exists()
    feeds.advance(stores.store(str(shell.folder / "tasks.db")), "dash board", 3)
    held = shell.inside("pipeline", "run", "lake", "--purge")
    assert (held.status, held.out) == (0, "0\n") and "`penstock pipeline forget 'dash board'`" in held.err
    nothing = shell.inside("pipeline", "replay", "lake", "mail", "--id", "x", "--where", "lane = 'z'", "--json")
    assert nothing.status == 1 and nothing.document["put"] == 0
    wrong = shell.inside("pipeline", "report", "lake", "--output", "nowhere/report.html")
    assert wrong.status == 64 and "--output nowhere/report.html cannot be written" in wrong.err
    wrong = shell.inside("pipeline", "report", "lake", "--tube", "mial")
    assert wrong.status == 64 and "no event of tube 'mial' is in lake; is that its name" in wrong.err
    wrong = shell.inside("pipeline", "replay", "lake", "mail", "--id", "")
    assert wrong.status == 64 and "a replay needs an id" in wrong.err
    wrong = shell.inside("pipeline", "replay", "lake", "mail", "--id", "x", "--where", "state = ")
    assert wrong.status == 64 and "where 'state = ' cannot be used: [" in wrong.err
    assert Lake(shell.folder / "lake").snapshot().version == 2


def test_a_run_goes_on_until_ctrl_c(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    rests = list[float]()

    def rest(seconds: float) -> None:
        """What a person does at the keyboard while nothing runs: put more tasks, and press Ctrl-C the second time."""
        rests.append(seconds)
        if len(rests) == 1:
            with penstock.connect(shell.folder / "tasks.db") as queue:
                queue.tube("mail").put_many([{"to": number} for number in range(3)])
        else:
            # An interrupt in the midst of a word of Spark would leave that one without its answer.
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(PATIENCE)

    monkeypatch.setattr(pipeline, "keep_on", functools.partial(pipeline.keep_on, wait=rest))
    ran = shell.inside("pipeline", "run", "lake", "--every", "2", "--json")
    assert ran.status == 130 and rests == [2.0, 2.0]
    assert [line["events"] for line in ran.documents] == [16, 3]
    assert Lake(shell.folder / "lake").snapshot().upto == ran.documents[-1]["upto"]
