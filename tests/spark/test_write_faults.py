"""Whatever fails, every row becomes one task: attempts and commits here, executors and drivers in test_drivers*.py."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from tests.spark import faulty
from tests.spark.past import history
from tests.spark.places import PLACES, check_once

import penstock
from penstock.model import ops

ROWS = 200


@pytest.fixture(params=PLACES[1:], ids=lambda place: place.name)
def url(request, tmp_path) -> str:
    """A server unless a test says otherwise: what differs between stores is tested without Spark."""
    return request.param.url(tmp_path)


@pytest.fixture
def queue(url):
    with penstock.connect(url) as queue:
        queue.create_tube("jobs", history=True)
        yield queue


@pytest.fixture
def small_batches(spark):
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "20")
    spark.dataSource.register(faulty.FaultySource)
    yield spark
    spark.conf.set(name, before)


def numbers(spark, partitions: int = 2):
    return spark.range(ROWS, numPartitions=partitions).selectExpr("cast(id as string) as data")


def write(frame, url: str, form: str = "penstock", **options: str) -> None:
    frame.write.format(form).mode("append").options(url=url, tube="jobs", stageBytes="1", **options).save()


def test_rows_of_a_failed_attempt_are_not_put(small_batches, url, queue, tmp_path):
    attempts = faulty.Attempts(url, tmp_path, "raise", 0, 1)
    write(numbers(small_batches).mapInArrow(attempts, faulty.SCHEMA), url, jobId="load")
    assert (tmp_path / "0").exists() and (tmp_path / "1").exists(), "both had staged rows when they failed"
    check_once(queue, [faulty.row(n, 1) for n in range(ROWS)])
    assert sum(row.event == "put" for row in history(queue, ROWS)) == ROWS


def test_a_commit_whose_answer_is_lost_is_not_undone(small_batches, url, queue, tmp_path):
    with pytest.raises(PySparkException, match="a fault after the commit"):
        write(numbers(small_batches), url, "faulty", fault="after raise", mark=str(tmp_path / "mark"), jobId="load")
    check_once(queue, ROWS)
    write(numbers(small_batches), url, jobId="load")
    check_once(queue, ROWS)


@pytest.mark.parametrize("url", PLACES[:1], ids=["sqlite"], indirect=True)
def test_a_job_that_fails_before_its_commit_leaves_nothing_and_can_be_run_again(small_batches, url, queue, tmp_path):
    with pytest.raises(PySparkException, match="a fault before the commit"):
        write(numbers(small_batches), url, "faulty", fault="before raise", mark=str(tmp_path / "mark"), jobId="load")
    assert queue._engine.execute(ops.ListStaged()) == []
    check_once(queue, 0)
    write(numbers(small_batches, 3), url, jobId="load")
    check_once(queue, ROWS)
