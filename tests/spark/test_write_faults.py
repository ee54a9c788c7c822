"""Whatever fails, every row becomes one task: attempts, executors, drivers, commits."""

from __future__ import annotations

import signal

import pytest
from pyspark.errors import PySparkException
from tests.spark import faulty
from tests.spark.cluster import drive
from tests.spark.places import PLACES, check_once
from tests.support import postgres

import penstock
from penstock.model import ops

ROWS = 1000
pytestmark = pytest.mark.timeout(600)


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
    spark.conf.set(name, "100")
    spark.dataSource.register(faulty.FaultySource)
    yield spark
    spark.conf.set(name, before)


def numbers(spark, partitions: int = 2):
    return spark.range(ROWS, numPartitions=partitions).selectExpr("cast(id as string) as data")


def write(frame, url: str, form: str = "penstock", **options: str) -> None:
    frame.write.format(form).mode("append").options(url=url, tube="jobs", stageBytes="1", **options).save()


def test_rows_of_a_failed_attempt_are_not_put(small_batches, url, queue):
    write(numbers(small_batches).mapInArrow(faulty.failing, "data string"), url, jobId="load")
    check_once(queue, ROWS)
    assert sum(row.event == "put" for row in queue.history(tube="jobs", limit=ROWS * 3)) == ROWS


def test_a_commit_whose_answer_is_lost_is_not_undone(small_batches, url, queue):
    with pytest.raises(PySparkException, match="a fault after the commit"):
        write(numbers(small_batches), url, "faulty", fault="after raise", jobId="load")
    check_once(queue, ROWS)
    write(numbers(small_batches), url, jobId="load")
    check_once(queue, ROWS)


@pytest.mark.parametrize("url", PLACES[:1], ids=["sqlite"], indirect=True)
def test_a_job_that_fails_before_its_commit_leaves_nothing_and_can_be_run_again(small_batches, url, queue):
    with pytest.raises(PySparkException, match="a fault before the commit"):
        write(numbers(small_batches), url, "faulty", fault="before raise", jobId="load")
    assert queue._engine.execute(ops.ListStaged()) == []
    check_once(queue, 0)
    write(numbers(small_batches, 3), url, jobId="load")
    check_once(queue, ROWS)


def test_a_driver_that_is_killed_is_run_again_with_the_same_job(spark, url, queue):
    options = "fault=before kill;jobId=load"
    done = drive("load", "local[2]", "faulty", str(ROWS), f"plain={url}", check=False, OPTIONS=options)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    assert len(queue._engine.execute(ops.ListStaged())) == 1
    assert queue.tube("jobs").statistics().tasks["total"] == 0
    write(numbers(spark, 3), url, jobId="load")
    check_once(queue, ROWS)


def test_of_a_straggler_and_its_copy_one_counts_and_an_executor_that_is_killed_is_replaced(standalone, tmp_path):
    file, server, other = str(tmp_path / "tasks.db"), postgres.place(), postgres.place()
    for url in (file, server, other):
        with penstock.connect(url) as queue:
            queue.create_tube("jobs")
    drive("load", standalone, "penstock", str(ROWS), f"straggles={other}", f"kills={file}", f"kills={server}")
    for url in (file, server, other):
        with penstock.connect(url) as queue:
            check_once(queue, ROWS)
