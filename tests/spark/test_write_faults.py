"""Whatever fails, every row becomes one task: attempts, executors, drivers, commits."""

from __future__ import annotations

import shutil
import signal
import threading
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from tests.spark import faulty
from tests.spark.cluster import cluster, drive
from tests.spark.places import PLACES, check_once
from tests.support import postgres

import penstock
from penstock.model import ops
from penstock.model.staging import Promoted
from penstock.spark import jobs

ROWS = 1000
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(params=PLACES, ids=lambda place: place.name)
def url(request, tmp_path) -> str:
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


def test_a_job_that_fails_before_its_commit_leaves_nothing_and_can_be_run_again(small_batches, url, queue):
    with pytest.raises(PySparkException, match="a fault before the commit"):
        write(numbers(small_batches), url, "faulty", fault="before raise", jobId="load")
    assert queue._engine.execute(ops.ListStaged()) == []
    check_once(queue, 0)
    write(numbers(small_batches, 3), url, jobId="load")
    check_once(queue, ROWS)


def test_of_two_drivers_with_one_job_one_puts(small_batches, url, queue, tmp_path):
    options = {"fault": "meet", "mark": str(tmp_path / "meet"), "jobId": "load"}
    failed: list[str] = []

    def run() -> None:
        try:
            # Formats are those of the session that a thread of Java's works for.
            machine = small_batches._jvm.org.apache.spark.sql.classic.SparkSession
            machine.setActiveSession(small_batches._jsparkSession)
            write(numbers(small_batches), url, "faulty", **options)
        except BaseException as error:
            failed.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * faulty.PATIENCE)
    assert failed == []
    assert jobs.outcome(queue._engine, "load") == Promoted(ROWS)
    check_once(queue, ROWS)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_that_is_killed_is_run_again_with_the_same_job(spark, tmp_path, moment):
    urls = [place.url(tmp_path) for place in PLACES]
    url = urls[moment == "after"]
    with penstock.connect(url) as queue:
        queue.create_tube("jobs")
        done = drive(
            "load",
            "local[2]",
            "faulty",
            str(ROWS),
            "plain",
            url,
            check=False,
            OPTIONS=f"fault={moment} kill;jobId=load",
        )
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
        assert bool(queue._engine.execute(ops.ListStaged())) == (moment == "before")
        assert queue.tube("jobs").statistics().tasks["total"] == (0 if moment == "before" else ROWS)
        write(numbers(spark, 3), url, jobId="load")
        check_once(queue, ROWS)


def test_an_executor_that_is_killed_is_replaced(tmp_path):
    urls = [place.url(tmp_path) for place in PLACES]
    for url in urls:
        with penstock.connect(url) as queue:
            queue.create_tube("jobs")
    work = Path(pyspark.__file__).parent / "work"
    before = set(work.glob("*"))
    try:
        drive("load", "local-cluster[2,1,1024]", "penstock", str(ROWS), "kills", *urls)
    finally:
        for left in set(work.glob("*")) - before:
            shutil.rmtree(left, ignore_errors=True)
        if not before:
            shutil.rmtree(work, ignore_errors=True)
    for url in urls:
        with penstock.connect(url) as queue:
            check_once(queue, ROWS)


def test_of_a_straggler_and_its_copy_one_counts(tmp_path):
    url = postgres.place()
    with penstock.connect(url) as queue, cluster(tmp_path) as master:
        queue.create_tube("jobs")
        drive("load", master, "penstock", str(ROWS), "straggles", url)
        check_once(queue, ROWS)
