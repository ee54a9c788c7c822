"""Every ```python block of the README and the docs runs, one namespace a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import postgres

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def blocks(page: Path) -> list[str]:
    """The snippets of a page, each moved down to its line so that a traceback names it."""
    text = page.read_text()
    return ["\n" * text.count("\n", 0, match.start(1)) + match[1] for match in BLOCK.finditer(text)]


WITH_SNIPPETS = [page for page in PAGES if blocks(page)]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A database of the name that pages use, where the driver looks when a URL names no server."""
    server = postgres.shared_server()
    server.create_database("shop")
    for name, value in {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres"}.items():
        monkeypatch.setenv(name, value)
    yield
    server.drop_database("shop")


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_snippets_of_a_page_run(page, tmp_path, monkeypatch, capsys, request):
    monkeypatch.chdir(tmp_path)
    if ":///shop" in "".join(blocks(page)):
        request.getfixturevalue("shop")
    for _ in ("the first time", "again in the same folder"):
        names: dict[str, Any] = {"__name__": "snippet"}
        for snippet in blocks(page):
            exec(compile(snippet, str(page), "exec"), names)
        for value in list(names.values()):
            if type(value).__name__ == "Queue":
                value.close()


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_pages_name_no_places_of_one_machine():
    for page in PAGES:
        text = page.read_text()
        assert not re.search(r"(?<![\w.:/])/(?:home|work|root|tmp)/", text), page
        assert "http://localhost" not in text, page
