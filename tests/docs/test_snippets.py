"""What the README and the docs show runs, as tests/docs/pages.py says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, PATIENCE, ROOT, Block, needs_spark, run, runs, shop, type_in


def of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page) and not needs_spark(page)], ids=of)
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.exhaustive)], ids=["once", "again"])
def test_the_snippets_of_a_page_run(page, times, tmp_path, monkeypatch, capsys):
    """Again is in the same folder: a reader may try a page a second time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with shop(page, monkeypatch):
        for _ in range(times):
            run(page)


def test_a_command_that_fails_is_noticed():
    with pytest.raises(AssertionError, match="no such file"):
        type_in(Block("bash", "echo on\ncat 'no such file'\necho never\n", 0), None, {"PATH": "/bin:/usr/bin"})


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target, place in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            goal = page.parent / target if target else page
            assert goal.exists(), f"{of(page)} links to {target}"
            assert not place or place in anchors(goal), f"{of(page)} links to #{place} of {of(goal.resolve())}"


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_name_no_places_of_one_machine():
    for page in PAGES:
        text = page.read_text()
        assert not re.search(r"(?<![\w.:/])/(?:home|work|root|tmp)/", text), page
        assert "http://localhost" not in text, page
