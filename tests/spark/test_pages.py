"""What pages show of Spark runs, in the session that all tests share."""

from __future__ import annotations

import pytest
from tests.docs.pages import PAGES, needs_spark, run, shop


@pytest.mark.parametrize("page", [page for page in PAGES if needs_spark(page)], ids=lambda page: page.stem)
def test_the_snippets_of_a_page_run_with_spark(spark, page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with shop(page, monkeypatch):
        run(page)
