"""A stream is put into a tube, every batch once."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from tests.spark import faulty
from tests.spark.lines import Lines
from tests.spark.places import PLACES, check_once, check_put

import penstock
from penstock.model import ops


@pytest.fixture(params=PLACES[:1], ids=lambda place: place.name)
def url(request, tmp_path) -> str:
    """A file unless a test says otherwise: what differs between stores is tested without Spark."""
    return request.param.url(tmp_path)


@pytest.fixture
def queue(url):
    with penstock.connect(url) as queue:
        queue.create_tube("jobs")
        yield queue


@pytest.fixture
def lines(spark, tmp_path):
    spark.dataSource.register(faulty.FaultySource)
    return Lines(spark, tmp_path)


def notes(queue, ledger: str):
    return [note.number for note in queue._engine.execute(ops.ReadLedger(ledger))]


@pytest.mark.parametrize("url", PLACES[1:], ids=["postgres"], indirect=True)
def test_every_batch_is_put_once_also_when_it_comes_again_in_other_partitions(lines, url, queue, tmp_path):
    lines.add(10)
    lines.run(url, sinkId="s")
    lines.add(20)
    for moment in ("before", "after"):
        with pytest.raises(StreamingQueryException, match=f"a fault {moment} the commit"):
            lines.run(url, "faulty", sinkId="s", fault=f"{moment} raise", mark=str(tmp_path / moment))
        check_once(queue, 10 if moment == "before" else 30)
    lines.add(30)
    lines.run(url, sinkId="s", partitions=3)
    check_once(queue, 60)
    assert notes(queue, "sink:s") == [0, 1, 2]


def test_a_sink_without_a_name_is_that_of_its_query_and_one_with_a_name_refuses_others(lines, url, queue):
    lines.add(5)
    lines.run(url)
    lines.run(url)
    check_once(queue, 5)
    lines.run(url, checkpoint="b")
    check_put(queue, 10)
    first, _ = queue._engine.execute(ops.ListLedgers("sink:"))
    with pytest.raises(StreamingQueryException, match="belongs to query"):
        lines.run(url, checkpoint="c", sinkId=first.removeprefix("sink:"))
    check_put(queue, 10)


def test_only_rows_that_are_added_can_be_put(spark, lines, url, queue, tmp_path):
    lines.add(1)
    counted = spark.readStream.text(str(tmp_path / "lines")).groupBy("value").count().selectExpr("value as data")
    options = {"url": url, "tube": "jobs", "checkpointLocation": str(tmp_path / "c")}
    with pytest.raises((PySparkException, StreamingQueryException), match='outputMode\\("append"\\)'):
        counted.writeStream.format("penstock").outputMode("complete").options(**options).trigger(
            availableNow=True
        ).start().awaitTermination()
    check_put(queue, 0)
