"""Commands that pages mention are there, with the options they are shown with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from tests.docs.pages import PAGES, ROOT, blocks

from penstock.cli.app import program

PROGRAM = typer.main.get_command(program())
INLINE = re.compile(r"`(penstock [^`\n]+)`")
TYPED = re.compile(r"\bpenstock(?: [^\n|>&]+)")


def mentioned(page: Path) -> Iterator[str]:
    """Every command in code type, those in units and container files too."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    yield from INLINE.findall(prose)
    for block in blocks(page):
        if block.language in ("bash", "ini"):
            yield from TYPED.findall(block.text)
        elif block.language == "dockerfile":
            yield from TYPED.findall(re.sub(r'[\[\]",]+', " ", block.text).replace("  ", " "))


def unknown(command: str) -> list[str]:
    """The words of a command that the program does not know."""
    found = PROGRAM
    words = command.split()[1:]
    while words and not words[0].startswith("-") and hasattr(found, "commands"):
        if words[0].isupper():  # it stands for any
            return []
        if words[0] not in found.commands:
            return [words[0]]
        found = found.commands[words.pop(0)]
    options = {name for parameter in found.params for name in [*parameter.opts, *parameter.secondary_opts]}
    options |= {"--help", "-h"}
    return [
        word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0].rstrip(";,.") not in options
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_is_one(page):
    for command in mentioned(page):
        assert unknown(command) == [], command


def test_a_command_that_is_not_there_is_noticed():
    assert unknown("penstock wrkr -c 3") == ["wrkr"]
    assert unknown("penstock worker shop:q -c 3 --nonsense 4") == ["--nonsense"]
    assert unknown("penstock schedules add --every 10m") == []
