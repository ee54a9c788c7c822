"""The list of behaviours and the tool that reads it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import conformance

    yield conformance
    sys.modules.pop("conformance", None)


def test_every_line_of_the_list_is_whole_and_every_number_is_there_once(tool):
    coverage = tool.read()
    numbers = [case.number for case in coverage.cases]
    assert len(set(numbers)) == len(numbers) == 300
    for case in coverage.cases:
        assert case.group in coverage.groups
        assert case.tag in ("core", "fix", "compat")
        assert case.scope == "now" or case.scope in tool.NOT_YET
        assert case.phrase


def test_tests_cite_only_numbers_of_the_list(tool):
    assert tool.read().unknown == []


def test_only_cases_that_wait_are_said_to_wait(tool, monkeypatch):
    coverage = tool.read()
    assert "not yet" not in tool.page()
    assert tool.summary(coverage).endswith("cases have a test.")
    (first, *rest) = coverage.cases
    later = coverage._replace(cases=[first._replace(scope="moon"), *rest])
    monkeypatch.setattr(tool, "read", lambda: later)
    monkeypatch.setattr(tool, "NOT_YET", {"moon": "is far away", "mars": "is farther"})
    page = tool.page()
    assert "| moon | 1 | is far away |" in page
    assert "mars" not in page
    assert "1 more wait" in page


def test_citations_of_one_and_of_several_are_found(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    file = tmp_path / "tests" / "test_x.py"
    file.parent.mkdir()
    file.write_text("# " + "case 4\n\nx = 1  # " + "cases 5, 6 and 7\n# a case 8 of its own\n")
    assert tool.citations([file]) == {n: {"test_x.py"} for n in (4, 5, 6, 7)}
