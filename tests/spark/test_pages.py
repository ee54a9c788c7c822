"""What pages show of Spark runs, in the session that all tests share."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming import DataStreamWriter
from tests.docs.pages import PAGES, needs_spark, run, shop
from tests.spark.queries import begun

# test_pipeline.py runs the commands that this page is about.
MARKS = {"pipeline": pytest.mark.exhaustive}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=MARKS.get(page.stem, ())) for page in PAGES if needs_spark(page)],
)
def test_the_snippets_of_a_page_run_with_spark(spark, page, tmp_path, monkeypatch):
    start = DataStreamWriter.start
    monkeypatch.setattr(DataStreamWriter, "start", lambda writer: begun(lambda: start(writer)))
    monkeypatch.chdir(tmp_path)
    with shop(page, monkeypatch):
        run(page)
