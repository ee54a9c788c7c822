"""`penstock pipeline` as a person types it, with the session of the tests."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.cli.shell import Output, Shell
from tests.worker.bench import until

import penstock
from penstock.cli.app import program
from penstock.pipeline.lake import Lake
from penstock.spark import feeds, stores

PATIENCE = 100.0
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
    assert Lake(shell.folder / "lake").snapshot().version == 2


def test_a_run_goes_on_until_ctrl_c(shell: Shell):
    def watch() -> None:
        """What a person does at the keyboard, who reads what is printed and puts more tasks."""
        until(lambda: printed() == [16], PATIENCE)
        with penstock.connect(shell.folder / "tasks.db") as queue:
            queue.tube("mail").put_many([{"to": number} for number in range(3)])
        until(lambda: sum(printed()) == 19, PATIENCE)
        # It rests now; an interrupt in the midst of a word of Spark would leave that one without its answer.
        os.kill(os.getpid(), signal.SIGINT)

    def printed() -> list[int]:
        lines = sys.stdout.text.splitlines() if isinstance(sys.stdout, Output) else []
        return [json.loads(line)["events"] for line in lines]

    watching = threading.Thread(target=watch)
    watching.start()
    ran = shell.inside("pipeline", "run", "lake", "--every", "2", "--json")
    watching.join()
    assert ran.status == 130
    assert [line["events"] for line in ran.documents if line["events"]] == [16, 3]
    assert Lake(shell.folder / "lake").snapshot().upto == ran.documents[-1]["upto"]
