"""What the program teaches: help, examples that run, completion. And that it starts fast."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main
from tests.cli.shell import PATIENCE, PROGRAM, Shell, Starter
from tests.support import forks

import penstock
from penstock.cli.app import PARTS, program
from penstock.model import errors

SHOP = """
import os
import penstock

q = penstock.connect(os.environ["PENSTOCK_URL"])

@q.handler("mail")
def send(data) -> None: ...

@q.handler("thumbs")
def thumb(data) -> None: ...
"""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.M | re.S)
URLS = "site,url\na.example,http://a.example/2\nb.example,http://b.example/\n"


class Command(NamedTuple):
    """A command as the library has it."""

    name: str
    made: Any

    @property
    def examples(self) -> list[str]:
        return [line for line in self.made.epilog.splitlines() if line.startswith("penstock ")]


def commands() -> Iterator[Command]:
    root: Any = typer.main.get_command(program())
    for name, made in root.commands.items():
        if hasattr(made, "commands"):
            yield from (Command(f"{name} {below}", part) for below, part in made.commands.items())
        else:
            yield Command(name, made)


COMMANDS = list(commands())
WITHOUT_SPARK = [command for command in COMMANDS if not command.name.startswith("pipeline ")]
"""Examples of the others run in tests/spark/, which has a session for all of them."""


@pytest.fixture
def starter() -> Starter:
    return forks.shared_starter()


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """What the examples speak of: tubes with tasks, a file of URLs, a program with handlers."""
    (shell.folder / "shop.py").write_text(SHOP)
    (shell.folder / "urls.csv").write_text(URLS)
    with penstock.connect(shell.folder / "tasks.db", durability="relaxed") as queue:
        mail = queue.create_tube("mail", max_attempts=3, retry=60)
        for _ in range(5):
            mail.put({"to": "ann@example.org"})
        crawl = queue.create_tube("crawl")
        crawl.put({"site": "a.example"}, lane="a.example", key="http://a.example/")
        crawl.bury(crawl.put({"site": "a.example"}, lane="a.example").id)
    return shell


BEFORE = {
    "kick": ["bury mail 4 5 --error timeout"],
    "dig": ["bury mail 4"],
    "plow": ["bury mail 4"],
    "resume": ["pause mail crawl"],
    "tasks": ["bury mail 4"],
    "delete": ["bury mail 4"],
    "schedules add": ["create reports"],
    "schedules remove": ["create reports", "schedules add sweep reports --every 1h"],
}
"""What has to have happened before the examples of a command."""
FINDS_NOTHING = ("release mail --older-than", "bury mail --older-than", "delete mail --state")
"""In a store that is new nothing is old; that is status 1."""


def brief(example: str) -> str:
    """A server would go on for ever, and its port may be taken: it opens its doors and ends."""
    if not example.startswith("penstock serve "):
        return example
    wanted = {"--check": " --check", "--port": " --port 0"}
    return example + "".join(more for option, more in wanted.items() if option not in example.split())


UNTIL_STOPPED = """
{line} > said & server=$!
until [ -s said ] || ! kill -0 $server; do :; done
kill $server; wait $server; rm said"""
"""A server is told to stop once it has said where it is; which port is not for a test to choose."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", WITHOUT_SPARK, ids=lambda command: command.name)
def test_the_examples_of_a_command_run_in_a_shell(shop: Shell, starter: Starter, command: Command):
    assert command.examples, "it has no example"
    for line in BEFORE.get(command.name, []):
        assert shop.inside(*shlex.split(line)).status == 0
    session = ""
    if any("$SESSION" in line for line in command.examples):
        session = shop.inside("take", "mail", "-n", "3", "--json").documents[0]["session"]
    script = [starter.function, "set -e"]
    for example in command.examples:
        line = brief(example)
        script.append(f"{line} || [ $? = 1 ]" if any(part in line for part in FINDS_NOTHING) else line)
    done = subprocess.run(
        ["sh", "-c", "\n".join(script)],
        capture_output=True,
        text=True,
        cwd=shop.folder,
        env=shop.environment(SESSION=session),
        timeout=4 * PATIENCE,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def test_every_command_explains_itself_and_each_of_its_options():
    for command in COMMANDS:
        assert command.made.help and len(command.made.help.split("\n\n")[0]) < 110, command.name
        for parameter in command.made.params:
            assert parameter.help, f"{command.name}: {parameter.name}"
        assert {"url", "as_json"} <= {parameter.name for parameter in command.made.params}, command.name
        for line in command.examples:
            assert line.split()[1] == command.name.split()[0] and len(line) < 79, line


def test_help_is_text_for_people_with_the_example_last(shell: Shell):
    for words in (["--help"], ["-h"], [], ["put", "--help"], ["schedules"], ["schedules", "add", "-h"]):
        ran = shell.inside(*words)
        assert ran.status == 0, words
        assert "Usage: penstock" in ran.out and re.search(r"Examples?\s*\n\s*penstock ", ran.out), words
    assert "10m" in shell.inside("put", "--help").out


def test_the_table_of_modules_lists_the_commands_they_have():
    for module, names in PARTS.items():
        root: Any = typer.main.get_command(program(names[0]))
        assert tuple(root.commands) == names, module
    assert {name for names in PARTS.values() for name in names} == {it.name.split()[0] for it in COMMANDS}


def test_every_verb_has_a_command():
    asked = "put take ack release bury kick dig plow peek tasks tubes lanes stats create alter drop worker"
    asked += " migrate doctor top bench fail delete cancel truncate pause resume"
    assert set(asked.split()) <= {command.name for command in COMMANDS}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("stats ", ["mail", "thumbs"]),
        ("put ma", ["mail"]),
        ("--url tasks.db tasks t", ["thumbs"]),
        ("tasks --state bu", ["buried"]),
        ("pla", []),
        ("plo", ["plow"]),
        ("--url nope.db stats ", []),
    ],
)
def test_the_shell_completes_commands_tubes_and_states(shell: Shell, words: str, names: list[str]):
    shell.inside("create", "mail")
    shell.inside("create", "thumbs")
    typed = f"penstock {words}"
    done = shell.run(_PENSTOCK_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(len(typed.split(" ")) - 1))
    assert (done.status, done.out.split(), done.err) == (0, names, "")
    assert not (shell.folder / "nope.db").exists()


