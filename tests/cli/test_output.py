"""What is printed where, and how the program ends."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest
from tests.cli.shell import PATIENCE, PROGRAM, Shell

import penstock
from penstock.cli import output
from penstock.model import errors

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def wide(shell: Shell) -> Shell:
    """Tasks with long ids, wide characters, and words that would move a cursor."""
    shell.inside("create", "mail", "--id", "required")
    with penstock.connect(shell.folder / "tasks.db") as queue:
        tube = queue.tube("mail")
        tube.put({"text": "x" * 300}, id="i" * 200)
        tube.put("日本語", id="日本", lane="レーン", key="[red]key[/red]")
        tube.bury(tube.put("\x1b[2J", id="three", lane="a\tb").id, "first\nsecond \x1b[2J")
    return shell


def test_a_pipe_gets_everything_in_aligned_columns(wide: Shell):
    ran = wide.inside("tasks", "mail", "--columns", "id,lane,key,state,error,data")
    head, first, second, third = ran.out.splitlines()
    assert first.split()[0] == "i" * 200 and "x" * 300 in first
    assert second.split() == ["日本", "レーン", "[red]key[/red]", "ready", "-", '"日本語"']
    assert third.split("  ")[-2:] == ["first", '"\\u001b[2J"'] and "a\\tb" in third
    # A wide character takes the room of two.
    assert head.index("STATE") == first.index("ready") == second.index("ready") + 5
    assert "\x1b" not in ran.out


def test_a_terminal_gets_a_table_that_fits_with_ids_in_full(wide: Shell, real_shell: Shell):
    wide.inside("delete", "mail", "i" * 200)
    ran = real_shell.terminal("tasks", "mail", columns=72)
    lines = [ESCAPE.sub("", line) for line in ran.out.replace("\r", "").splitlines()]
    assert max(map(len, lines)) <= 72
    assert "\x1b[1m" in ran.out and "\x1b[2J" not in ran.out
    assert any(line.startswith("three") for line in lines) and "[red]key" in ran.out
    # Nothing has stood in these columns.
    assert "pri" not in lines[0] and "attempt" not in lines[0]


def test_long_data_is_cut_on_a_terminal_alone(shell: Shell):
    shell.inside("create", "mail")
    shell.inside("put", "mail", f'"{"x" * 500}"')
    assert "…" in shell.terminal("tasks", "mail").out
    assert "x" * 500 in shell.inside("tasks", "mail").out
    assert "x" * 500 in shell.terminal("peek", "mail", "1").out.replace("\r\n", "")


def test_a_pipe_gets_no_colours(shell: Shell):
    shell.inside("create", "mail")
    ran = shell.inside("tubes", FORCE_COLOR="1")
    assert "\x1b" not in ran.out


@pytest.mark.parametrize(
    "words",
    [
        ["tubes"],
        ["stats"],
        ["stats", "mail"],
        ["tasks", "mail"],
        ["peek", "mail", "1"],
        ["lanes", "mail"],
        ["put", "mail", "1"],
        ["take", "mail"],
        ["bury", "mail", "2"],
        ["kick", "mail"],
        ["dig", "mail", "3"],
        ["plow", "mail"],
        ["cancel", "mail", "2"],
        ["delete", "mail", "2"],
        ["create", "other"],
        ["alter", "mail", "--ttl", "1h"],
        ["pause", "mail"],
        ["resume", "mail"],
        ["truncate", "mail", "--yes"],
        ["drop", "mail", "--yes"],
        ["schedules", "list"],
    ],
    ids=" ".join,
)
def test_json_is_one_document_a_line_with_nothing_else_on_stdout(shell: Shell, words: list[str]):
    with penstock.connect(shell.folder / "tasks.db", durability="relaxed") as queue:
        mail = queue.create_tube("mail")
        mail.put_many([{"to": "ann"}] * 3, lane="a")
        mail.bury(3)
        queue.schedule("sweep", "mail", every=3600)
    ran = shell.inside(*words, "--json")
    assert ran.status == 0, ran.err
    assert ran.documents and all(isinstance(document, dict) for document in ran.documents)
    assert shell.inside("--json", *words[:1], *words[1:]).status in (0, 1, 73, 77, 78, 68)


def test_options_of_the_program_may_stand_before_the_command(shell: Shell):
    shell.inside("--url", "other.db", "create", "mail")
    assert (shell.folder / "other.db").exists() and not (shell.folder / "tasks.db").exists()
    assert shell.inside("--json", "-u", "other.db", "tubes").document["name"] == "mail"
    # What stands after the command comes first.
    assert shell.inside("--url", "no.db", "tubes", "--url", "other.db").status == 0


@pytest.mark.parametrize("words", [["tubes"], ["create", "mail"], ["put", "mail", "1"], ["take", "mail"], ["top"]])
def test_a_queue_in_memory_is_refused_as_one_that_ends_with_the_command(shell: Shell, words: list[str]):
    ran = shell.inside(*words, PENSTOCK_URL="memory:")
    assert (ran.status, ran.out) == (64, "")
    assert "lives and ends with one process" in ran.err and "penstock create" not in ran.err


def test_without_a_url_the_program_asks_for_one(shell: Shell):
    ran = shell.inside("stats", PENSTOCK_URL="")
    assert ran.status == 64
    assert "--url" in ran.err and "PENSTOCK_URL" in ran.err


def test_a_file_that_is_not_there_is_made_by_create_alone(shell: Shell):
    for words in (["stats"], ["put", "mail", "1"], ["take", "mail"], ["tubes"]):
        ran = shell.inside(*words)
        assert ran.status == penstock.EngineUnavailable.exit_status(), words
        assert "penstock create" in ran.err
    assert list(shell.folder.iterdir()) == []


def test_every_error_is_one_line_that_says_what_to_do_next(shell: Shell):
    shell.inside("create", "mail")
    for words, status, step in (
        (["put", "nope", "1"], 68, "penstock create nope"),
        (["tubez"], 64, "Did you mean 'tubes'"),
        (["put", "mail", "1", "--prio", "1"], 64, "see penstock put --help"),
        (["take"], 64, "see penstock take --help"),
        (["put", "mail", "1", "--delay", "later"], 64, "2030-01-31T08:00"),
        (["take", "mail", "-n", "0"], 64, "--number"),
        (["tasks", "mail", "--columns", "id,nope"], 64, "there are id, tube"),
        (["tasks", "mail", "--state", "lost"], 64, "ready"),
        (["--url", "mysql://x", "tubes"], 64, "postgresql://"),
        (["--url", "postgresql://127.0.0.1:1/x?patience=0.1", "tubes"], 65, "127.0.0.1"),
    ):
        ran = shell.inside(*words)
        assert ran.status == status, (words, ran)
        assert ran.out == "" and len(ran.err.splitlines()) == 1, (words, ran)
        assert ran.err.startswith("penstock: ") and step in ran.err, (words, ran)


def test_with_json_an_error_is_a_document_on_stderr(shell: Shell):
    shell.inside("create", "mail")
    for words, code, status, step in (
        (["put", "nope", "1", "--json"], "tube_not_found", 68, "penstock create nope"),
        (["--json", "put", "nope", "1"], "tube_not_found", 68, "penstock create nope"),
        (["peek", "mail", "7", "--json"], "task_not_found", 73, "7"),
        (["delete", "mail", "7", "--json"], "task_not_found", 73, "7"),
        (["tubez", "--json"], "usage", 64, "Did you mean 'tubes'"),
        (["put", "mail", "1", "--json", "--prio", "1"], "usage", 64, "see penstock put --help"),
        (["put", "mail", "1", "--delay", "later", "--json"], "usage", 64, "2030-01-31T08:00"),
    ):
        ran = shell.inside(*words)
        document = json.loads(ran.err)
        assert (ran.out, ran.status) == ("", status), (words, ran)
        assert (document["error"], document["exit"]) == (code, status) and step in document["message"], (words, ran)


def test_the_exit_status_is_the_place_of_the_error_in_the_table():
    assert [error.exit_status() for error in errors.ALL] == list(range(64, 64 + len(errors.ALL)))
    assert errors.ALL[-1].exit_status() < 128


def test_a_file_that_can_only_be_read_is_looked_at_and_not_changed(shell: Shell):
    shell.inside("create", "mail")
    shell.inside("put", "mail", "1")
    url = "sqlite:///tasks.db?mode=ro"
    assert shell.inside("stats", "mail", "--url", url, "--json").document["tasks"]["ready"] == 1
    assert shell.inside("put", "mail", "1", "--url", url).status == penstock.NotWritable.exit_status()
    assert shell.inside("take", "mail", "--url", url).status == penstock.NotWritable.exit_status()


def test_a_reader_that_has_seen_enough_ends_a_long_list_quietly(shell: Shell, real_shell: Shell):
    with penstock.connect(shell.folder / "tasks.db", durability="relaxed") as queue:
        queue.create_tube("mail").put_many(["some words"] * 5000)
    for started_by, *words in ((real_shell, "tasks", "mail"), (shell, "tasks", "mail", "--json")):
        process = started_by.start(*words, "--limit", "5000", stdin=subprocess.DEVNULL)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) == 141
        with process.stderr:
            assert process.stderr.read() == b""


def test_the_program_names_what_is_missing_from_the_base_install(shell: Shell):
    (shell.folder / "typer.py").write_text("raise ImportError('no', name='typer')")
    ran = shell.run("stats", PYTHONPATH=str(shell.folder))
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == "penstock: the command line needs typer: pip install 'penstock[cli]'\n"


def test_the_command_and_the_module_are_the_same_program(shell: Shell):
    script = os.path.join(os.path.dirname(PROGRAM[0]), "penstock")
    found = subprocess.run([script, "--version"], capture_output=True, timeout=PATIENCE)
    assert found.stdout.decode() == Shell.run(shell, "--version").out == f"penstock {penstock.__version__}\n"


def test_values_are_shown_in_one_line():
    assert [output.shown(value) for value in (None, "", True, False, 1.5, 3.0, 7, [1], "a\nb\x7f")] == [
        *("-", "-", "yes", "no", "1.5", "3", "7", "[1]", "a\\nb\\x7f")
    ]