def test_completion_without_a_store_is_silent(shell: Shell):
    done = shell.inside(_PENSTOCK_COMPLETE="complete_bash", COMP_WORDS="penstock stats ", COMP_CWORD="2")
    assert (done.status, done.out.strip(), done.err) == (0, "", "")
    assert list(shell.folder.iterdir()) == []


def test_the_script_for_the_shell_is_printed(shell: Shell):
    # Otherwise it is asked which shell this test was started from.
    done = shell.run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.status == 0 and "_PENSTOCK_COMPLETE=complete_bash" in done.out


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], {"psycopg", "apsw"}),
        (["stats"], {"psycopg", "rich.console", "penstock.cli.worker", "penstock.cli.top"}),
    ],
)
def test_a_command_imports_what_it_needs_alone(shell: Shell, words: list[str], absent: set[str]):
    shell.inside("create", "mail")
    code = "import sys; from penstock.cli.app import status_of; status_of(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [PROGRAM[0], "-c", code, *words],
        capture_output=True,
        text=True,
        cwd=shell.folder,
        env=shell.environment(),
        timeout=PATIENCE,
    )
    assert not absent & set(done.stdout.splitlines()[-1].split())


def test_the_page_has_every_command_and_every_exit_status():
    page = PAGE.read_text()
    for command in COMMANDS:
        assert f"`penstock {command.name}`" in page or f"`{command.name}`" in page, command.name
    for error in errors.ALL:
        assert re.search(rf"\|\s*{error.exit_status()}\s*\|\s*{error.__name__}", page), error


@pytest.mark.timeout(300)
def test_the_page_runs_and_prints_what_it_says(shell: Shell, starter: Starter):
    blocks = BLOCK.findall(PAGE.read_text())
    script = [starter.function, "set -e"]
    script += [f"{commands}\necho '=== end'" for commands, _ in blocks]
    done = subprocess.run(
        ["sh", "-c", "\n".join(script)],
        capture_output=True,
        text=True,
        cwd=shell.folder,
        env=shell.environment(),
        timeout=4 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("=== end\n")[:-1] == [said for _, said in blocks]
